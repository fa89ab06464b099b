//! Joins the client's record of each request to the server's stamps.

use taillab_model::{ClientTimes, Monotonic, Nanos, Operation, RequestKey};

use crate::matched::Matched;
use crate::matcher::{IdMap, packed};

/// What the client knows of one request that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// The key that it sent.
    pub key: RequestKey,
    /// When it was due, sent and answered.
    pub times: ClientTimes,
    /// What it asked for.
    pub operation: Operation,
}

/// How the client's records and the matched requests joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientJoin {
    /// Responses that the client received to requests due in the measurement.
    pub responses: u64,
    /// Of these, with T1 and T6: the probe's coverage, counted without the probe.
    pub matched: u64,
    /// Matched requests that no record of the client explains; above zero, something
    /// else sends requests, or records are missing.
    pub unexplained: u64,
}

/// A use of a key that no request has been joined to yet.
struct Use {
    times: ClientTimes,
    operation: Operation,
    taken: bool,
}

impl Matched {
    /// Gives each request the client's times and operation.
    ///
    /// `records` are all that the client sent, in order of their actual send; both sides
    /// read the same clock. A key is used many times: a request belongs to its latest
    /// use sent by T1, and only if its response had left by the time the client read
    /// it. Counting the uses would go wrong after the first lost one; this cannot.
    /// Requests that no record contains keep `client: None`.
    pub fn join_client(
        &mut self,
        records: impl IntoIterator<Item = ClientRecord>,
        measure_from: Monotonic,
    ) -> ClientJoin {
        let mut records = records.into_iter().peekable();
        let mut uses: IdMap<Use, u64> = IdMap::default();
        let mut join = ClientJoin::default();
        let answered =
            |times: &ClientTimes| times.received.is_some() && times.intended >= measure_from;
        let note = |record: &ClientRecord, join: &mut ClientJoin| {
            join.responses += u64::from(answered(&record.times));
        };
        for (place, key) in self.keys.iter().enumerate() {
            let (t1, t6) = (self.requests.t1(place), self.requests.t6(place));
            while let Some(record) = records.next_if(|record| record.times.sent <= t1) {
                note(&record, &mut join);
                let sent = Use {
                    times: record.times,
                    operation: record.operation,
                    taken: false,
                };
                uses.insert(packed(record.key), sent);
            }
            let contains = |sent: &Use| sent.times.received.is_none_or(|at| t6 <= at);
            match uses.get_mut(&packed(*key)) {
                Some(sent) if !sent.taken && contains(sent) => {
                    sent.taken = true;
                    let operation = Some(sent.operation);
                    self.requests.set_client(place, Some(sent.times), operation);
                    join.matched += u64::from(answered(&sent.times));
                }
                _ => join.unexplained += 1,
            }
        }
        for record in records {
            note(&record, &mut join);
        }
        self.client = Some(join);
        join
    }

    /// Of each measured request that was joined and answered: by how much its time from the
    /// actual send to the receipt is longer than its sojourn, in order of T1.
    pub fn client_minus_server(&self, measure_from: Monotonic) -> impl Iterator<Item = Nanos> {
        self.measured(measure_from).filter_map(|request| {
            let client = request.client?;
            let service = client.received?.checked_since(client.sent)?;
            service.checked_sub(request.server.sojourn()?)
        })
    }
}
