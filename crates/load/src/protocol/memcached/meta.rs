//! memcached's meta commands `mg` and `ms`, as of memcached 1.6.10.
//!
//! A request asks for its opaque back (`O`, on a stream the tag) and a get for its key
//! (`k`), so that an answer says which request it is for.

use taillab_model::Operation;

use super::ascii::{MAX_LINE_BYTES, REFUSALS, is_refusal};
use super::{Asked, Tag, Template};
use crate::engine::Outcome;
use crate::protocol::scan::{Line, could_begin, decimal, hexadecimal, line, word};
use crate::protocol::{Body, Decoded, Malformed};

/// The shortest answer: `HD`, `EN`.
const SHORTEST: usize = 4;

const ANSWERS: [&[u8]; 12] = [
    b"VA ",
    b"HD",
    b"EN",
    b"NS",
    b"EX",
    b"NF",
    REFUSALS[0],
    REFUSALS[1],
    REFUSALS[2],
    REFUSALS[3],
    REFUSALS[4],
    REFUSALS[5],
];

/// `mg <key> O<opaque> k v`
pub(super) fn get(key_bytes: usize) -> Template {
    let key = vec![b'0'; key_bytes];
    let before = [b"mg ", &key[..], b" O"].concat();
    Template {
        bytes: [&before, &b"00000000 k v\r\n"[..]].concat(),
        key_at: 3,
        tag: Tag::Hexadecimal(before.len()),
    }
}

/// `ms <key> <bytes> O<opaque>`, and the value.
pub(super) fn set(key_bytes: usize, value_bytes: usize) -> Template {
    let key = vec![b'0'; key_bytes];
    let size = format!(" {value_bytes} O");
    let before = [b"ms ", &key[..], size.as_bytes()].concat();
    let value = vec![b'v'; value_bytes];
    Template {
        bytes: [&before, &b"00000000\r\n"[..], &value, b"\r\n"].concat(),
        key_at: 3,
        tag: Tag::Hexadecimal(before.len()),
    }
}

/// Bytes of a hit and of "stored".
pub(super) fn answer_bytes(key_bytes: usize, value_bytes: usize) -> (usize, usize) {
    let flags = format!("VA {value_bytes} O00000000 k\r\n");
    let hit = flags.len() + key_bytes + value_bytes + b"\r\n".len();
    (hit, b"HD O00000000\r\n".len())
}

/// The flags that come back.
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
                Some((b'O', opaque)) => this.opaque = hexadecimal(opaque, 8),
                _ => {}
            }
            rest = more;
        }
        this
    }
}

/// Reads an answer on a stream.
#[inline]
pub(super) fn decode(asked: &Asked<'_>, bytes: &[u8]) -> Decoded {
    let (text, end) = match line(bytes, 0, MAX_LINE_BYTES) {
        Line::Whole { text, end } => (text, end),
        Line::Open if could_begin(bytes, &ANSWERS) => {
            return Decoded::Partial {
                at_least: SHORTEST.max(bytes.len() + 1),
            };
        }
        Line::Open | Line::Bad => return Decoded::Malformed,
    };
    let whole = |bytes, outcome| Decoded::Answer { bytes, outcome };
    let (code, rest) = word(text);
    match (asked.operation, code) {
        (Operation::Get, b"VA") => {
            let (size, flags) = word(rest);
            let flags = Flags::read(flags);
            let fits = decimal(size) == Some(asked.value_bytes)
                && flags.key == Some(asked.key)
                && flags.opaque == Some(asked.tag);
            if !fits {
                return Decoded::Malformed;
            }
            let data_end = end + asked.value_bytes;
            let wanted = data_end + 2;
            if bytes.len() < wanted {
                return Decoded::Partial { at_least: wanted };
            }
            if &bytes[data_end..wanted] != b"\r\n" {
                return Decoded::Malformed;
            }
            whole(wanted, Outcome::Hit)
        }
        // older servers give no flags back with a miss
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

/// Reads the text of an answer's first datagram, which is `whole` if it is the only one.
pub(super) fn body(bytes: &[u8], whole: bool) -> Result<Body<'_>, Malformed> {
    let Line::Whole { text, end } = line(bytes, 0, MAX_LINE_BYTES) else {
        return Err(Malformed);
    };
    let data = &bytes[end..];
    let (code, rest) = word(text);
    if code == b"VA" {
        let (size, flags) = word(rest);
        let size = decimal(size).ok_or(Malformed)?;
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

    fn asked(operation: Operation) -> Asked<'static> {
        Asked {
            operation,
            key: b"0042",
            value_bytes: 3,
            tag: 0x0102_abcd,
        }
    }

    #[test]
    fn requests_are_what_memcached_expects() {
        assert_eq!(
            get(4).fill(b"0042", 0x0102_abcd),
            b"mg 0042 O0102abcd k v\r\n"
        );
        assert_eq!(
            set(4, 3).fill(b"0042", 0x0102_abcd),
            b"ms 0042 3 O0102abcd\r\nvvv\r\n"
        );
    }

    #[test]
    fn answers_are_told_apart() {
        let get = |bytes: &[u8]| decode(&asked(Operation::Get), bytes);
        let set = |bytes: &[u8]| decode(&asked(Operation::Set), bytes);
        let answer = |bytes, outcome| Decoded::Answer { bytes, outcome };
        let hit = b"VA 3 O0102abcd k0042\r\nvvv\r\n";
        assert_eq!(get(hit), answer(hit.len(), Outcome::Hit));
        assert_eq!(answer_bytes(4, 3), (hit.len(), 14));
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
