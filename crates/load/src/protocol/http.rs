//! HTTP/1.1 over connections that are kept alive: GET of one or several paths.
//!
//! Answers are read by RFC 9112 as strictly as a well-made server writes them: lines end
//! with CR LF, and every answer says its length (`Content-Length`, the chunked coding, or
//! a status without a body). An answer that only the end of the connection ends is none
//! that can be timed, and counts as malformed; so does one with contradictory lengths.

mod head;

use super::keys::{self, KeyDistribution};
use super::scan::{Line, hexadecimal, line};
use super::{Decoded, MessageSizes, Planned, StreamProtocol};
use crate::LoadError;
use crate::engine::Outcome;
use head::{Framing, Head, head};

/// The longest request.
pub const MAX_REQUEST_BYTES: usize = 1 << 16;

/// The longest head of an answer, interim answers (1xx) before it included.
pub const MAX_HEAD_BYTES: usize = 1 << 16;

/// The longest line with the size of a chunk and its extensions.
const MAX_CHUNK_LINE_BYTES: usize = 1024;

/// The longest body.
const MAX_BODY_BYTES: usize = 1 << 30;

/// The end of the chunked coding: `0`, two line ends.
const LAST_CHUNK_BYTES: usize = 5;

/// Stands before the bytes that fill a request up.
const PADDING: &str = "X-Padding: ";

/// What the requests ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpWorkload {
    /// The `Host` header: name or address, with the port unless it is 80.
    pub host: String,
    /// Paths with their queries, each beginning with `/`.
    pub paths: Vec<String>,
    /// More headers, name and value.
    pub headers: Vec<(String, String)>,
    /// Fill each request up to this size by one more header.
    pub request_bytes: Option<usize>,
    /// How popular each path is.
    pub distribution: KeyDistribution,
    /// About how long the answers are, for a null responder to imitate. The default is
    /// that of the nginx workload of Tales of the Tail, section 3.1.
    pub response_bytes: usize,
}

impl HttpWorkload {
    /// One path and nothing more.
    pub fn get(host: &str, path: &str) -> Self {
        Self {
            host: host.to_owned(),
            paths: vec![path.to_owned()],
            headers: Vec::new(),
            request_bytes: None,
            distribution: KeyDistribution::Uniform,
            response_bytes: 849,
        }
    }

    /// Checks that the workload can be sent.
    ///
    /// # Errors
    /// [`LoadError::Keys`] without a path, [`LoadError::RequestText`] for a text that
    /// would break the request, [`LoadError::MessageSize`] for a size that a request
    /// cannot be filled up to, [`LoadError::KeyDistribution`].
    pub fn validate(&self) -> Result<(), LoadError> {
        self.requests().map(drop)
    }

    fn requests(&self) -> Result<Vec<Vec<u8>>, LoadError> {
        check_number(self.paths.len())?;
        self.distribution.validate()?;
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
        let one = |path: &String| {
            if !path.starts_with('/') || !plain(path) {
                return Err(refused(
                    "path",
                    path,
                    "begin it with / and write other characters as %XX",
                ));
            }
            self.request(path)
        };
        self.paths.iter().map(one).collect::<Result<Vec<_>, _>>()
    }

    fn request(&self, path: &str) -> Result<Vec<u8>, LoadError> {
        let headers: String = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let of = |space: &str, padding: &str| {
            let host = &self.host;
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

/// Between one request and as many as the plan can number.
fn check_number(requests: usize) -> Result<u32, LoadError> {
    match u32::try_from(requests) {
        Ok(n @ 1..=Planned::MAX_KEYS) => Ok(n),
        other => Err(LoadError::Keys {
            keys: other.unwrap_or(u32::MAX),
            max: Planned::MAX_KEYS,
        }),
    }
}

/// HTTP/1.1 on a stream.
#[derive(Clone, Debug)]
pub struct Http {
    requests: Vec<Vec<u8>>,
    distribution: KeyDistribution,
    response_bytes: usize,
}

impl Http {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// As [`HttpWorkload::validate`].
    pub fn new(workload: HttpWorkload) -> Result<Self, LoadError> {
        Ok(Self {
            requests: workload.requests()?,
            distribution: workload.distribution,
            response_bytes: workload.response_bytes,
        })
    }

    /// Requests exactly as given, all alike popular; each must be a GET, which has no
    /// body, with its headers and the empty line that ends them.
    ///
    /// # Errors
    /// [`LoadError::Keys`] without a request, [`LoadError::RequestText`] for one that is
    /// no such request.
    pub fn verbatim(requests: Vec<Vec<u8>>) -> Result<Self, LoadError> {
        check_number(requests.len())?;
        for request in &requests {
            let end = memchr::memmem::find(request, b"\r\n\r\n").map(|at| at + 4);
            let whole = end == Some(request.len()) && request.len() <= MAX_REQUEST_BYTES;
            if !request.starts_with(b"GET /") || !whole {
                let shown = &request[..request.len().min(80)];
                return Err(LoadError::RequestText {
                    what: "HTTP request",
                    text: shown.escape_ascii().to_string(),
                    remedy: "begin it with \"GET /\" and end it with one empty line (\\r\\n\\r\\n)",
                });
            }
        }
        Ok(Self {
            requests,
            distribution: KeyDistribution::Uniform,
            response_bytes: HttpWorkload::get("", "").response_bytes,
        })
    }
}

impl StreamProtocol for Http {
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        // at most Planned::MAX_KEYS
        keys::plan_calls(self.requests.len() as u32, self.distribution, n, seed)
    }

    #[inline]
    fn encode(&mut self, what: Planned, _tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.requests[what.key() as usize]);
    }

    #[inline]
    fn decode(&self, _what: Planned, _tag: u32, bytes: &[u8]) -> Decoded {
        decode(bytes)
    }

    fn sizes(&self) -> MessageSizes {
        MessageSizes {
            request_bytes: self.requests[0].len(),
            response_bytes: self.response_bytes,
        }
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
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    let mut from = 0;
    let found = loop {
        let found = match head(bytes, from) {
            head::Found::Whole(found) => found,
            head::Found::Partial { at_least } => return Decoded::Partial { at_least },
            head::Found::Bad => return Decoded::Malformed,
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
