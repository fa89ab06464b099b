//! RESP, Redis' protocol: the byte that says what an element is, and the line with its length.

use super::decimal;

/// A line of text.
pub const SIMPLE: u8 = b'+';

/// A line that says what went wrong.
pub const ERROR: u8 = b'-';

/// A string, behind a line with its bytes.
pub const BULK: u8 = b'$';

/// Elements, behind a line with their number.
pub const ARRAY: u8 = b'*';

/// What the line of a [`BULK`] or an [`ARRAY`] says, behind the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// There is none: version 2 writes a null so.
    Null,
    /// Bytes of a string, without its line break, or the number of elements.
    Of(u64),
}

/// Reads such a line; `None` if it has anything else.
#[inline]
pub fn length(text: &[u8]) -> Option<Length> {
    match text {
        b"-1" => Some(Length::Null),
        digits => decimal(digits).map(Length::Of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_number_or_a_null() {
        assert_eq!(length(b"0"), Some(Length::Of(0)));
        assert_eq!(length(b"512"), Some(Length::Of(512)));
        assert_eq!(length(b"-1"), Some(Length::Null));
        for bad in [&b""[..], b"-2", b"+1", b"1 ", b"-"] {
            assert_eq!(length(bad), None, "{}", bad.escape_ascii());
        }
    }
}
