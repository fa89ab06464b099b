//! The head of an answer: status line and headers.

use taillab_model::wire::http::{
    CONTENT_LENGTH, TRANSFER_ENCODING, VERSION, elements, is_chunked, status_line, value_of,
};

use crate::protocol::Decoded;
use crate::protocol::scan::{could_begin, line, size};

/// The longest head of an answer, interim answers (1xx) before it included.
pub(super) const MAX_HEAD_BYTES: usize = 1 << 16;

/// What the head of an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// 100 … 599.
    pub(super) status: u16,
    /// Where the body begins.
    pub(super) end: usize,
    pub(super) framing: Framing,
    /// The connection ends after this answer.
    pub(super) closes: bool,
}

/// What ends the body, for a status that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
    /// By the end of the connection.
    Connection,
}

/// The shortest status line, and the empty line: `HTTP/1.1 200 `. Some servers leave the
/// last space out.
const SHORTEST: usize = 12 + 2 + 2;

/// Reads the head that begins at `from`.
///
/// # Errors
/// [`Decoded::Partial`] or [`Decoded::Malformed`].
pub(super) fn head(bytes: &[u8], from: usize) -> Result<Head, Decoded> {
    let next = |at: usize, shortest: usize| {
        line(bytes, at, MAX_HEAD_BYTES.saturating_sub(at), at + shortest)
    };
    let (text, mut at) = match next(from, SHORTEST) {
        Err(_) if !could_begin(&bytes[from..], &[VERSION]) => return Err(Decoded::Malformed),
        found => found?,
    };
    let (minor, status) = known_status(text).ok_or(Decoded::Malformed)?;
    let mut length = None;
    let mut chunked = false;
    // HTTP/1.0 ends the connection unless it says otherwise (RFC 9112, 9.3)
    let mut closes = minor == b'0';
    loop {
        let (text, end) = next(at, 2)?;
        at = end;
        let Some(first) = text.first() else {
            break;
        };
        // skips most headers quickly
        if !matches!(first | 0x20, b'c' | b't') {
            continue;
        }
        if let Some(value) = value_of(text, CONTENT_LENGTH) {
            let value = size(value);
            if value.is_none() || length.is_some() && length != value {
                return Err(Decoded::Malformed);
            }
            length = value;
        } else if let Some(value) = value_of(text, TRANSFER_ENCODING) {
            if !is_chunked(value) {
                return Err(Decoded::Malformed);
            }
            chunked = true;
        } else if let Some(value) = value_of(text, b"connection") {
            for token in elements(value) {
                if token.eq_ignore_ascii_case(b"close") {
                    closes = true;
                } else if token.eq_ignore_ascii_case(b"keep-alive") && minor == b'0' {
                    closes = false;
                }
            }
        }
    }
    let framing = match (length, chunked) {
        // contradictory: an attack, or a broken server (RFC 9112, 6.3)
        (Some(_), true) => return Err(Decoded::Malformed),
        (Some(length), false) => Framing::Length(length),
        (None, true) => Framing::Chunked,
        (None, false) => Framing::Connection,
    };
    Ok(Head {
        status,
        end: at,
        framing,
        closes,
    })
}

/// `HTTP/1.x NNN reason`: x and NNN.
fn known_status(text: &[u8]) -> Option<(u8, u16)> {
    let (minor, status, reason) = status_line(text)?;
    let known = matches!(minor, b'0' | b'1')
        && (100..600).contains(&status)
        && reason.first().is_none_or(|&b| b == b' ');
    known.then_some((minor, status))
}
