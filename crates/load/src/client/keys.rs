//! The keys that requests carry on the wire: they identify the server's side of a request.

use taillab_model::RequestKey;

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

    /// What the packets of request `k` carry, if it is known.
    pub fn key_of(&self, k: usize) -> Option<RequestKey> {
        match self {
            Self::Counted(ids) => Some(ids.key_of(k)),
            Self::Noted(places) => places.get(k)?.key(),
        }
    }
}

/// A request's connection and key: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    connection: u32,
    /// Port 0 means no key: no connection has it.
    port: u16,
    id: u16,
}

impl Place {
    /// The place of a request that was not sent.
    pub const NOWHERE: Self = Self::new(u32::MAX, None);

    /// The place of a request on this connection.
    #[inline]
    pub const fn new(connection: u32, key: Option<RequestKey>) -> Self {
        let (port, id) = match key {
            Some(key) => (key.port, key.id),
            None => (0, 0),
        };
        Self {
            connection,
            port,
            id,
        }
    }

    /// The connection's number.
    pub fn connection(self) -> Option<usize> {
        (self.connection != u32::MAX).then_some(self.connection as usize)
    }

    /// What its packets carry, without the client's own address.
    pub fn key(self) -> Option<RequestKey> {
        (self.port != 0).then_some(RequestKey {
            address: 0,
            port: self.port,
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
    pub fn key_of(&self, k: usize) -> RequestKey {
        RequestKey {
            address: 0,
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
        let mut places = unsent(2);
        let key = RequestKey {
            address: 0,
            port: 7,
            id: 9,
        };
        note(&mut places, 2, Place::new(4, None));
        note(&mut places, 0, Place::new(3, Some(key)));
        let keys = Keys::Noted(places);
        assert_eq!(
            (keys.connection_of(0), keys.key_of(0)),
            (Some(3), Some(key))
        );
        for k in [1, 2, usize::MAX] {
            assert_eq!((keys.connection_of(k), keys.key_of(k)), (None, None));
        }
    }
}
