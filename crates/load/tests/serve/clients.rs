//! Clients for the tests, written with the standard library.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use taillab_load::protocol::MessageSizes;
use taillab_load::serve::{Architecture, Listen, Responder, Served, Spec};

pub(crate) const STREAMS: [Architecture; 3] = [
    Architecture::NullRpc,
    Architecture::EpollShared,
    Architecture::EpollPerWorker,
];
pub(crate) const DATAGRAMS: [Architecture; 2] =
    [Architecture::UdpShared, Architecture::UdpReuseport];

/// A test that waits this long has failed, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn sizes(request_bytes: usize, response_bytes: usize) -> MessageSizes {
    MessageSizes {
        request_bytes,
        response_bytes,
    }
}

/// A stream of any kind.
pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub(crate) fn tcp(server: &Responder) -> TcpStream {
    let address = server.address().socket_address().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn connect(server: &Responder) -> Box<dyn Stream> {
    match server.address() {
        Listen::Inet(_) => Box::new(tcp(server)),
        Listen::Unix(path) => {
            let stream = UnixStream::connect(path).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(stream)
        }
    }
}

pub(crate) fn udp(server: &Responder) -> UdpSocket {
    let address = server.address().socket_address().unwrap();
    let local: SocketAddr = if address.is_ipv4() {
        "127.0.0.1:0".parse().unwrap()
    } else {
        "[::1]:0".parse().unwrap()
    };
    let socket = UdpSocket::bind(local).unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Request `k` of client `client`: different bytes everywhere.
pub(crate) fn request(client: usize, k: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (client * 131 + k * 31 + i * 7 + i / 256) as u8)
        .collect()
}

/// Asserts that the answer has the right length and begins with the request.
pub(crate) fn assert_answers(answer: &[u8], request: &[u8], response_bytes: usize) {
    assert_eq!(answer.len(), response_bytes);
    let same = request.len().min(response_bytes);
    assert_eq!(answer[..same], request[..same]);
}

/// One request and its answer.
pub(crate) fn call(stream: &mut dyn Stream, request: &[u8], response_bytes: usize) {
    stream.write_all(request).unwrap();
    let mut answer = vec![0; response_bytes];
    stream.read_exact(&mut answer).unwrap();
    assert_answers(&answer, request, response_bytes);
}

/// One datagram and its answer.
pub(crate) fn exchange(socket: &UdpSocket, request: &[u8], response_bytes: usize) {
    socket.send(request).unwrap();
    let mut answer = vec![0; 65_536];
    let length = socket.recv(&mut answer).unwrap();
    assert_answers(&answer[..length], request, response_bytes);
}

/// A server with a number of workers.
pub(crate) fn start(architecture: Architecture, workers: usize) -> Responder {
    Responder::start(&Spec {
        workers,
        ..Spec::new(architecture)
    })
    .unwrap()
}

/// The server's counts, once they are as wanted: a worker counts a request after its answer.
pub(crate) fn served(server: &Responder, as_wanted: impl Fn(&Served) -> bool) -> Served {
    let began = Instant::now();
    loop {
        let served = server.served();
        if as_wanted(&served) {
            return served;
        }
        assert!(began.elapsed() < PATIENCE, "not as wanted: {served:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends requests, this many in each round, until each worker has had one: a busy machine may keep one of them
/// from its CPU for a while.
pub(crate) fn until_all_have_served(server: &Responder, round: usize, mut send: impl FnMut()) {
    let began = Instant::now();
    for rounds in 1.. {
        send();
        let total = (rounds * round) as u64;
        let counts = served(server, |now| now.total() == total);
        if counts.by_worker.iter().all(|&n| n > 0) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{counts:?}");
    }
}

/// Whether the server has ended the connection.
pub(crate) fn is_over(stream: &mut dyn Stream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}
