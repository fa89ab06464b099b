//! HTTP/1.0 and HTTP/1.1 (RFC 9112).

use taillab_model::wire::http::{
    CHUNK_SEPARATORS, CONTENT_LENGTH, TRANSFER_ENCODING, VERSION, chunk_size, has_body, is_chunked,
    status_line, value_of,
};
use taillab_model::wire::{decimal, words};

use super::grammar::{
    Direction, Grammar, Lost, Message, Next, blank, blank_unless, keep_keyword, words_mut,
};
use crate::commands::{Command, HTTP};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    First,
    Fields,
    ChunkSize,
    /// The line break behind a chunk.
    ChunkEnd,
    Trailers,
}

/// What has been read of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Http {
    direction: Direction,
    part: Expected,
    /// Of a response.
    status: u16,
    length: Option<u64>,
    chunked: bool,
    /// Another protocol follows.
    upgraded: bool,
}

/// Bytes of the minor version, a space, and the status.
const MINOR_AND_STATUS: usize = 5;

impl Grammar for Http {
    fn begin(&mut self, _first: u8) -> Option<usize> {
        *self = Self::new(self.direction);
        None
    }

    fn line(&mut self, line: &[u8], cut: bool, message: &mut Message) -> Result<Next, Lost> {
        let request = self.direction == Direction::Requests;
        match self.part {
            // RFC 9112, 2.2: an empty line before a request is to be ignored
            Expected::First if line.is_empty() && request => Ok(Next::Line),
            Expected::First => {
                match self.direction {
                    Direction::Requests => self.request_line(line, cut, message)?,
                    Direction::Responses => self.status_line(line)?,
                }
                self.part = Expected::Fields;
                Ok(Next::Line)
            }
            Expected::Fields if line.is_empty() => self.end_of_head(*message),
            Expected::Fields => self.field(line, cut),
            Expected::ChunkSize => match chunk_size(line).ok_or(Lost)? {
                0 => {
                    self.part = Expected::Trailers;
                    Ok(Next::Line)
                }
                size => {
                    self.part = Expected::ChunkEnd;
                    Ok(Next::Body(size))
                }
            },
            Expected::ChunkEnd if line.is_empty() => {
                self.part = Expected::ChunkSize;
                Ok(Next::Line)
            }
            Expected::ChunkEnd => Err(Lost),
            Expected::Trailers if line.is_empty() => Ok(Next::End),
            Expected::Trailers => Ok(Next::Line),
        }
    }

    // the response to HEAD has a length and no body
    fn begins_response(&self, content: &[u8]) -> bool {
        content.starts_with(VERSION)
    }

    fn asks_for_rest(&self, content: &[u8]) -> bool {
        let status = content.get(VERSION.len() + 1..);
        content.starts_with(VERSION) && status.is_some_and(|status| status.starts_with(b" 100"))
    }

    fn sends_unasked(&self) -> bool {
        self.upgraded
    }

    fn is_unmistakable(&self) -> bool {
        self.part != Expected::First
    }

    fn redact_line(&self, line: &mut [u8]) {
        match (self.part, self.direction) {
            (Expected::First, Direction::Requests) => {
                let mut is_request = false;
                for (place, word) in words_mut(line) {
                    let keywords: &[&[u8]] = match place {
                        0 => &HTTP,
                        _ if is_request => &[VERSION],
                        _ => &[],
                    };
                    is_request |= place == 0 && HTTP.contains(&&*word);
                    keep_keyword(word, keywords);
                }
            }
            (Expected::First, Direction::Responses) => {
                let (version, rest) = line.split_at_mut(line.len().min(VERSION.len()));
                let is_response = version == VERSION;
                keep_keyword(version, &[VERSION]);
                if !is_response {
                    return blank(rest);
                }
                let (status, reason) = rest.split_at_mut(rest.len().min(MINOR_AND_STATUS));
                blank_unless(status, |byte| byte == b' ' || byte.is_ascii_digit());
                blank(reason);
            }
            (Expected::Fields, _) => redact_field(line),
            (Expected::ChunkSize, _) => {
                let separator = |byte: &u8| CHUNK_SEPARATORS.contains(byte);
                let size = line.iter().position(separator).unwrap_or(line.len());
                let (size, extension) = line.split_at_mut(size);
                blank_unless(size, |byte| byte.is_ascii_hexdigit());
                // the separator is what ends the size
                blank(extension.get_mut(1..).unwrap_or_default());
            }
            (Expected::ChunkEnd | Expected::Trailers, _) => blank(line),
        }
    }
}

/// Keeps the colon of a field, and the value where it says how long the body is.
fn redact_field(line: &mut [u8]) {
    let colon = line.iter().position(|&byte| byte == b':');
    let (name, value) = line.split_at_mut(colon.unwrap_or(line.len()));
    let value = value.get_mut(1..).unwrap_or_default();
    if name.eq_ignore_ascii_case(CONTENT_LENGTH) {
        blank_unless(value, |byte| {
            byte.is_ascii_digit() || byte.is_ascii_whitespace()
        });
    } else if name.eq_ignore_ascii_case(TRANSFER_ENCODING) {
        // names of encodings
        blank_unless(value, |byte| {
            byte.is_ascii_alphabetic() || byte == b',' || byte.is_ascii_whitespace()
        });
    } else {
        blank(value);
    }
    keep_keyword(name, &[CONTENT_LENGTH, TRANSFER_ENCODING]);
}

impl Http {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            ..Self::default()
        }
    }

    fn request_line(&mut self, line: &[u8], cut: bool, message: &mut Message) -> Result<(), Lost> {
        let method = line.split(|&byte| byte == b' ').next().unwrap_or(line);
        let version = words(line).any(|word| word.starts_with(VERSION));
        // what follows CONNECT is another protocol
        self.upgraded = method == b"CONNECT";
        if !HTTP.contains(&method) || method == b"CONNECT" || !(version || cut) {
            return Err(Lost);
        }
        message.head_only = method == b"HEAD";
        message.command = Command::named(method, &HTTP);
        Ok(())
    }

    fn status_line(&mut self, line: &[u8]) -> Result<(), Lost> {
        let (_, status, _) = status_line(line).ok_or(Lost)?;
        self.upgraded = status == 101;
        if self.upgraded {
            return Err(Lost);
        }
        self.status = status;
        Ok(())
    }

    fn field(&mut self, line: &[u8], cut: bool) -> Result<Next, Lost> {
        if !line.contains(&b':') {
            return Err(Lost);
        }
        if let Some(value) = value_of(line, CONTENT_LENGTH) {
            let length = decimal(value).filter(|_| !cut).ok_or(Lost)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Lost);
            }
            self.length = Some(length);
        } else if let Some(codings) = value_of(line, TRANSFER_ENCODING) {
            self.chunked = is_chunked(codings) && !cut;
            if !self.chunked {
                return Err(Lost);
            }
        }
        Ok(Next::Line)
    }

    /// What follows the head; it determines the length of the body (RFC 9112, 6.3).
    fn end_of_head(&mut self, message: Message) -> Result<Next, Lost> {
        let response = self.direction == Direction::Responses;
        if response && (100..200).contains(&self.status) {
            return Ok(Next::Anew);
        }
        if response && (message.head_only || !has_body(self.status)) {
            return Ok(Next::End);
        }
        if self.chunked {
            self.part = Expected::ChunkSize;
            return Ok(Next::Line);
        }
        match self.length {
            Some(length) => Ok(Next::LastBody(length)),
            // until the connection is closed
            None if response => Err(Lost),
            None => Ok(Next::End),
        }
    }
}
