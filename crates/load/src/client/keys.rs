//! The keys that requests carry on the wire: they identify the server's side of a request.

use taillab_model::SentKey;

use super::Draw;

/// Different ids.
const IDS: usize = 1 << 16;

/// Which connection and key request number k had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Follow from the request's number: datagrams.
    Counted(Ids),
    /// Noted for each of the first requests: streams.
    Noted(Vec<Place>),
}

impl Keys {
    /// No request has a key.
    pub(crate) fn none() -> Self {
        Self::Noted(Vec::new())
    }

    /// The connection of request `k`; `None` on streams if it was not noted or not sent.
    pub fn connection_of(&self, k: usize) -> Option<usize> {
        match self {
            Self::Counted(ids) => Some(ids.connection_of(k)),
            Self::Noted(places) => places.get(k)?.connection(),
        }
    }

    /// The client's port of request `k`; `None` over Unix sockets, and on streams if it was not noted or not sent.
    pub fn port_of(&self, k: usize) -> Option<u16> {
        match self {
            Self::Counted(ids) => Some(ids.key_of(k).port),
            Self::Noted(places) => places.get(k)?.port(),
        }
    }

    /// What the packets of request `k` carry, if it is known.
    pub fn key_of(&self, k: usize) -> Option<SentKey> {
        match self {
            Self::Counted(ids) => Some(ids.key_of(k)),
            Self::Noted(places) => places.get(k)?.key(),
        }
    }
}

/// A request's connection and key: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// With [`WITHOUT_ID`] where the id is not known.
    connection: u32,
    /// 0 where there is none: no connection has it.
    port: u16,
    id: u16,
}

/// A bit of a place's connection: there are never that many.
const WITHOUT_ID: u32 = 1 << 31;

impl Place {
    /// The place of a request that was not sent.
    pub const NOWHERE: Self = Self::new(u32::MAX, None, None);

    /// The place of a request on this connection, with the client's port and the request's id as far as they are known.
    #[inline]
    pub const fn new(connection: u32, port: Option<u16>, id: Option<u16>) -> Self {
        let port = match port {
            Some(port) => port,
            None => 0,
        };
        match id {
            Some(id) => Self {
                connection,
                port,
                id,
            },
            None => Self {
                connection: connection | WITHOUT_ID,
                port,
                id: 0,
            },
        }
    }

    /// The connection's number.
    pub fn connection(self) -> Option<usize> {
        (self.connection != u32::MAX).then_some((self.connection & !WITHOUT_ID) as usize)
    }

    /// The client's port.
    pub fn port(self) -> Option<u16> {
        (self.port != 0).then_some(self.port)
    }

    /// What its packets carry.
    pub fn key(self) -> Option<SentKey> {
        let is_known = self.connection & WITHOUT_ID == 0;
        Some(SentKey {
            port: self.port().filter(|_| is_known)?,
            id: self.id,
        })
    }
}

/// The places of this many requests, none of which is sent yet.
pub(super) fn unsent(requests: usize) -> Vec<Place> {
    vec![Place::NOWHERE; requests]
}

/// Notes the place of request `k`; beyond those that were asked for it is dropped.
#[inline]
pub(super) fn note(places: &mut [Place], k: usize, place: Place) {
    if let Some(noted) = places.get_mut(k) {
        *noted = place;
    }
}

/// The ids of requests: which connection and which 16-bit id request number k has.
///
/// If requests use the connections in turn, the ids of each connection count up, and an id comes back after
/// 65,536 × connections requests. If they draw their connections, the ids of all requests count up: an id comes
/// back after 65,536 requests, but then seldom on the same connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    pub(super) ports: Vec<u16>,
    pub(super) first_id: u16,
    /// `None`: the connections are used in turn.
    pub(super) draw: Option<Draw>,
}

impl Ids {
    /// Connections with these ports of the client; ids from 0.
    pub(crate) fn new(ports: Vec<u16>) -> Self {
        Self {
            ports,
            first_id: 0,
            draw: None,
        }
    }

    /// The connection that request `k` takes.
    #[inline]
    pub fn connection_of(&self, k: usize) -> usize {
        match self.draw {
            None => k % self.ports.len(),
            Some(draw) => draw.of(k),
        }
    }

    /// What the packets of request `k` carry.
    #[inline]
    pub fn key_of(&self, k: usize) -> SentKey {
        SentKey {
            port: self.ports[self.connection_of(k)],
            id: self.id_of(k),
        }
    }

    /// The id of request `k`.
    #[inline]
    pub(super) fn id_of(&self, k: usize) -> u16 {
        self.first_id.wrapping_add(self.counted(k) as u16)
    }

    /// How far the ids have counted up at request `k`.
    #[inline]
    pub(super) fn counted(&self, k: usize) -> usize {
        match self.draw {
            None => k / self.ports.len(),
            Some(_) => k,
        }
    }

    /// How many requests later the same key may come again.
    pub fn period(&self) -> usize {
        match self.draw {
            None => self.ports.len() << 16,
            Some(_) => IDS,
        }
    }

    /// The latest of the first `sent` requests that has this id on this connection.
    #[inline]
    pub(super) fn latest(&self, connection: usize, id: u16, sent: usize) -> Option<usize> {
        let wanted = id.wrapping_sub(self.first_id);
        if let Some(draw) = self.draw {
            let last = sent.checked_sub(1)?;
            let back = (last as u16).wrapping_sub(wanted);
            let mut k = last.checked_sub(usize::from(back))?;
            while draw.of(k) != connection {
                k = k.checked_sub(IDS)?;
            }
            return Some(k);
        }
        let n = self.ports.len();
        // requests sent on this connection, and the last of them
        let last = ((sent + n - 1 - connection) / n).checked_sub(1)?;
        let back = (last as u16).wrapping_sub(wanted);
        Some(last.checked_sub(usize::from(back))? * n + connection)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The latest request with an id is found across any number of wraps.
        #[test]
        fn an_id_leads_back_to_its_latest_request(
            connections in 1_usize..20,
            first_id: u16,
            sent in 1_usize..1_000_000,
            back in 0_usize..100_000,
            drawn: bool,
        ) {
            let ports: Vec<u16> = (0..connections as u16).collect();
            let draw = drawn.then(|| Draw::new(9, connections));
            let ids = Ids { ports, first_id, draw };
            let k = sent.saturating_sub(1 + back);
            let found = ids.latest(ids.connection_of(k), ids.key_of(k).id, sent).unwrap();
            prop_assert!(found < sent && found >= k);
            prop_assert_eq!(ids.key_of(found), ids.key_of(k));
            prop_assert!(drawn || found + ids.period() >= sent);
        }

        #[test]
        fn keys_differ_within_a_period(connections in 1_usize..5, first_id: u16, at: u32) {
            let ports = (7..7 + connections as u16).collect();
            let ids = Ids { ports, first_id, draw: None };
            let at = at as usize;
            prop_assert_eq!(ids.key_of(at), ids.key_of(at + ids.period()));
            prop_assert_ne!(ids.key_of(at), ids.key_of(at + 1 + at % (ids.period() - 1)));
        }
    }

    #[test]
    fn an_id_that_was_not_used_yet_leads_nowhere() {
        let ids = Ids {
            ports: vec![1, 2],
            first_id: 10,
            draw: None,
        };
        assert_eq!(ids.latest(0, 10, 0), None);
        assert_eq!(ids.latest(0, 10, 1), Some(0));
        assert_eq!(ids.latest(1, 10, 1), None);
        assert_eq!(ids.latest(1, 10, 2), Some(1));
        assert_eq!(ids.latest(0, 11, 2), None);
        assert_eq!(ids.latest(0, 9, 2), None);
    }

    #[test]
    fn places_take_8_bytes_and_are_noted_in_any_order() {
        assert_eq!(size_of::<Place>(), 8);
        let mut places = unsent(4);
        let key = SentKey { port: 7, id: 9 };
        note(&mut places, 4, Place::new(4, None, None));
        note(&mut places, 0, Place::new(3, Some(7), Some(9)));
        // without the right to ask for sequence numbers, and over a Unix socket
        note(&mut places, 2, Place::new(5, Some(8), None));
        note(&mut places, 3, Place::new(6, None, None));
        let keys = Keys::Noted(places);
        let all = |k| (keys.connection_of(k), keys.port_of(k), keys.key_of(k));
        assert_eq!(all(0), (Some(3), Some(7), Some(key)));
        assert_eq!(all(2), (Some(5), Some(8), None));
        assert_eq!(all(3), (Some(6), None, None));
        for k in [1, 4, usize::MAX] {
            assert_eq!(all(k), (None, None, None));
        }
    }
}
