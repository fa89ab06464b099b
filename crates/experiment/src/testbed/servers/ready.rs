//! Checks whether a server answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use taillab_load::protocol;

use crate::definition::{Experiment, Transport};

/// How long to wait for an answer before asking again.
const PATIENCE: Duration = Duration::from_millis(100);

/// A request that a server answers when it is ready, and its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    transport: Transport,
    request: protocol::Question,
}

impl Question {
    /// The question for the experiment's protocol.
    pub fn of(experiment: &Experiment) -> Self {
        let server = &experiment.server;
        let udp = server.transport == Transport::Udp;
        Self {
            transport: server.transport,
            request: server.protocol.question(&experiment.requests(), udp),
        }
    }

    /// Asks from the calling thread's namespace and waits briefly for the answer.
    pub fn is_answered(&self, address: SocketAddr) -> bool {
        let answer = match self.transport {
            Transport::Udp => self.by_datagram(address),
            Transport::Tcp => self.on_stream(address),
        };
        let wanted = self.request.answer;
        answer.is_ok_and(|answer| {
            let says = |part: &[u8]| answer.windows(part.len()).any(|bytes| bytes == part);
            !answer.is_empty() && (wanted.is_empty() || says(wanted))
        })
    }

    fn by_datagram(&self, address: SocketAddr) -> std::io::Result<Vec<u8>> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(address)?;
        socket.send(&self.request.bytes)?;
        let mut answer = vec![0; 1 << 16];
        let length = socket.recv(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }

    fn on_stream(&self, address: SocketAddr) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&self.request.bytes)?;
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::net::TcpListener;

    use super::*;

    fn question(transport: Transport, bytes: &[u8], answer: &'static [u8]) -> Question {
        Question {
            transport,
            request: protocol::Question {
                bytes: bytes.to_vec(),
                answer,
            },
        }
    }

    /// Starts a server that answers `version` with this text until the test ends.
    fn that_says(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                let read = std::io::BufReader::new(&stream).read_line(&mut line);
                if read.is_ok() && line == "version\r\n" {
                    // the client may have given up waiting
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            }
        });
        address
    }

    /// Asks repeatedly: on a busy machine an answer may take longer than one question waits.
    fn is_soon_answered(asks: &Question, address: SocketAddr) -> bool {
        (0..100).any(|_| asks.is_answered(address))
    }

    #[test]
    fn silence_and_other_words_are_no_answer() {
        let asks = question(Transport::Tcp, b"version\r\n", b"VERSION");
        assert!(is_soon_answered(&asks, that_says("VERSION 1.6\r\n")));
        assert!(!is_soon_answered(&asks, that_says("nothing to see\r\n")));
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = gone.local_addr().unwrap();
        drop(gone);
        assert!(!asks.is_answered(nobody), "nobody listens");
    }

    #[test]
    fn a_datagram_is_answered_by_a_datagram() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let asks = question(Transport::Udp, b"12", b"");
        assert!(!asks.is_answered(address));
        std::thread::spawn(move || {
            let mut bytes = [0; 8];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let _ = socket.send_to(&bytes[..length], from);
            }
        });
        assert!(is_soon_answered(&asks, address));
    }
}
