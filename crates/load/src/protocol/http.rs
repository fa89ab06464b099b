//! HTTP/1.1 over connections that are kept alive: GET of one path.
//!
//! Answers must follow RFC 9112 strictly: lines end with CR LF, and lengths do not contradict each other. An
//! answer without a length (`Content-Length`, the chunked coding, or a status without a body) ends with its
//! connection. A redirect is not what was asked for, so it counts as an error of the server. `408 Request
//! Timeout` answers no request: the server closes a connection on which none came for too long, while ours is
//! on its way.

mod head;

use taillab_model::Outcome;
use taillab_model::wire::http::{VERSION, chunk_size, has_body};

use super::scan::line;
use super::{
    Ask, Decoded, MessageSizes, Planned, Planner, Protocol, Question, Resource, StreamProtocol,
};
use crate::LoadError;
use head::{Framing, Head, MAX_HEAD_BYTES, head};

/// HTTP in the table of protocols.
pub const PROTOCOL: Protocol = Protocol {
    name: "http",
    scheme: "http",
    label: "http",
    default_port: 80,
    pipelines: false,
    asks: &[Ask::Path, Ask::Headers, Ask::RequestBytes],
    stream: |workload| Ok(Box::new(Http::new(&workload.resource)?)),
    datagrams: None,
    question: |workload, _| Question {
        bytes: format!(
            "HEAD {} HTTP/1.1\r\nHost: taillab\r\nConnection: close\r\n\r\n",
            workload.resource.path
        )
        .into_bytes(),
        answer: VERSION,
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

/// The header whose value makes a request as long as wanted.
const PADDING: &str = "X-Padding: ";

impl Resource {
    /// The bytes of the request.
    fn request(&self) -> Result<Vec<u8>, LoadError> {
        let check = |is_good: bool, what, text: &str, remedy| match is_good {
            true => Ok(()),
            false => Err(LoadError::RequestText {
                what,
                text: text.to_owned(),
                remedy,
            }),
        };
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let remedy = "use a name or an address without spaces";
        check(plain(&self.host), "host", &self.host, remedy)?;
        for (name, value) in &self.headers {
            let is_name = !name.is_empty() && name.bytes().all(is_token);
            let remedy = "use letters, digits and hyphens only";
            check(is_name, "header name", name, remedy)?;
            let reserved = ["Host", "Content-Length", "Transfer-Encoding"];
            let is_free = !reserved.iter().any(|r| r.eq_ignore_ascii_case(name));
            let remedy = "the host is set on its own, and a GET has no body";
            check(is_free, "header", name, remedy)?;
            let printable = |b: u8| b == b'\t' || (b' '..=b'~').contains(&b);
            let remedy = "use printable ASCII on one line";
            check(value.bytes().all(printable), "header value", value, remedy)?;
        }
        let is_path = self.path.starts_with('/') && plain(&self.path);
        let remedy = "begin it with / and write other characters as %XX";
        check(is_path, "path", &self.path, remedy)?;
        self.filled()
    }

    /// Whether this header is among those that are given.
    fn says(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|given| given.eq_ignore_ascii_case(name))
    }

    /// The request, padded to the wanted size.
    fn filled(&self) -> Result<Vec<u8>, LoadError> {
        let mut headers: String = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        if self.closes && !self.says("connection") {
            headers += "Connection: close\r\n";
        }
        let of = |space: &str, padding: &str| {
            let Self { host, path, .. } = self;
            format!("GET {path} HTTP/1.1\r\nHost: {space}{host}\r\n{headers}{padding}\r\n")
        };
        let bare = of("", "");
        if bare.len() > MAX_REQUEST_BYTES {
            return Err(LoadError::MessageSize {
                what: "an HTTP request with this path and these headers",
                bytes: bare.len(),
                min: 0,
                max: MAX_REQUEST_BYTES,
            });
        }
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
    closes: bool,
    response_bytes: usize,
}

impl Http {
    /// Prepares the request of a workload.
    ///
    /// # Errors
    /// [`LoadError::RequestText`] for a text that would break the request,
    /// [`LoadError::MessageSize`] for a size that it cannot have.
    pub fn new(workload: &Resource) -> Result<Self, LoadError> {
        Ok(Self {
            request: workload.request()?,
            closes: workload.closes,
            response_bytes: workload.response_bytes,
        })
    }
}

impl Planner for Http {
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

    fn lets_server_close(&self) -> bool {
        self.closes
    }
}

/// Decodes the response to a GET.
fn decode(bytes: &[u8]) -> Decoded {
    let (bytes, head) = match answer(bytes) {
        Ok(found) => found,
        Err(decoded) => return decoded,
    };
    let outcome = outcome_of(head.status);
    match head.closes {
        true => Decoded::LastAnswer { bytes, outcome },
        false => Decoded::Answer { bytes, outcome },
    }
}

/// How a request ends that is answered with this status. 304 comes only if it was asked for by a header.
const fn outcome_of(status: u16) -> Outcome {
    match status {
        200..300 | 304 => Outcome::Done,
        _ => Outcome::ServerError,
    }
}

/// Where the response ends, and its head.
fn answer(bytes: &[u8]) -> Result<(usize, Head), Decoded> {
    let mut found = head(bytes, 0)?;
    // after an interim answer the real one follows (RFC 9110, 15.2)
    while found.status < 200 {
        // nobody asked for another protocol
        if found.status == 101 {
            return Err(Decoded::Malformed);
        }
        found = head(bytes, found.end)?;
    }
    if found.status == 408 {
        return Err(Decoded::NotTaken);
    }
    let end = match found.framing {
        _ if !has_body(found.status) => found.end,
        Framing::Length(length) => found.end + length,
        Framing::Chunked => chunks(bytes, found.end)?,
        Framing::Connection => {
            let outcome = outcome_of(found.status);
            return Err(Decoded::UntilClosed { outcome });
        }
    };
    match bytes.len() < end {
        true => Err(Decoded::Partial { at_least: end }),
        false => Ok((end, found)),
    }
}

/// The end of a body in the chunked coding (RFC 9112, 7.1) that begins at `at`.
fn chunks(bytes: &[u8], mut at: usize) -> Result<usize, Decoded> {
    let limit = at + MAX_BODY_BYTES;
    loop {
        let shortest = at + LAST_CHUNK_BYTES;
        if bytes.len() <= at {
            return Err(Decoded::Partial { at_least: shortest });
        }
        let (text, end) = line(bytes, at, MAX_CHUNK_LINE_BYTES, shortest)?;
        let size = chunk_size(text).ok_or(Decoded::Malformed)?;
        if size == 0 {
            return trailer(bytes, end);
        }
        at = end + size as usize + 2;
        if at > limit {
            return Err(Decoded::Malformed);
        }
        if bytes.len() < at {
            return Err(Decoded::Partial {
                at_least: at + LAST_CHUNK_BYTES,
            });
        }
        if &bytes[at - 2..at] != b"\r\n" {
            return Err(Decoded::Malformed);
        }
    }
}

/// Where the fields after the last chunk end.
fn trailer(bytes: &[u8], mut at: usize) -> Result<usize, Decoded> {
    let limit = at + MAX_HEAD_BYTES;
    loop {
        let (text, end) = line(bytes, at, limit - at, at + 2)?;
        if text.is_empty() {
            return Ok(end);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests;
