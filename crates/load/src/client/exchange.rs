//! What the clients over streams share: their requests by number, how these are written, and what answers say.

use taillab_model::{Operation, Outcome};

use super::keys::{note, unsent};
use super::pending::Request;
use super::{Keys, Place, ReceiveOutcome};
use crate::protocol::{Decoded, Planned, Planner, StreamProtocol};
use crate::transport::stream::Origin;
use crate::wrong_answer::WrongAnswer;

/// A larger answer counts as malformed: it would need too much memory.
pub(super) const LARGEST_ANSWER: usize = 1 << 30;

/// The requests and answers of a client.
///
/// A request's number is unique among all counts, so that an answer to one of an earlier count is not taken for one of
/// this count.
pub(super) struct Exchange {
    protocol: Box<dyn StreamProtocol>,
    /// The bytes of the last request.
    bytes: Vec<u8>,
    /// Requests of earlier counts.
    base: u64,
    sent: usize,
    places: Vec<Place>,
    wrong: Option<WrongAnswer>,
}

impl Exchange {
    pub(super) fn new(protocol: Box<dyn StreamProtocol>) -> Self {
        Self {
            protocol,
            bytes: Vec::with_capacity(64 << 10),
            base: 0,
            sent: 0,
            places: Vec::new(),
            wrong: None,
        }
    }

    pub(super) fn planner(&self) -> &dyn Planner {
        &*self.protocol
    }

    pub(super) fn wrong_answer(&self) -> Option<&WrongAnswer> {
        self.wrong.as_ref()
    }

    /// A new count, of whose requests the first ones have their places noted.
    pub(super) fn begin(&mut self, requests: usize) {
        self.base += self.sent as u64;
        self.sent = 0;
        self.places = unsent(requests);
    }

    pub(super) fn keys(&mut self) -> Keys {
        Keys::Noted(std::mem::take(&mut self.places))
    }

    /// The next request, and its number in this count.
    #[inline]
    pub(super) fn next(&mut self, what: Planned) -> (usize, Request) {
        let k = self.sent;
        self.sent += 1;
        let number = self.base + k as u64;
        (k, Request { number, what })
    }

    /// A request's number in this count; `None` for a request of an earlier count.
    #[inline]
    pub(super) fn number_in_count(&self, request: Request) -> Option<usize> {
        request.number.checked_sub(self.base).map(|k| k as usize)
    }

    /// A request's number in this count, if it still waits for its answer.
    #[inline]
    pub(super) fn outstanding(
        &self,
        request: Request,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> Option<usize> {
        self.number_in_count(request)
            .filter(|&k| outstanding(k).is_some())
    }

    /// The bytes of a request.
    #[inline]
    pub(super) fn write(&mut self, request: Request) -> &[u8] {
        self.bytes.clear();
        self.protocol
            .encode(request.what, request.number as u32, &mut self.bytes);
        &self.bytes
    }

    /// Notes that the request that was just written went on this connection; what follows on it begins after that.
    #[inline]
    pub(super) fn went(
        &mut self,
        request: Request,
        connection: usize,
        origin: &mut Option<Origin>,
    ) {
        let length = self.bytes.len() as u32;
        let after = origin.as_mut().and_then(|origin| {
            let sequence = origin.sequence.as_mut()?;
            *sequence = sequence.wrapping_add(length);
            Some(*sequence as u16)
        });
        let port = origin.map(|origin| origin.port);
        if let Some(k) = self.number_in_count(request) {
            let place = Place::new(connection as u32, port, after);
            note(&mut self.places, k, place);
        }
    }

    /// Reads the answer to a request; the first wrong one is kept.
    #[inline]
    pub(super) fn read(&mut self, request: Request, bytes: &[u8]) -> Decoded {
        let decoded = self
            .protocol
            .decode(request.what, request.number as u32, bytes);
        if self.wrong.is_none() && is_wrong(decoded) {
            self.wrong = Some(WrongAnswer::of(bytes));
        }
        decoded
    }

    /// Reads what a server says although nothing was asked: whether it takes nothing on this connection.
    #[cold]
    pub(super) fn is_not_taken(&mut self, bytes: &[u8]) -> bool {
        if self.wrong.is_none() {
            self.wrong = WrongAnswer::refusal(bytes);
        }
        let nothing = Planned::new(Operation::Call, 0);
        self.protocol.decode(nothing, 0, bytes) == Decoded::NotTaken
    }

    /// Reports the answer to a request, or that it came too late.
    #[inline]
    pub(super) fn answer(
        &self,
        request: Request,
        outcome: Outcome,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        match self.outstanding(request, outstanding) {
            Some(k) => ReceiveOutcome::Answer { k, outcome },
            None => ReceiveOutcome::Late,
        }
    }

    /// Reports that a request will have no answer; `None` if nobody waits for it any more.
    pub(super) fn lost(
        &self,
        request: Request,
        outcome: Outcome,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> Option<ReceiveOutcome> {
        let k = self.outstanding(request, outstanding)?;
        Some(ReceiveOutcome::Lost { k, outcome })
    }
}

/// Whether this is an error from the server, or not an answer at all.
fn is_wrong(decoded: Decoded) -> bool {
    match decoded {
        Decoded::Answer { outcome, .. }
        | Decoded::LastAnswer { outcome, .. }
        | Decoded::UntilClosed { outcome } => outcome == Outcome::ServerError,
        Decoded::Partial { at_least } => at_least > LARGEST_ANSWER,
        _ => true,
    }
}
