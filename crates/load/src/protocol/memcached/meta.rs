//! memcached's meta commands `mg` and `ms`, as of memcached 1.6.10.
//!
//! A request asks for its opaque back (`O`, on a stream the tag) and a get for its key
//! (`k`), so that an answer says which request it is for.

use taillab_model::wire::{hexadecimal, word};
use taillab_model::{Operation, Outcome};

use super::ascii::{body_line, first_line, is_refusal};
use crate::protocol::scan::{size, value};
use crate::protocol::store::{ExpectedAnswer, Messages, Tag, Template};
use crate::protocol::{Body, Decoded, Malformed};

/// The shortest answer: `HD`, `EN`.
const SHORTEST: usize = 4;

const ANSWERS: [&[u8]; 6] = [b"VA ", b"HD", b"EN", b"NS", b"EX", b"NF"];

/// `mg <key> O<opaque> k v`, and `ms <key> <bytes> O<opaque>` with the value.
pub(super) fn messages(key_bytes: usize, value_bytes: usize) -> Messages {
    let tagged = |before: &[u8], flags: &str, after: &str| {
        let line = Template::untagged(before, key_bytes, flags.as_bytes());
        Template {
            tag: Tag::Hexadecimal(line.bytes.len()),
            bytes: [&line.bytes, after.as_bytes()].concat(),
            ..line
        }
    };
    let value = format!("00000000\r\n{}\r\n", "v".repeat(value_bytes));
    let hit_line = format!("VA {value_bytes} O00000000 k\r\n");
    Messages {
        get: tagged(b"mg ", " O", "00000000 k v\r\n"),
        set: tagged(b"ms ", &format!(" {value_bytes} O"), &value),
        hit_bytes: hit_line.len() + key_bytes + value_bytes + b"\r\n".len(),
        stored_bytes: b"HD O00000000\r\n".len(),
    }
}

/// The flags that the server sends back.
#[derive(Default)]
struct Flags<'a> {
    key: Option<&'a [u8]>,
    opaque: Option<u32>,
}

impl<'a> Flags<'a> {
    #[inline]
    fn read(mut rest: &'a [u8]) -> Self {
        let mut this = Self::default();
        while !rest.is_empty() {
            let (flag, more) = word(rest);
            match flag.split_first() {
                Some((b'k', key)) => this.key = Some(key),
                Some((b'O', opaque)) => {
                    this.opaque = hexadecimal(opaque).and_then(|opaque| u32::try_from(opaque).ok());
                }
                _ => {}
            }
            rest = more;
        }
        this
    }
}

/// Decodes a response on a stream.
#[inline]
pub(super) fn decode(asked: &ExpectedAnswer<'_>, bytes: &[u8]) -> Decoded {
    let (text, end) = match first_line(bytes, &ANSWERS, SHORTEST) {
        Ok(line) => line,
        Err(decoded) => return decoded,
    };
    let whole = |bytes, outcome| Decoded::Answer { bytes, outcome };
    let (code, rest) = word(text);
    match (asked.operation, code) {
        (Operation::Get, b"VA") => {
            let (digits, flags) = word(rest);
            let flags = Flags::read(flags);
            let fits = size(digits) == Some(asked.value_bytes)
                && flags.key.is_some_and(|key| asked.key.is(key))
                && flags.opaque == Some(asked.tag);
            if !fits {
                return Decoded::Malformed;
            }
            value(bytes, end + asked.value_bytes, b"\r\n")
        }
        // older servers send no flags with a miss
        (Operation::Get, b"EN") => match Flags::read(rest).opaque {
            Some(other) if other != asked.tag => Decoded::Malformed,
            _ => whole(end, Outcome::Miss),
        },
        (Operation::Set, b"HD") if Flags::read(rest).opaque == Some(asked.tag) => {
            whole(end, Outcome::Stored)
        }
        (Operation::Set, b"NS" | b"EX" | b"NF") => whole(end, Outcome::ServerError),
        _ if is_refusal(text) => whole(end, Outcome::ServerError),
        _ => Decoded::Malformed,
    }
}

/// Decodes a response's first datagram, which is `whole` if it is the only one.
pub(super) fn body(bytes: &[u8], whole: bool) -> Result<Body<'_>, Malformed> {
    let (text, data) = body_line(bytes)?;
    let (code, rest) = word(text);
    if code == b"VA" {
        let (digits, flags) = word(rest);
        let size = size(digits).ok_or(Malformed)?;
        let key = Flags::read(flags).key.ok_or(Malformed)?;
        if whole && (data.len() != size + 2 || !data.ends_with(b"\r\n")) {
            return Err(Malformed);
        }
        return Ok(Body::Value { key, bytes: size });
    }
    match code {
        _ if !data.is_empty() => Err(Malformed),
        b"EN" => Ok(Body::Miss),
        b"HD" => Ok(Body::Stored),
        b"NS" | b"EX" | b"NF" => Ok(Body::Error),
        _ if is_refusal(text) => Ok(Body::Error),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::keys::Key;

    #[test]
    fn requests_are_what_memcached_expects() {
        let mut messages = messages(4, 3);
        assert_eq!(
            messages.get.fill(Key::of_four(42), 0x0102_abcd),
            b"mg 0042 O0102abcd k v\r\n"
        );
        assert_eq!(
            messages.set.fill(Key::of_four(42), 0x0102_abcd),
            b"ms 0042 3 O0102abcd\r\nvvv\r\n"
        );
    }

    #[test]
    fn answers_are_told_apart() {
        let get = |bytes: &[u8]| decode(&ExpectedAnswer::of_42(Operation::Get, 0x0102_abcd), bytes);
        let set = |bytes: &[u8]| decode(&ExpectedAnswer::of_42(Operation::Set, 0x0102_abcd), bytes);
        let answer = |bytes, outcome| Decoded::Answer { bytes, outcome };
        let hit = b"VA 3 O0102abcd k0042\r\nvvv\r\n";
        assert_eq!(get(hit), answer(hit.len(), Outcome::Hit));
        let lengths = messages(4, 3);
        assert_eq!((lengths.hit_bytes, lengths.stored_bytes), (hit.len(), 14));
        assert_eq!(get(&hit[..22]), Decoded::Partial { at_least: 27 });
        assert_eq!(
            get(b"VA 3 k0042 O0102ABCD t0\r\nvvv\r\n"),
            answer(30, Outcome::Hit)
        );
        assert_eq!(get(b"EN\r\n"), answer(4, Outcome::Miss));
        assert_eq!(get(b"EN O0102abcd k0042\r\n"), answer(20, Outcome::Miss));
        assert_eq!(set(b"HD O0102abcd\r\n"), answer(14, Outcome::Stored));
        assert_eq!(set(b"NS\r\n"), answer(4, Outcome::ServerError));
        let refused = b"SERVER_ERROR out of memory\r\n";
        assert_eq!(set(refused), answer(28, Outcome::ServerError));
        for bad in [
            &b"VA 3 O0102abce k0042\r\nvvv\r\n"[..],
            b"VA 3 O0102abcd k0043\r\nvvv\r\n",
            b"VA 3 O0102abcd\r\nvvv\r\n",
            b"VA 3 k0042\r\nvvv\r\n",
            b"VA 4 O0102abcd k0042\r\nvvvv\r\n",
            b"VA 3 O0102abcd k0042\r\nvvvv\r\n",
            b"VA 99999999999999999999\r\n",
            b"EN O00000000\r\n",
            b"HD O0102abcd\r\n",
            b"VALUE ",
            b"MN\r\n",
        ] {
            assert_eq!(get(bad), Decoded::Malformed, "{}", bad.escape_ascii());
        }
        assert_eq!(set(hit), Decoded::Malformed);
        assert_eq!(set(b"HD\r\n"), Decoded::Malformed);
        assert_eq!(set(b"HD O00000001\r\n"), Decoded::Malformed);
    }
}
