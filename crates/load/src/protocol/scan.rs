//! What the text protocols share: lines, values and sizes, all bounded. What the matcher knows too is in
//! [`taillab_model::wire`].
//!
//! A decision is final: more bytes never change it.

use taillab_model::Outcome;
use taillab_model::wire::decimal;

use super::Decoded;

/// The line that begins at `from`, which is at most the length of `bytes`: its text without the
/// CR LF, and where the next line begins.
///
/// # Errors
/// [`Decoded::Partial`] until the line ends; the whole answer has at least `shortest` bytes.
/// [`Decoded::Malformed`] when the line has more than `max` bytes, its end included, or ends
/// with LF alone.
#[inline]
pub(super) fn line(
    bytes: &[u8],
    from: usize,
    max: usize,
    shortest: usize,
) -> Result<(&[u8], usize), Decoded> {
    let rest = &bytes[from..];
    let window = &rest[..rest.len().min(max)];
    match memchr::memchr(b'\n', window) {
        Some(at) => match window[..at].split_last() {
            Some((b'\r', text)) => Ok((text, from + at + 1)),
            _ => Err(Decoded::Malformed),
        },
        None if rest.len() >= max => Err(Decoded::Malformed),
        None => Err(Decoded::Partial {
            at_least: shortest.max(bytes.len() + 1),
        }),
    }
}

/// A hit whose value ends at `data_end` and is followed by `trailer`.
#[inline]
pub(super) fn value(bytes: &[u8], data_end: usize, trailer: &[u8]) -> Decoded {
    let wanted = data_end + trailer.len();
    if bytes.len() < wanted {
        Decoded::Partial { at_least: wanted }
    } else if &bytes[data_end..wanted] == trailer {
        Decoded::Answer {
            bytes: wanted,
            outcome: Outcome::Hit,
        }
    } else {
        Decoded::Malformed
    }
}

/// A number of bytes of one to nine digits: larger answers are not accepted.
#[inline]
pub(super) fn size(digits: &[u8]) -> Option<usize> {
    let size = decimal(digits).filter(|_| digits.len() <= 9)?;
    usize::try_from(size).ok()
}

/// Whether `bytes`, perhaps with more bytes to come, begin with one of `words`. Garbage is
/// recognised by its first bytes, so that nobody waits for a line end that never comes.
pub(super) fn could_begin(bytes: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| {
        let common = bytes.len().min(word.len());
        bytes[..common] == word[..common]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_both_characters_and_in_time() {
        let line = |bytes: &'static [u8], from, max| line(bytes, from, max, 3);
        let open = |at_least| Err(Decoded::Partial { at_least });
        let bad = Err(Decoded::Malformed);
        assert_eq!(line(b"ab\r\ncd", 0, 10), Ok((&b"ab"[..], 4)));
        assert_eq!(line(b"ab\r\ncd\r\n", 4, 10), Ok((&b"cd"[..], 8)));
        assert_eq!(line(b"\r\n", 0, 2), Ok((&b""[..], 2)));
        assert_eq!(line(b"ab\r", 0, 10), open(4));
        assert_eq!(line(b"", 0, 10), open(3));
        assert_eq!(line(b"ab\n", 0, 10), bad);
        assert_eq!(line(b"\n", 0, 10), bad);
        assert_eq!(line(b"abcd\r\n", 0, 5), bad);
        assert_eq!(line(b"abcde", 0, 5), bad);
        assert_eq!(line(b"abcd", 0, 5), open(5));
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(size(b"0"), Some(0));
        assert_eq!(size(b"999999999"), Some(999_999_999));
        for bad in [&b""[..], b"1000000000", b"-1", b"1 "] {
            assert_eq!(size(bad), None);
        }
    }
}
