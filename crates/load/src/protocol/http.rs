//! HTTP/1.1 over connections that are kept alive: GET of one path.
//!
//! Answers are read by RFC 9112 as strictly as a well-made server writes them: lines end
//! with CR LF, and every answer says its length (`Content-Length`, the chunked coding, or
//! a status without a body). An answer that only the end of the connection ends is none
//! that can be timed, and counts as malformed; so does one with contradictory lengths.

mod head;

use taillab_model::{Operation, Outcome};

use super::scan::{Line, hexadecimal, line};
use super::{
    Asks, Decoded, HttpWorkload, MessageSizes, Planned, Planner, Protocol, Question, StreamProtocol,
};
use crate::LoadError;
use head::{Framing, Head, Look, MAX_HEAD_BYTES, head};

/// HTTP in the table of protocols.
pub const PROTOCOL: Protocol = Protocol {
    name: "http",
    scheme: "http",
    label: "http",
    default_port: 80,
    asks: Asks::Http,
    stream: |workload| Ok(Box::new(Http::new(&workload.http)?)),
    datagrams: None,
    question: |workload, _| Question {
        bytes: format!(
            "HEAD {} HTTP/1.1\r\nHost: taillab\r\nConnection: close\r\n\r\n",
            workload.http.path
        )
        .into_bytes(),
        answer: b"HTTP/1.",
    },
};

/// The longest request.
pub const MAX_REQUEST_BYTES: usize = 1 << 16;

/// The longest line with the size of a chunk and its extensions.
const MAX_CHUNK_LINE_BYTES: usize = 1024;

/// The longest body.
const MAX_BODY_BYTES: usize = 1 << 30;

/// The end of the chunked coding: `0`, two line ends.
const LAST_CHUNK_BYTES: usize = 5;

/// The header whose value fills a request up.
const PADDING: &str = "X-Padding: ";

impl HttpWorkload {
    /// The bytes of the request.
    fn request(&self) -> Result<Vec<u8>, LoadError> {
        let refused = |what, text: &str, remedy| LoadError::RequestText {
            what,
            text: text.to_owned(),
            remedy,
        };
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if !plain(&self.host) {
            return Err(refused(
                "host",
                &self.host,
                "use a name or an address without spaces",
            ));
        }
        for (name, value) in &self.headers {
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(refused(
                    "header name",
                    name,
                    "use letters, digits and hyphens only",
                ));
            }
            let taken = ["Host", "Content-Length", "Transfer-Encoding"];
            if taken.iter().any(|t| t.eq_ignore_ascii_case(name)) {
                return Err(refused(
                    "header",
                    name,
                    "the host is set on its own, and a GET has no body",
                ));
            }
            let printable = |b: u8| b == b'\t' || (b' '..=b'~').contains(&b);
            if !value.bytes().all(printable) {
                return Err(refused(
                    "header value",
                    value,
                    "use printable ASCII on one line",
                ));
            }
        }
        if !self.path.starts_with('/') || !plain(&self.path) {
            return Err(refused(
                "path",
                &self.path,
                "begin it with / and write other characters as %XX",
            ));
        }
        self.filled()
    }

    /// The request with its filling.
    fn filled(&self) -> Result<Vec<u8>, LoadError> {
        let headers: String = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let of = |space: &str, padding: &str| {
            let Self { host, path, .. } = self;
            format!("GET {path} HTTP/1.1\r\nHost: {space}{host}\r\n{headers}{padding}\r\n")
        };
        let bare = of("", "");
        let wanted = self.request_bytes.unwrap_or(bare.len());
        let Some(more) = wanted
            .checked_sub(bare.len())
            .filter(|_| wanted <= MAX_REQUEST_BYTES)
        else {
            return Err(LoadError::MessageSize {
                what: "this HTTP request",
                bytes: wanted,
                min: bare.len(),
                max: MAX_REQUEST_BYTES,
            });
        };
        let header = PADDING.len() + b"\r\n".len();
        let request = match more.checked_sub(header) {
            Some(fill) => of("", &format!("{PADDING}{}\r\n", "p".repeat(fill))),
            // too little for a header: spaces before a value are allowed (RFC 9112, 5)
            None => of(&" ".repeat(more), ""),
        };
        Ok(request.into_bytes())
    }
}

/// A character of a token (RFC 9110, 5.6.2).
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// HTTP/1.1 on a stream.
#[derive(Clone, Debug)]
pub struct Http {
    request: Vec<u8>,
    response_bytes: usize,
}

impl Http {
    /// Prepares the request of a workload.
    ///
    /// # Errors
    /// [`LoadError::RequestText`] for a text that would break the request,
    /// [`LoadError::MessageSize`] for a size that it cannot be filled up to.
    pub fn new(workload: &HttpWorkload) -> Result<Self, LoadError> {
        Ok(Self {
            request: workload.request()?,
            response_bytes: workload.response_bytes,
        })
    }
}

impl Planner for Http {
    fn plan(&self, n: usize, _seed: u64) -> Vec<Planned> {
        vec![Planned::new(Operation::Call, 0); n]
    }

    fn sizes(&self) -> MessageSizes {
        MessageSizes {
            request_bytes: self.request.len(),
            response_bytes: self.response_bytes,
        }
    }
}

impl StreamProtocol for Http {
    #[inline]
    fn encode(&mut self, _what: Planned, _tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    #[inline]
    fn decode(&self, _what: Planned, _tag: u32, bytes: &[u8]) -> Decoded {
        decode(bytes)
    }
}

/// How a part of an answer ends.
enum End {
    /// At this byte.
    At(usize),
    Partial(usize),
    Bad,
}

/// Reads the answer to a GET.
fn decode(bytes: &[u8]) -> Decoded {
    let mut from = 0;
    let found = loop {
        let found = match head(bytes, from) {
            Look::Whole(found) => found,
            Look::Partial { at_least } => return Decoded::Partial { at_least },
            Look::Bad => return Decoded::Malformed,
        };
        match found.status {
            // nobody asked for another protocol
            101 => return Decoded::Malformed,
            // an interim answer: the real one follows (RFC 9110, 15.2)
            100..200 => from = found.end,
            _ => break found,
        }
    };
    let Head {
        status,
        end,
        framing,
        closes,
    } = found;
    let end = match (status, framing) {
        (204 | 304, _) => End::At(end),
        (_, Framing::Length(length)) => {
            let wanted = end + length;
            if bytes.len() < wanted {
                End::Partial(wanted)
            } else {
                End::At(wanted)
            }
        }
        (_, Framing::Chunked) => chunks(bytes, end),
        (_, Framing::Connection) => End::Bad,
    };
    let outcome = match status {
        200..400 => Outcome::Done,
        _ => Outcome::ServerError,
    };
    match end {
        End::At(bytes) if closes => Decoded::LastAnswer { bytes, outcome },
        End::At(bytes) => Decoded::Answer { bytes, outcome },
        End::Partial(at_least) => Decoded::Partial { at_least },
        End::Bad => Decoded::Malformed,
    }
}

/// Walks over a body in the chunked coding (RFC 9112, 7.1) that begins at `at`.
fn chunks(bytes: &[u8], mut at: usize) -> End {
    let limit = at + MAX_BODY_BYTES;
    loop {
        let shortest = (at + LAST_CHUNK_BYTES).max(bytes.len() + 1);
        if bytes.len() <= at {
            return End::Partial(shortest);
        }
        let (text, end) = match line(bytes, at, MAX_CHUNK_LINE_BYTES) {
            Line::Whole { text, end } => (text, end),
            Line::Open => return End::Partial(shortest),
            Line::Bad => return End::Bad,
        };
        let digits = text.iter().position(|b| matches!(b, b';' | b' ' | b'\t'));
        let size = &text[..digits.unwrap_or(text.len())];
        let Some(size) = hexadecimal(size, 8) else {
            return End::Bad;
        };
        if size == 0 {
            return trailer(bytes, end);
        }
        at = end + size as usize + 2;
        if at > limit {
            return End::Bad;
        }
        if bytes.len() < at {
            return End::Partial(at + LAST_CHUNK_BYTES);
        }
        if &bytes[at - 2..at] != b"\r\n" {
            return End::Bad;
        }
    }
}

/// Skips the fields behind the last chunk.
fn trailer(bytes: &[u8], mut at: usize) -> End {
    let limit = at + MAX_HEAD_BYTES;
    loop {
        match line(bytes, at, limit - at) {
            Line::Whole { text: b"", end } => return End::At(end),
            Line::Whole { end, .. } => at = end,
            Line::Open => return End::Partial((at + 2).max(bytes.len() + 1)),
            Line::Bad => return End::Bad,
        }
    }
}

#[cfg(test)]
mod tests;
