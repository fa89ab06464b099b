//! Joins the client's record of each request to the server's stamps.

use std::iter::Peekable;
use std::net::IpAddr;

use taillab_model::{ClientTimes, Monotonic, Nanos, Operation, Peer, Request, SentKey};

use crate::id_map::IdMap;
use crate::matched::{ClientJoin, Matched};
use crate::spans::Spans;
use crate::window::Window;

/// What the client knows about one request that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// The key that it sent.
    pub key: SentKey,
    /// When it was due, sent and answered.
    pub times: ClientTimes,
    /// What it asked for.
    pub operation: Operation,
}

/// The client's records of a measurement, joined to the requests window by window.
pub struct ClientRecords<I: Iterator<Item = ClientRecord>> {
    records: Peekable<I>,
    measure_from: Monotonic,
    /// The latest use of each key up to the T1 of the last request, and whether a request has been joined
    /// to it.
    uses: IdMap<(ClientRecord, bool)>,
    /// The client's address.
    address: Option<IpAddr>,
    join: ClientJoin,
}

impl<I: Iterator<Item = ClientRecord>> ClientRecords<I> {
    /// `records` are all that the client sent, in order of their actual send; both sides read
    /// the same clock. Requests from other addresses than the client's, where that is known, are not its own.
    pub fn new(
        records: impl IntoIterator<IntoIter = I>,
        address: Option<IpAddr>,
        measure_from: Monotonic,
    ) -> Self {
        Self {
            address: address.map(|address| address.to_canonical()),
            records: records.into_iter().peekable(),
            measure_from,
            uses: IdMap::default(),
            join: ClientJoin::default(),
        }
    }

    /// Gives each request of the next window the client's times and operation.
    ///
    /// A key is used many times: a request belongs to its latest use sent by T1, and only if its
    /// response had left by the time the client read it. Counting the uses would go wrong after
    /// the first lost one; this cannot. Requests that no record contains keep `client: None`.
    pub fn join(&mut self, window: &mut Window) {
        let is_last = window.is_last();
        let matched = &mut window.matched;
        for place in 0..matched.keys.len() {
            let (t1, t6) = (matched.requests.t1(place), matched.requests.t6(place));
            while let Some(record) = self.records.next_if(|record| record.times.sent <= t1) {
                self.note(&record);
                self.uses.insert(number_of(record.key), (record, false));
            }
            let key = matched.keys[place];
            let peer = matched.clients.of(key.connection);
            let own = peer.is_some_and(|peer| self.may_be(peer));
            let sent = matched.sent_as(key).filter(|_| own);
            match sent.and_then(|sent| self.uses.get_mut(&number_of(sent))) {
                Some((record, taken))
                    if !*taken && record.times.received.is_none_or(|at| t6 <= at) =>
                {
                    *taken = true;
                    let times = record.times;
                    (matched.requests).set_client(place, Some(times), Some(record.operation));
                    self.join.matched += u64::from(is_answered(&times, self.measure_from));
                }
                _ => self.join.unexplained += 1,
            }
        }
        if is_last {
            while let Some(record) = self.records.next() {
                self.note(&record);
            }
        }
        matched.client = Some(self.join);
    }

    /// Whether the client may be this end of a connection.
    fn may_be(&self, peer: Peer) -> bool {
        let both = peer.address().zip(self.address);
        both.is_none_or(|(address, own)| address == own)
    }

    fn note(&mut self, record: &ClientRecord) {
        self.join.responses += u64::from(is_answered(&record.times, self.measure_from));
    }
}

fn number_of(key: SentKey) -> u32 {
    u32::from(key.port) << 16 | u32::from(key.id)
}

/// It was due in the measurement, and the client received its response.
fn is_answered(times: &ClientTimes, measure_from: Monotonic) -> bool {
    times.received.is_some() && times.intended >= measure_from
}

impl Matched {
    /// For each measured request that was joined and answered: by how much its time from the
    /// actual send to the receipt is longer than its sojourn, in order of T1. Requests for which it is
    /// shorter are left out, and so are those that came in one of the `left_out` stretches.
    pub fn client_minus_server(
        &self,
        measure_from: Monotonic,
        left_out: &Spans,
    ) -> impl Iterator<Item = Nanos> {
        let kept = move |request: &Request| !left_out.contain(request.server.t1);
        self.measured(measure_from)
            .filter(kept)
            .filter_map(|request| {
                let client = request.client?;
                let service = client.received?.checked_since(client.sent)?;
                service.checked_sub(request.server.sojourn()?)
            })
    }
}
