//! What a server said instead of a good answer, so that an error can explain it.

use std::fmt;

use taillab_model::text::plain;
use taillab_model::wire::http::{status_line, value_of};

/// The first line of an answer that was an error or did not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongAnswer {
    line: String,
    speaks: Option<&'static str>,
}

/// Bytes kept of a line.
const LONGEST: usize = 60;

/// Its bytes are not text, so they are not shown.
const TLS: &str = "TLS";

/// How answers of other protocols begin.
const OTHERS: [(&[u8], &str); 8] = [
    (b"HTTP/", "HTTP"),
    (b"-ERR ", "RESP (Redis)"),
    (b"-NOAUTH", "RESP (Redis)"),
    (b"ERROR\r\n", "memcached's ASCII protocol"),
    (b"CLIENT_ERROR", "memcached's ASCII protocol"),
    (b"SSH-", "SSH"),
    (b"\x15\x03", TLS),
    (b"\x16\x03", TLS),
];

impl WrongAnswer {
    /// From the first bytes that the server sent.
    pub fn of(bytes: &[u8]) -> Self {
        let known = OTHERS.iter().find(|(start, _)| bytes.starts_with(start));
        let speaks = known.map(|(_, name)| *name);
        let line = match speaks {
            Some(TLS) => "a TLS record".to_owned(),
            _ => match redirected_to(bytes) {
                Some(place) => format!("{}, to {place}", first_line(bytes)),
                None => first_line(bytes),
            },
        };
        Self { line, speaks }
    }

    /// If these bytes, for which nobody asked, say why the server will not serve.
    pub fn refusal(bytes: &[u8]) -> Option<Self> {
        const BEGINNINGS: [&[u8]; 5] = [
            b"ERROR",
            b"SERVER_ERROR",
            b"-",
            b"HTTP/1.1 4",
            b"HTTP/1.1 5",
        ];
        let refuses = BEGINNINGS.iter().any(|start| bytes.starts_with(start));
        refuses.then(|| Self::of(bytes))
    }

    /// The protocol that the answer looks like, if any.
    pub const fn speaks(&self) -> Option<&'static str> {
        self.speaks
    }
}

/// Where a redirect of HTTP leads.
fn redirected_to(bytes: &[u8]) -> Option<String> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let (_, status, _) = status_line(lines.next()?)?;
    let place = lines.find_map(|line| value_of(line, b"location"));
    (300..400).contains(&status).then_some(first_line(place?))
}

/// The first line, without what a terminal would obey.
fn first_line(bytes: &[u8]) -> String {
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST)]);
    plain(text.trim_end())
}

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_of_an_answer_is_told_by_its_beginning() {
        for (bytes, line, speaks) in [
            (
                &b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n"[..],
                "HTTP/1.1 400 Bad Request",
                Some("HTTP"),
            ),
            (
                b"-ERR unknown command 'get'\r\n",
                "-ERR unknown command 'get'",
                Some("RESP (Redis)"),
            ),
            (
                b"HTTP/1.0 301 Moved\r\nServer: x\r\nlocation:  https://a/b \r\n\r\n",
                "HTTP/1.0 301 Moved, to https://a/b",
                Some("HTTP"),
            ),
            (
                b"HTTP/1.1 302 Found\r\n",
                "HTTP/1.1 302 Found",
                Some("HTTP"),
            ),
            (b"ERROR\r\n", "ERROR", Some("memcached's ASCII protocol")),
            (b"\x15\x03\x03\x00\x02\x02\x0a", "a TLS record", Some("TLS")),
            (b"\x00\x01what\x1b", "\u{fffd}\u{fffd}what\u{fffd}", None),
            (
                "\u{9b}2J\u{202e}what".as_bytes(),
                "\u{fffd}2J\u{fffd}what",
                None,
            ),
            (b"", "", None),
        ] {
            let answer = WrongAnswer::of(bytes);
            assert_eq!(answer.to_string(), line);
            assert_eq!(answer.speaks(), speaks);
        }
        assert_eq!(WrongAnswer::of(&[b'x'; 500]).to_string().len(), LONGEST);
    }
}
