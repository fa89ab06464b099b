//! memcached's binary protocol.
//!
//! The server returns the opaque of the request: on a stream the request's tag, in a datagram, where the
//! frame's id identifies the request, the number of the key.

use taillab_model::wire::memcached::{BinaryHeader, HEADER_BYTES, OPAQUE_AT, REQUEST, RESPONSE};
use taillab_model::{Operation, Outcome};

use crate::protocol::store::{ExpectedAnswer, Messages, Tag, Template};
use crate::protocol::{Body, Decoded, Malformed};

const GET: u8 = 0x00;
const SET: u8 = 0x01;
/// Flags before a value.
const FLAGS_BYTES: usize = 4;
const NOT_FOUND: u16 = 1;
/// The longest error text.
const MAX_ERROR_BYTES: usize = 4096;

fn request(opcode: u8, key_bytes: usize, extras: &[u8], value_bytes: usize) -> Template {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[0] = REQUEST;
    bytes[1] = opcode;
    // at most 250
    bytes[3] = key_bytes as u8;
    bytes[4] = extras.len() as u8;
    // at most 64 MiB and a little
    let body = (extras.len() + key_bytes + value_bytes) as u32;
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    bytes.extend_from_slice(extras);
    let key_end = bytes.len() + key_bytes;
    bytes.resize(key_end, b'0');
    bytes.resize(key_end + value_bytes, b'v');
    Template {
        bytes,
        key_end,
        tag: Tag::Binary(OPAQUE_AT),
    }
}

/// Get, and set with flags and expiration 0.
pub(super) fn messages(key_bytes: usize, value_bytes: usize) -> Messages {
    Messages {
        get: request(GET, key_bytes, &[], 0),
        set: request(SET, key_bytes, &[0; 8], value_bytes),
        hit_bytes: HEADER_BYTES + FLAGS_BYTES + value_bytes,
        stored_bytes: HEADER_BYTES,
    }
}

/// A header.
struct Header {
    opcode: u8,
    status: u16,
    body_bytes: usize,
    opaque: [u8; 4],
}

impl Header {
    /// `None` if this is not the header of a response to a get or a set, or its lengths are wrong.
    #[inline]
    fn read(h: &[u8; HEADER_BYTES]) -> Option<Self> {
        let header = BinaryHeader::read(h);
        let this = Self {
            opcode: header.opcode,
            status: header.status,
            body_bytes: header.body_bytes as usize,
            opaque: header.opaque,
        };
        // a response to a get or a set has no key, and a value has its flags before it
        let extras = match (this.opcode, this.status) {
            (GET, 0) => FLAGS_BYTES,
            _ => 0,
        };
        let limit = match this.status {
            0 if this.opcode == GET => usize::MAX,
            0 => 0,
            _ => MAX_ERROR_BYTES,
        };
        let fits = header.magic == RESPONSE
            && matches!(this.opcode, GET | SET)
            && header.key_bytes == 0
            && usize::from(header.extras_bytes) == extras
            && (extras..=limit).contains(&this.body_bytes);
        fits.then_some(this)
    }
}

/// Decodes a response on a stream.
#[inline]
pub(super) fn decode(asked: &ExpectedAnswer<'_>, bytes: &[u8]) -> Decoded {
    if bytes.first().is_some_and(|&magic| magic != RESPONSE) {
        return Decoded::Malformed;
    }
    let Some(header) = bytes.first_chunk() else {
        return Decoded::Partial {
            at_least: HEADER_BYTES,
        };
    };
    let opcode = match asked.operation {
        Operation::Set => SET,
        Operation::Get | Operation::Call => GET,
    };
    let header = match Header::read(header) {
        Some(h) if h.opcode == opcode && h.opaque == asked.tag.to_be_bytes() => h,
        _ => return Decoded::Malformed,
    };
    let outcome = match (header.status, opcode) {
        (0, SET) => Outcome::Stored,
        (0, _) if header.body_bytes == FLAGS_BYTES + asked.value_bytes => Outcome::Hit,
        (0, _) => return Decoded::Malformed,
        (NOT_FOUND, GET) => Outcome::Miss,
        _ => Outcome::ServerError,
    };
    let wanted = HEADER_BYTES + header.body_bytes;
    if bytes.len() < wanted {
        return Decoded::Partial { at_least: wanted };
    }
    Decoded::Answer {
        bytes: wanted,
        outcome,
    }
}

/// Decodes a response's first datagram, which is `whole` if it is the only one. The key of a value
/// is the opaque.
pub(super) fn body(bytes: &[u8], whole: bool) -> Result<Body<'_>, Malformed> {
    let header = bytes.first_chunk().and_then(Header::read);
    let header = header.ok_or(Malformed)?;
    let data = bytes.len() - HEADER_BYTES;
    if whole && data != header.body_bytes || data > header.body_bytes {
        return Err(Malformed);
    }
    Ok(match (header.status, header.opcode) {
        (0, SET) => Body::Stored,
        (0, _) => Body::Value {
            key: &bytes[OPAQUE_AT..OPAQUE_AT + 4],
            bytes: header.body_bytes - FLAGS_BYTES,
        },
        (NOT_FOUND, GET) => Body::Miss,
        _ => Body::Error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::keys::Key;

    /// An answer with this opcode, extras, status, opaque and body.
    fn answer(opcode: u8, extras: u8, status: u8, opaque: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![RESPONSE, opcode, 0, 0, extras, 0, 0, status];
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&opaque.to_be_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(body);
        bytes
    }

    /// As memcached 1.6.18 takes them, which the live test shows.
    #[test]
    fn requests_are_what_memcached_expects() {
        let mut messages = messages(4, 3);
        assert_eq!(
            messages.get.fill(Key::of_four(42), 0x0102_0304),
            b"\x80\x00\0\x04\0\0\0\0\0\0\0\x04\x01\x02\x03\x04\0\0\0\0\0\0\0\x000042"
        );
        assert_eq!(
            messages.set.fill(Key::of_four(42), 0x0102_0304),
            b"\x80\x01\0\x04\x08\0\0\0\0\0\0\x0f\x01\x02\x03\x04\0\0\0\0\0\0\0\0\
              \0\0\0\0\0\0\0\x000042vvv"
        );
    }

    #[test]
    fn answers_are_told_apart() {
        const TAG: u32 = 0x0102_0304;
        let get = |bytes: &[u8]| decode(&ExpectedAnswer::of_42(Operation::Get, TAG), bytes);
        let set = |bytes: &[u8]| decode(&ExpectedAnswer::of_42(Operation::Set, TAG), bytes);
        let whole = |bytes, outcome| Decoded::Answer { bytes, outcome };
        let hit = answer(GET, 4, 0, TAG, b"\0\0\0\0vvv");
        assert_eq!(get(&hit), whole(31, Outcome::Hit));
        let lengths = messages(4, 3);
        assert_eq!((lengths.hit_bytes, lengths.stored_bytes), (31, 24));
        assert_eq!(get(&hit[..23]), Decoded::Partial { at_least: 24 });
        assert_eq!(get(&hit[..24]), Decoded::Partial { at_least: 31 });
        assert_eq!(set(&hit), Decoded::Malformed);
        let missed = answer(GET, 0, 1, TAG, b"Not found");
        assert_eq!(get(&missed), whole(33, Outcome::Miss));
        let stored = answer(SET, 0, 0, TAG, b"");
        assert_eq!(set(&stored), whole(24, Outcome::Stored));
        let full = answer(SET, 0, 0x82, TAG, b"Out of memory");
        assert_eq!(set(&full), whole(37, Outcome::ServerError));
        for bad in [
            answer(GET, 4, 0, TAG + 1, b"\0\0\0\0vvv"),
            answer(GET, 4, 0, TAG, b"\0\0\0\0vvvv"),
            answer(GET, 4, 0, TAG, b"\0\0"),
            answer(GET, 0, 0, TAG, b"\0\0\0\0vvv"),
            answer(SET, 0, 0, TAG, b""),
            answer(7, 0, 0, TAG, b""),
            answer(GET, 0, 1, TAG, &[b'x'; MAX_ERROR_BYTES + 1]),
            b"HTTP".to_vec(),
        ] {
            assert_eq!(get(&bad), Decoded::Malformed, "{}", bad.escape_ascii());
        }
    }
}
