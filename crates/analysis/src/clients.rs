//! Who is at the other end of the connections: what the events say of their numbers.

use std::net::SocketAddr;

use taillab_model::{AddressPart, Announcements, PLACE_BITS, Peer};

use crate::id_map::IdMap;

/// Who is at the other end of the connections of some requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    by_connection: IdMap<Option<Peer>>,
}

impl Clients {
    /// The other end of a connection; `None` if the recording does not say it.
    pub fn of(&self, connection: u32) -> Option<Peer> {
        self.by_connection.get(&connection).copied().flatten()
    }

    /// How many connections there are of which the recording does not say it: what the probe said was lost.
    pub fn unknown(&self) -> usize {
        let peers = self.by_connection.values();
        peers.filter(|peer| peer.is_none()).count()
    }

    /// Keeps what is known of a connection, unless that was done before.
    pub(crate) fn keep(&mut self, connection: u32, announced: &Announced) {
        let peer = self.by_connection.entry(connection).or_default();
        *peer = peer.or_else(|| announced.of(connection));
    }

    /// Keeps what another one knows of a connection.
    pub(crate) fn copy(&mut self, connection: u32, from: &Self) {
        self.by_connection.insert(connection, from.of(connection));
    }
}

/// Whose the numbers of connections are, as it was announced up to now.
///
/// It remembers two clients for each place of the probe's table: one whose place was given away may still have
/// requests.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// Numbers tell hashes and ports, and are not announced.
    hashed: bool,
    parts: Announcements,
    places: IdMap<Holders>,
}

/// The number that was given to a place last, and the one before.
#[derive(Debug)]
struct Holders {
    last: (u32, SocketAddr),
    before: Option<(u32, SocketAddr)>,
}

impl Announced {
    /// Nothing is announced yet. With `hashed`, numbers are those of version 1 of recordings.
    pub(crate) fn new(hashed: bool) -> Self {
        Self {
            hashed,
            ..Self::default()
        }
    }

    /// Takes a part of an announcement; returns whether it is complete.
    pub(crate) fn take(&mut self, connection: u32, part: AddressPart) -> bool {
        let Some(address) = self.parts.take(connection, part) else {
            return false;
        };
        let last = (connection, address);
        let place = self.places.entry(connection % (1 << PLACE_BITS));
        place
            .and_modify(|place| {
                let before = std::mem::replace(&mut place.last, last);
                place.before = Some(before).filter(|(other, _)| *other != connection);
            })
            .or_insert(Holders { last, before: None });
        true
    }

    /// The client's port of a connection; 0 if it is not known.
    pub(crate) fn port_of(&self, connection: u32) -> u16 {
        self.of(connection).map_or(0, Peer::port)
    }

    /// The other end of a connection.
    pub(crate) fn of(&self, connection: u32) -> Option<Peer> {
        let announced = self.places.get(&(connection % (1 << PLACE_BITS)));
        let announced = announced.and_then(|place| {
            let mut both = [Some(place.last), place.before].into_iter().flatten();
            both.find(|(number, _)| *number == connection)
        });
        match announced {
            Some((_, address)) => Some(Peer::At(address)),
            None => self.hashed.then(|| Peer::of_hashed(connection)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announce(announced: &mut Announced, connection: u32, address: &str) {
        let parts = AddressPart::of(address.parse().unwrap());
        let last = parts.len() - 1;
        for (n, part) in parts.into_iter().enumerate() {
            assert_eq!(announced.take(connection, part), n == last);
        }
    }

    #[test]
    fn a_place_that_was_given_away_is_known_for_a_while() {
        let mut announced = Announced::default();
        let number = |generation: u32| generation << PLACE_BITS | 7;
        let mut kept = Clients::default();
        for generation in 0..3 {
            let address = format!("[2001:db8::{generation}]:80");
            announce(&mut announced, number(generation), &address);
            kept.keep(number(generation), &announced);
        }
        let at = |generation: u32| {
            let address = format!("[2001:db8::{generation}]:80");
            Some(Peer::At(address.parse().unwrap()))
        };
        assert_eq!(announced.of(number(0)), None);
        assert_eq!(announced.of(number(1)), at(1));
        assert_eq!(announced.of(number(2)), at(2));
        assert_eq!(kept.of(number(0)), at(0));
        // the neighbour
        assert_eq!(announced.of(number(2) + 1), None);
        kept.keep(8, &announced);
        assert_eq!((kept.of(8), kept.unknown()), (None, 1));
        announce(&mut announced, 8, "10.0.0.1:9");
        kept.keep(8, &announced);
        assert_eq!(kept.unknown(), 0);
    }

    #[test]
    fn numbers_of_version_1_tell_hash_and_port() {
        let announced = Announced::new(true);
        let (address, port) = (0x12, 40_000);
        let peer = announced.of(0x12_9c40);
        assert_eq!(peer, Some(Peer::Hashed { address, port }));
        assert_eq!(Announced::new(false).of(0x12_9c40), None);
    }

    #[test]
    fn the_memory_of_announcements_is_bounded() {
        let mut announced = Announced::default();
        for number in 0..1 << 20 {
            announced.take(number, AddressPart::V6((number % 3) as u8, [1; 6]));
            let address = "10.0.0.1:9".parse().unwrap();
            announced.take(number, AddressPart::V4(address));
        }
        assert!(announced.places.len() <= 1 << PLACE_BITS);
    }
}
