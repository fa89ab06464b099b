//! The figures of a live view over HTTP, for a monitoring system.
//!
//! There is no thread for it: who asks is answered when the screen is drawn, several times a second, and nobody can
//! hold that up for long.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use taillab_console::exit::Failure;
use taillab_report::metrics::{CONTENT_TYPE, Metrics};

/// Answers in a row.
const MOST: usize = 4;
/// How long one who asks may take to say so, and to take the answer.
const PATIENCE: Duration = Duration::from_millis(100);
/// A longer request is not read to its end.
const LONGEST: usize = 8192;

/// The address, and what has been counted.
pub struct Exporter {
    listener: TcpListener,
    pub counted: Metrics,
}

impl Exporter {
    /// Takes the address.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let failure = |error| {
            Failure::failed(format!(
                "cannot serve figures at {address}: {error}; name another port or address with --metrics"
            ))
        };
        let listener = TcpListener::bind(address).map_err(failure)?;
        listener.set_nonblocking(true).map_err(failure)?;
        Ok(Self {
            listener,
            counted: Metrics::default(),
        })
    }

    /// Answers whoever has asked since the last call.
    pub fn answer(&self, server: &str) {
        for _ in 0..MOST {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            // one that goes away gets no answer
            let _ = self.serve(stream, server);
        }
    }

    fn serve(&self, mut stream: TcpStream, server: &str) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = head(&mut stream)?;
        let text = || self.counted.text(server, env!("CARGO_PKG_VERSION"));
        stream.write_all(answer_to(&request, text).as_bytes())
    }
}

/// The head of a request, as far as it came in time.
fn head(stream: &mut impl Read) -> std::io::Result<String> {
    let (mut head, until) = (Vec::new(), Instant::now() + PATIENCE);
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n")
        && head.len() < LONGEST
        && Instant::now() < until
    {
        match stream.read(&mut piece)? {
            0 => break,
            length => head.extend_from_slice(&piece[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The answer to a request with this head.
fn answer_to(head: &str, metrics: impl FnOnce() -> String) -> String {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let path = path.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", CONTENT_TYPE, metrics()),
        ("GET" | "HEAD", _) => (
            "404 Not Found",
            plain,
            "the figures are at /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            plain,
            "only GET is answered\n".to_owned(),
        ),
    };
    let length = body.len();
    let body = if method == "HEAD" { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_figures_are_served() {
        let answer = |head: &str| answer_to(head, || "# EOF\n".to_owned());
        let good = answer("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            good.starts_with("HTTP/1.1 200 OK\r\n") && good.ends_with("\r\n\r\n# EOF\n"),
            "{good}"
        );
        assert!(
            good.contains(CONTENT_TYPE) && good.contains("Content-Length: 6\r\n"),
            "{good}"
        );
        let head = answer("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(
            head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        assert!(answer("GET / HTTP/1.1\r\n\r\n").contains("404") && answer("GET").contains("404"));
        for wrong in ["", "\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "\u{fffd}"] {
            assert!(answer(wrong).contains("405"), "{wrong}");
        }
    }

    #[test]
    fn who_asks_is_answered_and_who_is_silent_holds_up_nothing() {
        let exporter = Exporter::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = exporter.listener.local_addr().unwrap();
        exporter.answer("nobody has asked");
        let silent = TcpStream::connect(address).unwrap();
        let mut asking = TcpStream::connect(address).unwrap();
        asking.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        exporter.answer("nginx");
        let mut answer = String::new();
        asking.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("server=\"nginx\"") && answer.ends_with("# EOF\n"),
            "{answer}"
        );
        drop(silent);
        let taken = Exporter::bind(address).err().unwrap();
        assert!(
            taken.message.contains(&address.to_string()) && taken.message.contains("--metrics"),
            "{taken}"
        );
    }
}
