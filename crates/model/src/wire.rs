//! The grammar of protocols that the generator and the matcher both read: lines, words and numbers here, the rest by protocol.
//!
//! What is accepted differs, and is theirs. The generator (`load::protocol`) wants the answer to its own request and
//! nothing else, and has all of it. The matcher (`analysis::matcher::framing`) wants to know where any message of either
//! side ends, of which it may have the beginning only.

pub mod http;
pub mod memcached;
pub mod resp;

/// A decimal number of 1 to 18 digits; `None` if there are other bytes.
#[inline]
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// A hexadecimal number of 1 to 15 digits; `None` if there are other bytes.
#[inline]
pub fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(number << 4 | u64::from(digit))
    })
}

/// Splits at the first space; the rest is empty where there is none.
#[inline]
pub fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

/// The words of a line, between any number of spaces.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(&[b'9'; 18]), Some(999_999_999_999_999_999));
        for bad in [&b""[..], &[b'1'; 19], b"-1", b"+1", b"1 ", b"0x1"] {
            assert_eq!(decimal(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(hexadecimal(b"fF"), Some(255));
        assert_eq!(hexadecimal(&[b'f'; 15]), Some((1 << 60) - 1));
        for bad in [&b""[..], &[b'1'; 16], b"-1", b"g"] {
            assert_eq!(hexadecimal(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn words_are_what_stands_between_spaces() {
        assert_eq!(word(b"get key"), (&b"get"[..], &b"key"[..]));
        assert_eq!(word(b"END"), (&b"END"[..], &b""[..]));
        assert_eq!(words(b" a  b ").collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
