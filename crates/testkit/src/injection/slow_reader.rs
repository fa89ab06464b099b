//! Another client, which reads what the server sends it slowly.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
use taillab_host::clock::now;
use taillab_host::process::set_fifo;
use taillab_host::testbed::Testbed;
use taillab_load::ground_truth::{GroundTruth, InjectedInterval};
use taillab_model::explanation::{Cause, Culprit, SendWait};
use taillab_model::{Monotonic, Nanos};

use super::disturber::{Disturber, Running, sleep_until};
use super::{InjectionError, system};

const NAME: &str = "tl-slow-reader";
/// It reads so much …
const TAKES_BYTES: usize = 8 << 10;
/// … so often.
const EVERY: Nanos = Nanos::from_millis(10);
/// How often it looks whether the rest of a response is there.
const LOOK: Nanos = Nanos::from_millis(1);
/// Its receive buffer, of which the kernel gives it twice as much: what is in it has left the server.
const BUFFER_BYTES: usize = 8 << 10;

/// The server that it reads from.
#[derive(Clone, Copy, Debug)]
pub struct ReadsFrom {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The length of a request.
    pub request_bytes: usize,
    /// The length of a response.
    pub response_bytes: usize,
}

/// A thread on `cpu`, in the client's namespace, that sends one request at a time, and takes 8 kB of its response every
/// 10 ms.
///
/// The truth is from when it sent a request to when the rest of the response had come, whether it was read or not: the
/// server could not send it earlier.
///
/// # Errors
/// [`InjectionError`] if it cannot connect.
pub fn slow_reader(
    testbed: &Testbed,
    cpu: u32,
    from: ReadsFrom,
) -> Result<Disturber, InjectionError> {
    let connection = testbed
        .run_at_client(|| connected(from.address))?
        .map_err(system("connect to the server", "see what ended the server"))?;
    Disturber::start(
        NAME,
        cpu,
        move || {
            // without this privilege, it acts a little late
            let _ = set_fifo(0, 1);
            Ok(connection)
        },
        move |mut connection, running| {
            let mut intervals = Vec::with_capacity(4096);
            let request = vec![1; from.request_bytes];
            while !running.is_over() && connection.write_all(&request).is_ok() {
                let sent = now();
                match take(&mut connection, from.response_bytes, running) {
                    Ok(Some(came)) => intervals.push(InjectedInterval {
                        source: 0,
                        cpu: None,
                        held: None,
                        from_ns: sent,
                        to_ns: came,
                        times: 1,
                    }),
                    // it must end, or the server has
                    Ok(None) | Err(_) => break,
                }
            }
            let culprit = Culprit::Sending {
                what: SendWait::ClientWindow.what().to_owned(),
            };
            let injected = format!("slow-reader:{TAKES_BYTES},{}", EVERY.to_exact_string());
            GroundTruth::of_one(injected, Cause::Client, Some(culprit), intervals)
        },
    )
}

/// A connection with a small receive buffer, which must be set before the handshake.
fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket(family, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
    connect(&socket, &address)?;
    let connection = TcpStream::from(socket);
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// Reads a response slowly. Returns when the rest of it had come; `None` if this had to end before.
fn take(
    connection: &mut TcpStream,
    response_bytes: usize,
    running: &Running,
) -> io::Result<Option<Monotonic>> {
    let mut room = [0; TAKES_BYTES];
    let (mut read_bytes, mut came) = (0, None);
    let mut next = now() + EVERY;
    while read_bytes < response_bytes {
        if running.is_over() {
            return Ok(None);
        }
        sleep_until(next.min(now() + LOOK));
        if came.is_none() {
            let waiting = rustix::io::ioctl_fionread(&*connection)? as usize;
            came = (read_bytes + waiting >= response_bytes).then(now);
        }
        if now() < next {
            continue;
        }
        next = next + EVERY;
        connection.set_nonblocking(true)?;
        let took = connection.read(&mut room);
        connection.set_nonblocking(false)?;
        match took {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => read_bytes += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(came.unwrap_or_else(now)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use taillab_host::cpus;

    use super::*;

    #[test]
    fn a_response_takes_as_long_as_its_reader_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = ReadsFrom {
            address: listener.local_addr().unwrap(),
            request_bytes: 4,
            response_bytes: 128 << 10,
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = [0; 4];
            let mut answered = 0;
            while connection.read_exact(&mut request).is_ok() {
                counted.fetch_add(1, Relaxed);
                if connection.write_all(&vec![7; 128 << 10]).is_err() {
                    break;
                }
                answered += 1;
            }
            answered
        });
        let cpu = cpus::allowed().unwrap().first().unwrap();
        let testbed = Testbed::loopback().unwrap();
        let reader = slow_reader(&testbed, cpu, from).unwrap();
        // it asks again once it has read the answer
        let began = Instant::now();
        while asked.load(Relaxed) < 2 {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        let truth = reader.stop();
        assert!(server.join().unwrap() >= truth.intervals.len());
        assert!(!truth.intervals.is_empty());
        for interval in &truth.intervals {
            // 16 reads, less what is in the receive buffer at the end
            assert!(interval.length() >= Nanos::from_millis(60), "{interval:?}");
        }
        assert_eq!(truth.sources[0].injected, "slow-reader:8192,10ms");
    }
}
