//! Stream servers that behave as a test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use taillab_load::EchoWorkload;
use taillab_load::protocol::echo::EchoStream;
use taillab_load::transport::stream::StreamSockets;
use taillab_load::{Endpoint, KernelStamps, StreamClient};

/// Bytes of a request and of an answer.
pub(crate) const BYTES: usize = 128;

/// An echo client of a server.
pub(crate) fn client(server: &Endpoint, connections: usize) -> StreamClient {
    echo(server, connections, EchoWorkload::default())
}

/// The same with messages of other sizes.
pub(crate) fn echo(server: &Endpoint, connections: usize, sizes: EchoWorkload) -> StreamClient {
    let sockets = StreamSockets::connect(server, connections, KernelStamps::NONE).unwrap();
    StreamClient::new(sockets, Box::new(EchoStream::new(sizes).unwrap()))
}

/// Reads one request; `None` at the end of the stream.
pub(crate) fn request(stream: &mut impl Read) -> Option<[u8; BYTES]> {
    let mut request = [0; BYTES];
    stream.read_exact(&mut request).ok().map(|()| request)
}

/// Answers every request correctly.
pub(crate) fn serve(mut stream: impl Read + Write) {
    while let Some(request) = request(&mut stream) {
        if stream.write_all(&request).is_err() {
            return;
        }
    }
}

/// Accepts connections and starts a thread for each.
pub(crate) struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `behave(n, stream)` serves the n-th connection.
    pub(crate) fn start(behave: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", behave)
    }

    pub(crate) fn start_at(
        address: &str,
        behave: impl Fn(usize, TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let behave = Arc::new(behave);
        let thread = std::thread::spawn(move || {
            for (n, stream) in listener.incoming().flatten().enumerate() {
                if stopped.load(Relaxed) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                // so that its thread ends even if the test fails
                stream
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .unwrap();
                let behave = Arc::clone(&behave);
                std::thread::spawn(move || behave(n, stream));
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::Tcp(self.address)
    }
}

impl Drop for Server {
    /// Stops listening; connections stay open.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
