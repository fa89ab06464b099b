//! `get` and `set`, memcached's text protocol.

use taillab_model::wire::word;
use taillab_model::{Operation, Outcome};

use crate::protocol::scan::{could_begin, line, size, value};
use crate::protocol::store::{ExpectedAnswer, Messages, Template};
use crate::protocol::{Body, Decoded, Malformed};

/// The longest line of an answer: a key of 250 bytes, numbers, or an error's text.
const MAX_LINE_BYTES: usize = 2048;

const TRAILER: &[u8] = b"\r\nEND\r\n";

/// The server's error responses, in both text dialects.
const REFUSALS: [&[u8]; 6] = [
    b"ERROR",
    b"SERVER_ERROR",
    b"CLIENT_ERROR",
    b"NOT_STORED",
    b"NOT_FOUND",
    b"EXISTS",
];

const ANSWERS: [&[u8]; 3] = [b"VALUE ", b"END\r\n", b"STORED\r\n"];

/// The shortest answer: `END`.
const SHORTEST: usize = 5;

/// `get <key>`, and `set <key> <flags> <exptime> <bytes>` with the value.
pub(super) fn messages(key_bytes: usize, value_bytes: usize) -> Messages {
    let value = format!(" 0 0 {value_bytes}\r\n{}\r\n", "v".repeat(value_bytes));
    let hit_line = format!("VALUE  0 {value_bytes}\r\n");
    Messages {
        get: Template::untagged(b"get ", key_bytes, b"\r\n"),
        set: Template::untagged(b"set ", key_bytes, value.as_bytes()),
        hit_bytes: hit_line.len() + key_bytes + value_bytes + TRAILER.len(),
        stored_bytes: b"STORED\r\n".len(),
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
    if let Some(rest) = text.strip_prefix(b"VALUE ") {
        let fits = asked.operation == Operation::Get
            && value_line(rest)
                .is_some_and(|(key, bytes)| asked.key.is(key) && bytes == asked.value_bytes);
        if !fits {
            return Decoded::Malformed;
        }
        return value(bytes, end + asked.value_bytes, TRAILER);
    }
    match (asked.operation, text) {
        (Operation::Get, b"END") => whole(end, Outcome::Miss),
        (Operation::Set, b"STORED") => whole(end, Outcome::Stored),
        _ if is_refusal(text) => whole(end, Outcome::ServerError),
        _ => Decoded::Malformed,
    }
}

/// The first line of an answer, without its end, and where it ends. While the line is
/// incomplete, it must be possible that it becomes one of `answers` or a refusal.
#[inline]
pub(super) fn first_line<'a>(
    bytes: &'a [u8],
    answers: &[&[u8]],
    shortest: usize,
) -> Result<(&'a [u8], usize), Decoded> {
    match line(bytes, 0, MAX_LINE_BYTES, shortest) {
        Err(Decoded::Partial { .. })
            if !could_begin(bytes, answers) && !could_begin(bytes, &REFUSALS) =>
        {
            Err(Decoded::Malformed)
        }
        found => found,
    }
}

/// Whether a line, without its end, is an error response.
pub(super) fn is_refusal(text: &[u8]) -> bool {
    REFUSALS.contains(&word(text).0)
}

/// Reads `<key> <flags> <bytes>`: key and bytes.
#[inline]
fn value_line(rest: &[u8]) -> Option<(&[u8], usize)> {
    let (key, rest) = word(rest);
    let (flags, digits) = word(rest);
    // flags are 32 bits
    let known = !key.is_empty() && flags.len() <= 10 && flags.iter().all(u8::is_ascii_digit);
    let size = size(digits)?;
    (known && !flags.is_empty()).then_some((key, size))
}

/// The first line of a response's datagram, without its end, and what follows it.
pub(super) fn body_line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (text, end) = line(bytes, 0, MAX_LINE_BYTES, 0).map_err(|_| Malformed)?;
    Ok((text, &bytes[end..]))
}

/// Decodes a response's first datagram, which is `whole` if it is the only one.
pub(super) fn body(bytes: &[u8], whole: bool) -> Result<Body<'_>, Malformed> {
    let (text, data) = body_line(bytes)?;
    if let Some(rest) = text.strip_prefix(b"VALUE ") {
        let (key, size) = value_line(rest).ok_or(Malformed)?;
        let complete = data.len() == size + TRAILER.len() && data.ends_with(TRAILER);
        if whole && !complete {
            return Err(Malformed);
        }
        return Ok(Body::Value { key, bytes: size });
    }
    match text {
        b"END" if data.is_empty() => Ok(Body::Miss),
        b"STORED" if data.is_empty() => Ok(Body::Stored),
        // an error with a second line is malformed
        _ if is_refusal(text) && data.is_empty() => Ok(Body::Error),
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
        assert_eq!(messages.get.fill(Key::of_four(42), 1), b"get 0042\r\n");
        let set = messages.set.fill(Key::of_four(7), 1);
        assert_eq!(set, b"set 0007 0 0 3\r\nvvv\r\n");
    }

    #[test]
    fn answers_are_told_apart() {
        let get = |bytes: &[u8]| decode(&ExpectedAnswer::of_42(Operation::Get, 9), bytes);
        let set = |bytes: &[u8]| decode(&ExpectedAnswer::of_42(Operation::Set, 9), bytes);
        let answer = |bytes, outcome| Decoded::Answer { bytes, outcome };
        let hit = b"VALUE 0042 0 3\r\nvvv\r\nEND\r\n";
        assert_eq!(get(hit), answer(hit.len(), Outcome::Hit));
        assert_eq!(hit.len(), messages(4, 3).hit_bytes);
        assert_eq!(
            get(b"VALUE 0042 4294967295 3\r\n\r\n\r\r\nEND\r\nmore"),
            answer(35, Outcome::Hit)
        );
        assert_eq!(get(b"END\r\nEND\r\n"), answer(5, Outcome::Miss));
        assert_eq!(set(b"STORED\r\n"), answer(8, Outcome::Stored));
        for refusal in [
            &b"ERROR\r\n"[..],
            b"ERROR Too many open connections\r\n",
            b"SERVER_ERROR out of memory storing object\r\n",
            b"CLIENT_ERROR bad data chunk\r\n",
            b"NOT_STORED\r\n",
        ] {
            let expected = answer(refusal.len(), Outcome::ServerError);
            assert_eq!((get(refusal), set(refusal)), (expected, expected));
        }
        for not_a_set_s in [&hit[..], b"END\r\n"] {
            assert_eq!(set(not_a_set_s), Decoded::Malformed);
        }
        for bad in [
            &b"STORED\r\n"[..],
            b"hello",
            b"VALUE 0043 0 3\r\nvvv\r\nEND\r\n",
            b"VALUE 0042 0 4\r\nvvvv\r\nEND\r\n",
            b"VALUE 0042 0 3\r\nvvvv\r\nEND\r\n",
            b"VALUE 0042 0 x\r\nvvv\r\nEND\r\n",
            b"VALUE 0042 x 3\r\nvvv\r\nEND\r\n",
            b"VALUE 0042  3\r\nvvv\r\nEND\r\n",
            b"VALUE  0 3\r\nvvv\r\nEND\r\n",
            b"VALUE 0042 0 99999999999999999999\r\n",
            b"END\n",
            b"ERRORS\r\n",
        ] {
            assert_eq!(get(bad), Decoded::Malformed, "{}", bad.escape_ascii());
        }
        assert_eq!(get(&[b'E'; 1]), Decoded::Partial { at_least: 5 });
        let endless = [&b"ERROR "[..], &[b'x'; MAX_LINE_BYTES]].concat();
        assert_eq!(get(&endless), Decoded::Malformed);
    }

    #[test]
    fn half_an_answer_says_how_much_is_missing() {
        let hit = b"VALUE 0042 0 3\r\nvvv\r\nEND\r\n";
        let look = |n: usize| decode(&ExpectedAnswer::of_42(Operation::Get, 9), &hit[..n]);
        assert_eq!(look(0), Decoded::Partial { at_least: 5 });
        assert_eq!(look(15), Decoded::Partial { at_least: 16 });
        assert_eq!(
            look(16),
            Decoded::Partial {
                at_least: hit.len()
            }
        );
        assert_eq!(
            look(25),
            Decoded::Partial {
                at_least: hit.len()
            }
        );
    }
}
