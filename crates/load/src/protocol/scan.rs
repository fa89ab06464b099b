//! What the text protocols share: lines and decimal numbers, both of bounded size.
//!
//! Every look is stable: what was found in some bytes is found in them and any more.

/// A line that ends with CR LF, as all these protocols have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Complete.
    Whole {
        /// Without its end.
        text: &'a [u8],
        /// Where the next line begins.
        end: usize,
    },
    /// Its end has not come yet.
    Open,
    /// Longer than allowed, or its line feed has no carriage return before it.
    Bad,
}

/// The line that begins at `from`, which is not beyond `bytes`, and has at most `max`
/// bytes, its end included.
#[inline]
pub(super) fn line(bytes: &[u8], from: usize, max: usize) -> Line<'_> {
    let rest = &bytes[from..];
    let window = &rest[..rest.len().min(max)];
    match memchr::memchr(b'\n', window) {
        Some(at) => match window[..at].split_last() {
            Some((b'\r', text)) => Line::Whole {
                text,
                end: from + at + 1,
            },
            _ => Line::Bad,
        },
        None if rest.len() >= max => Line::Bad,
        None => Line::Open,
    }
}

/// A decimal number of one to nine digits, so below 10^9: no answer that is larger is
/// taken.
#[inline]
pub(super) fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |n, &d| match d {
        b'0'..=b'9' => Some(n * 10 + usize::from(d - b'0')),
        _ => None,
    })
}

/// A hexadecimal number of one to `max_digits` digits, at most 8.
#[inline]
pub(super) fn hexadecimal(digits: &[u8], max_digits: usize) -> Option<u32> {
    if digits.is_empty() || digits.len() > max_digits.min(8) {
        return None;
    }
    digits.iter().try_fold(0, |n, &d| {
        let digit = char::from(d).to_digit(16)?;
        Some(n << 4 | digit)
    })
}

/// Whether more bytes could make one of `words` the beginning of `bytes`: garbage is
/// seen by its first bytes, and nobody waits for the end of a line that never comes.
pub(super) fn could_begin(bytes: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| {
        let common = bytes.len().min(word.len());
        bytes[..common] == word[..common]
    })
}

/// Splits at the first space; the rest is empty where there is none.
#[inline]
pub(super) fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_both_characters_and_in_time() {
        let whole = |text, end| Line::Whole { text, end };
        assert_eq!(line(b"ab\r\ncd", 0, 10), whole(b"ab", 4));
        assert_eq!(line(b"ab\r\ncd\r\n", 4, 10), whole(b"cd", 8));
        assert_eq!(line(b"\r\n", 0, 2), whole(b"", 2));
        assert_eq!(line(b"ab\r", 0, 10), Line::Open);
        assert_eq!(line(b"", 0, 10), Line::Open);
        assert_eq!(line(b"ab\n", 0, 10), Line::Bad);
        assert_eq!(line(b"\n", 0, 10), Line::Bad);
        assert_eq!(line(b"abcd\r\n", 0, 5), Line::Bad);
        assert_eq!(line(b"abcde", 0, 5), Line::Bad);
        assert_eq!(line(b"abcd", 0, 5), Line::Open);
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"999999999"), Some(999_999_999));
        for bad in [&b""[..], b"1000000000", b"-1", b"+1", b"1 ", b"0x1"] {
            assert_eq!(decimal(bad), None);
        }
        assert_eq!(hexadecimal(b"fF", 8), Some(255));
        assert_eq!(hexadecimal(b"ffffffff", 8), Some(u32::MAX));
        for bad in [&b""[..], b"100000000", b"-1", b"g"] {
            assert_eq!(hexadecimal(bad, 8), None);
        }
    }
}
