//! Real servers, started for a test.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::datagram;
use super::ports::free_port;

/// Longer than any working system needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server's process, killed when the test ends.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a program on a free port; `None` if it is missing and the user has said so.
    pub(crate) fn start(
        test: &str,
        program: &str,
        command: impl Fn(&str) -> Command,
    ) -> Option<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = command(&address.port().to_string());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip(test, program);
                return None;
            }
            Err(error) => panic!("{program}: {error}"),
        };
        let mut server = Self { process, address };
        server.wait(program);
        Some(server)
    }

    /// Waits until it listens.
    fn wait(&mut self, program: &str) {
        let give_up = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("{program} ended at once: {status}");
            }
            assert!(Instant::now() < give_up, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A connection to it over TCP.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A socket of UDP that is connected to it.
    pub(crate) fn datagrams(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A missing program fails the test unless the user has said that it is missing.
fn skip(test: &str, program: &str) {
    assert!(
        std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|value| value == "1"),
        "{test} needs {program}: install it, or set TAILLAB_SKIP_LIVE=1 to skip it"
    );
    // not captured by cargo test: a skipped test must be seen
    let line = format!("SKIPPED {test}: no {program} (TAILLAB_SKIP_LIVE=1)\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// memcached over TCP and UDP on one port.
pub(crate) fn memcached(test: &str, more: &[&str]) -> Option<Server> {
    let server = Server::start(test, "memcached", |port| {
        let mut command = Command::new("memcached");
        command
            .args(["-u", "nobody", "-t", "1", "-l", "127.0.0.1"])
            .args(["-p", port, "-U", port])
            .args(more);
        command
    })?;
    // it opens its UDP port after its TCP port; before that, the kernel refuses what is sent there
    let socket = server.datagrams();
    let version = datagram([0, 0], b"version\r\n");
    let ask = || {
        socket.send(&version)?;
        socket.recv(&mut [0; 1024])
    };
    let give_up = Instant::now() + PATIENCE;
    while ask().is_err() {
        assert!(Instant::now() < give_up, "memcached has no UDP port");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}
