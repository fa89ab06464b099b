//! Ethernet frames with one UDP datagram over IPv4, written and read without the kernel.

use std::net::Ipv4Addr;

/// Ethernet, IPv4 without options, UDP.
pub(super) const HEADERS: usize = 14 + 20 + 8;

/// An address of the link layer.
pub(super) type Mac = [u8; 6];

/// Where frames go and come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) from: (Mac, Ipv4Addr),
    pub(super) to: (Mac, Ipv4Addr),
}

/// The UDP ports of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) from: u16,
    pub(super) to: u16,
}

/// Writes a frame and returns its length. `frame` must have room for [`HEADERS`] and the payload.
pub(super) fn write(frame: &mut [u8], ends: &Ends, ports: Ports, payload: &[u8]) -> usize {
    let length = HEADERS + payload.len();
    frame[..6].copy_from_slice(&ends.to.0);
    frame[6..12].copy_from_slice(&ends.from.0);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut frame[14..34];
    ip.copy_from_slice(&[0; 20]);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    // don't fragment
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&ends.from.1.octets());
    ip[16..20].copy_from_slice(&ends.to.1.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&ports.from.to_be_bytes());
    frame[36..38].copy_from_slice(&ports.to.to_be_bytes());
    frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
    // the checksum is optional over IPv4 (RFC 768)
    frame[40..42].copy_from_slice(&[0, 0]);
    frame[HEADERS..length].copy_from_slice(payload);
    length
}

/// The ports and the payload of a frame; `None` for anything else.
pub(super) fn read(frame: &[u8]) -> Option<(Ports, &[u8])> {
    let is_udp = frame.len() >= HEADERS
        && frame[12..14] == [0x08, 0x00]
        && frame[14] == 0x45
        && frame[23] == 17;
    if !is_udp {
        return None;
    }
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    // a short frame may be padded
    let end = 34 + usize::from(word(38));
    let ports = Ports {
        from: word(34),
        to: word(36),
    };
    Some((ports, frame.get(HEADERS..end)?))
}

/// Turns a frame into its own answer. The header's checksum stays the same.
pub(super) fn turn_round(frame: &mut [u8]) {
    let (to, rest) = frame.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
    let (from, to) = frame[26..34].split_at_mut(4);
    from.swap_with_slice(to);
    let (from, to) = frame[34..38].split_at_mut(2);
    from.swap_with_slice(to);
}

/// The checksum of RFC 1071, for a header whose checksum field is zero.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends = Ends {
        from: ([1; 6], Ipv4Addr::new(192, 168, 0, 1)),
        to: ([2; 6], Ipv4Addr::new(192, 168, 0, 199)),
    };

    /// The header of the example that many texts on RFC 1071 use.
    #[test]
    fn the_checksum_is_that_of_a_known_header() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00,
            0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }

    #[test]
    fn what_is_written_is_read_and_turned_round() {
        let mut frame = [0xee; 128];
        let ports = Ports { from: 7, to: 9 };
        let length = write(&mut frame, &ENDS, ports, b"hello, world!!");
        assert_eq!(length, HEADERS + 14);
        assert_eq!(
            read(&frame[..length]),
            Some((ports, &b"hello, world!!"[..]))
        );
        // padded, as Ethernet does
        assert_eq!(read(&frame[..60]), Some((ports, &b"hello, world!!"[..])));
        turn_round(&mut frame[..length]);
        assert_eq!(read(&frame[..length]).unwrap().0.from, 9);
        assert_eq!((&frame[..6], &frame[6..12]), (&[1; 6][..], &[2; 6][..]));
        let (a, b) = ([192, 168, 0, 199], [192, 168, 0, 1]);
        assert_eq!((&frame[26..30], &frame[30..34]), (&a[..], &b[..]));
        let mut again = frame[14..34].to_vec();
        again[10..12].copy_from_slice(&[0, 0]);
        assert_eq!(checksum(&again).to_be_bytes(), frame[24..26]);
        for cut in 0..length {
            assert_eq!(read(&frame[..cut]), None, "{cut}");
        }
    }
}
