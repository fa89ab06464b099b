//! HTTP/1.0 and HTTP/1.1: what says how long a message is (RFC 9112, 6 and 7).

use super::hexadecimal;

/// How a version begins, and with it a response.
pub const VERSION: &[u8] = b"HTTP/1.";

/// The field with the length of the body.
pub const CONTENT_LENGTH: &[u8] = b"content-length";

/// The field with the codings of the body.
pub const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

/// What ends the size of a chunk, where its line does not.
pub const CHUNK_SEPARATORS: &[u8] = b"; \t";

/// The minor version as a digit, the status, and what follows it, of the first line of a response.
#[inline]
pub fn status_line(line: &[u8]) -> Option<(u8, u16, &[u8])> {
    let rest = line.strip_prefix(VERSION)?;
    let (&[minor, b' ', hundreds, tens, ones], after) = rest.split_first_chunk()? else {
        return None;
    };
    let digit = |d: u8| d.is_ascii_digit().then(|| u16::from(d - b'0'));
    let status = digit(hundreds)? * 100 + digit(tens)? * 10 + digit(ones)?;
    Some((minor, status, after))
}

/// The value of a field, without the blanks around it, if the field has this name, which is in lower case.
#[inline]
pub fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (this, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    this.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// The elements of a list in a field.
pub fn elements(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether codings end with the chunked one, so that chunks say where the body ends.
pub fn is_chunked(codings: &[u8]) -> bool {
    let last = elements(codings).next_back();
    last.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
}

/// The size of the chunk that this line announces, in bytes; 0: the last one.
pub fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| CHUNK_SEPARATORS.contains(byte));
    hexadecimal(&line[..end.unwrap_or(line.len())])
}

/// Whether a response with this status has a body, to any request but HEAD.
pub const fn has_body(status: u16) -> bool {
    !matches!(status, 100..200 | 204 | 304)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_name() {
        let value = |line: &'static [u8]| value_of(line, CONTENT_LENGTH);
        assert_eq!(value(b"Content-Length:  12 "), Some(&b"12"[..]));
        for other in [&b"Content-Length : 12"[..], b"Content-Lengths: 1", b"x: 1"] {
            assert_eq!(value(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn a_response_begins_with_its_version_and_status() {
        let line = status_line(b"HTTP/1.1 301 Moved");
        assert_eq!(line, Some((b'1', 301, &b" Moved"[..])));
        for other in [
            &b"HTTP/1.1 30"[..],
            b"HTTP/1.1 3x1 ",
            b"HTTP/2 200 OK",
            b"GET / HTTP/1.1",
        ] {
            assert_eq!(status_line(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn only_the_last_coding_ends_a_body() {
        assert!(is_chunked(b"gzip, Chunked"));
        assert!(!is_chunked(b"chunked, gzip") && !is_chunked(b""));
        assert_eq!(chunk_size(b"1f;name=value"), Some(31));
        assert_eq!(chunk_size(b"0 "), Some(0));
        assert_eq!((chunk_size(b";"), chunk_size(b"xyz")), (None, None));
        assert!(has_body(200) && has_body(404));
        assert!(![100, 101, 204, 304].iter().any(|status| has_body(*status)));
    }
}
