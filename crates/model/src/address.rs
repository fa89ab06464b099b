//! Addresses of clients in events, which hold 48 bits of one each.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The most announcements that are begun and not complete. Their parts follow each other, except where an interrupt
/// announces another connection in between.
const MOST_BEGUN: usize = 64;

/// Parts of an address of IPv6.
const PARTS: usize = 3;

/// What one event says of a client's address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPart {
    /// All of them.
    V4(SocketAddrV4),
    /// A third of the 18 bytes of port and address, in network order: this one (0 to 2), and its bytes.
    V6(u8, [u8; 6]),
}

impl AddressPart {
    /// The parts of an address, in the order in which they are announced.
    pub fn of(address: SocketAddr) -> Vec<Self> {
        match address {
            SocketAddr::V4(address) => vec![Self::V4(address)],
            SocketAddr::V6(address) => {
                let mut all = [0; 6 * PARTS];
                all[..2].copy_from_slice(&address.port().to_be_bytes());
                all[2..].copy_from_slice(&address.ip().octets());
                let (parts, _) = all.as_chunks::<6>();
                (0..)
                    .zip(parts)
                    .map(|(n, part)| Self::V6(n, *part))
                    .collect()
            }
        }
    }

    /// The 48 bits of an event: of IPv4 port << 32 | address, else the bytes, the first one highest.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Self::V4(address) => {
                u64::from(address.port()) << 32 | u64::from(address.ip().to_bits())
            }
            Self::V6(_, [a, b, c, d, e, f]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        }
    }

    /// The address of IPv4 with these bits.
    pub(crate) const fn v4(bits: u64) -> Self {
        let address = Ipv4Addr::from_bits(bits as u32);
        Self::V4(SocketAddrV4::new(address, (bits >> 32) as u16))
    }

    /// This part of an address of IPv6, with these bits.
    pub(crate) const fn v6(part: u8, bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self::V6(part, [a, b, c, d, e, f])
    }
}

/// Puts the parts of announcements together.
#[derive(Clone, Debug, Default)]
pub struct Announcements {
    begun: VecDeque<(u32, [Option<[u8; 6]>; PARTS])>,
}

impl Announcements {
    /// Takes a part of the announcement of a connection. Returns the address if it is complete.
    pub fn take(&mut self, connection: u32, part: AddressPart) -> Option<SocketAddr> {
        let (part, bytes) = match part {
            AddressPart::V4(address) => return Some(SocketAddr::V4(address)),
            AddressPart::V6(part, bytes) => (usize::from(part), bytes),
        };
        let place = self
            .begun
            .iter()
            .position(|(other, _)| *other == connection);
        let place = place.unwrap_or_else(|| {
            if self.begun.len() >= MOST_BEGUN {
                self.begun.pop_front();
            }
            self.begun.push_back((connection, [None; PARTS]));
            self.begun.len() - 1
        });
        let (_, parts) = self.begun.get_mut(place)?;
        *parts.get_mut(part)? = Some(bytes);
        let mut all = [0; 6 * PARTS];
        for (bytes, part) in all.as_chunks_mut::<6>().0.iter_mut().zip(parts) {
            *bytes = (*part)?;
        }
        self.begun.remove(place);
        let [a, b, address @ ..] = all;
        let port = u16::from_be_bytes([a, b]);
        Some(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_comes_back_from_its_parts(address: [u8; 16], port: u16, is_v4: bool, other: [u8; 6]) {
            let [a, b, c, d, ..] = address;
            let address = match is_v4 {
                true => SocketAddr::from(([a, b, c, d], port)),
                false => SocketAddr::from((address, port)),
            };
            let mut announcements = Announcements::default();
            let parts = AddressPart::of(address);
            let last = parts.len() - 1;
            for (n, part) in parts.into_iter().enumerate() {
                // of another connection, in between
                prop_assert_eq!(announcements.take(8, AddressPart::V6(n as u8, other)).is_some(), n == 2);
                let found = announcements.take(7, part);
                prop_assert_eq!(found, (n == last).then_some(address));
            }
        }
    }

    #[test]
    fn announcements_that_never_end_take_no_memory() {
        let mut announcements = Announcements::default();
        for connection in 0..1_000 {
            assert_eq!(
                announcements.take(connection, AddressPart::V6(1, [7; 6])),
                None
            );
            assert_eq!(
                announcements.take(connection, AddressPart::V6(9, [7; 6])),
                None
            );
        }
        assert!(announcements.begun.len() <= MOST_BEGUN);
    }
}
