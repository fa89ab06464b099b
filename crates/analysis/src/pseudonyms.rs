//! Replaces the addresses of clients in a recording. What it says of them is which requests have one address in common.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use taillab_model::{AddressPart, Announcements, EventKind, PackedEvent};

/// The addresses that stand for others: 240.0.0.0/4, which no host has (RFC 1112, section 4).
const FIRST: u32 = 0xf000_0000;

/// Replaces addresses, with a key that nobody has after the recording.
#[derive(Debug, Default)]
pub struct Pseudonyms {
    key: RandomState,
    announcements: Announcements,
}

impl Pseudonyms {
    /// Whether there is an address to replace.
    pub fn have_work(events: &[PackedEvent]) -> bool {
        events.iter().any(PackedEvent::is_announcement)
    }

    /// Replaces the addresses in events of one CPU, in the order in which they were recorded.
    pub fn replace(&mut self, events: &mut [PackedEvent]) {
        let announced = |event: &&mut PackedEvent| event.is_announcement();
        for event in events.iter_mut().filter(announced) {
            if let EventKind::Announced { connection, part } = event.kind() {
                let part = self.instead(connection, part);
                let kind = EventKind::Announced { connection, part };
                *event = PackedEvent::new(event.since_base(), kind);
            }
        }
    }

    /// What is announced instead: all at once when the last part is known, and nothing before.
    fn instead(&mut self, connection: u32, part: AddressPart) -> AddressPart {
        match (self.announcements.take(connection, part), part) {
            (Some(client), _) => {
                AddressPart::V4(SocketAddrV4::new(self.of(client.ip()), client.port()))
            }
            (None, AddressPart::V6(part, _)) => AddressPart::V6(part, [0; 6]),
            // it is complete
            (None, AddressPart::V4(_)) => AddressPart::V6(0, [0; 6]),
        }
    }

    /// The address that stands for this one: which one differs from recording to recording.
    fn of(&self, address: IpAddr) -> Ipv4Addr {
        let hash = self.key.hash_one(address.to_canonical()) as u32;
        Ipv4Addr::from_bits(FIRST | hash >> 4)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use taillab_model::Nanos;

    use super::*;

    /// The addresses that are announced in place of these, by one recording.
    fn replaced(addresses: &[&str]) -> Vec<SocketAddr> {
        let mut pseudonyms = Pseudonyms::default();
        let mut announcements = Announcements::default();
        let mut found = Vec::new();
        for (connection, address) in (0..).zip(addresses) {
            let address: SocketAddr = address.parse().unwrap();
            for part in AddressPart::of(address) {
                let kind = EventKind::Announced { connection, part };
                let mut events = [
                    PackedEvent::new(Nanos::new(1), EventKind::WriteCalled { tid: 7 }),
                    PackedEvent::new(Nanos::new(2), kind),
                ];
                assert!(Pseudonyms::have_work(&events));
                pseudonyms.replace(&mut events);
                assert_eq!(events[0].kind(), EventKind::WriteCalled { tid: 7 });
                assert_eq!(events[1].since_base(), Nanos::new(2));
                let EventKind::Announced { connection, part } = events[1].kind() else {
                    panic!("another event");
                };
                found.extend(announcements.take(connection, part));
            }
        }
        assert_eq!(found.len(), addresses.len());
        found
    }

    #[test]
    fn no_address_is_left_and_equal_ones_stay_equal() {
        let clients = [
            "10.1.2.3:4000",
            "10.1.2.4:4000",
            "[2001:db8::7]:4001",
            "10.1.2.3:4002",
            "[2001:db8::7]:4003",
            "[::ffff:10.1.2.4]:9",
        ];
        let found = replaced(&clients);
        let ports: Vec<u16> = found.iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [4000, 4000, 4001, 4002, 4003, 9]);
        let of = |n: usize| found[n].ip();
        assert_eq!((of(0), of(1), of(2)), (of(3), of(5), of(4)));
        assert_ne!(of(0), of(1));
        for address in &found {
            let IpAddr::V4(v4) = address.ip() else {
                panic!("{address}");
            };
            assert_eq!(v4.octets()[0] & 0xf0, 240, "{address}");
        }
        // another recording has another key
        assert_ne!(replaced(&clients), found);
    }

    #[test]
    fn other_events_are_left_alone() {
        let event = PackedEvent::new(Nanos::new(2), EventKind::WriteCalled { tid: 1 });
        assert!(!Pseudonyms::have_work(&[event]));
    }
}
