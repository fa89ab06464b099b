//! memcached's binary protocol: the header of each message (`doc/protocol-binary.txt` of memcached).

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// The first byte of a request.
pub const REQUEST: u8 = 0x80;

/// The first byte of a response.
pub const RESPONSE: u8 = 0x81;

/// Where the opaque is, four bytes which a response has from its request.
pub const OPAQUE_AT: usize = 12;

/// The header of a message; numbers are big endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryHeader {
    /// [`REQUEST`] or [`RESPONSE`].
    pub magic: u8,
    /// The command.
    pub opcode: u8,
    /// Bytes of the key, in the body.
    pub key_bytes: u16,
    /// Bytes of what precedes the key in the body.
    pub extras_bytes: u8,
    /// Of a response: 0 or why there is none.
    pub status: u16,
    /// Bytes that follow the header.
    pub body_bytes: u32,
    /// What the request's sender has chosen.
    pub opaque: [u8; 4],
}

impl BinaryHeader {
    /// The header in these bytes.
    #[inline]
    pub const fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [
            magic,
            opcode,
            key_high,
            key_low,
            extras_bytes,
            _,
            status_high,
            status_low,
            b0,
            b1,
            b2,
            b3,
            o0,
            o1,
            o2,
            o3,
            ..,
        ] = *bytes;
        Self {
            magic,
            opcode,
            key_bytes: u16::from_be_bytes([key_high, key_low]),
            extras_bytes,
            status: u16::from_be_bytes([status_high, status_low]),
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: [o0, o1, o2, o3],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_its_place() {
        let mut bytes = [0; HEADER_BYTES];
        for (place, byte) in (0..).zip(&mut bytes) {
            *byte = place;
        }
        let header = BinaryHeader::read(&bytes);
        assert_eq!(
            (header.magic, header.opcode, header.extras_bytes),
            (0, 1, 4)
        );
        assert_eq!((header.key_bytes, header.status), (0x0203, 0x0607));
        assert_eq!(header.body_bytes, 0x0809_0a0b);
        assert_eq!(header.opaque, bytes[OPAQUE_AT..OPAQUE_AT + 4]);
    }
}
