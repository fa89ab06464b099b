//! The requests between T1 and T6.

use std::ops::{Index, IndexMut};

use taillab_model::explanation::Cause;
use taillab_model::{Monotonic, Stamps, Tid};

use super::common::CommonWait;
use super::events::RequestId;
use super::history::Position;
use super::label::{CulpritId, Label, Labels};
use super::queues::{LateStart, Waits};
use super::send_evidence::SendEvidence;
use super::trace::TraceStart;
use super::worker::Inheritance;
use crate::commands::Command;
use crate::spans::Span;

/// Replaces the place of a request that has left.
const GONE: usize = usize::MAX;

/// A request between T1 and T6.
#[derive(Clone, Debug)]
pub(super) struct OpenRequest {
    /// Its place among the matched requests of the recording.
    pub(super) place: usize,
    pub(super) stamps: Stamps,
    pub(super) connection: u32,
    /// The client's port, if it is known and the pieces are wanted; else 0.
    pub(super) port: u16,
    /// What it asks for, if that is known by name.
    pub(super) command: Option<Command>,
    /// It belongs to the measurement.
    pub(super) measured: bool,
    /// Whether T2 to T5 were meant to be recorded.
    pub(super) asked: bool,
    /// The slice whose sample it belongs to, with its number, if there are slices.
    pub(super) slice: Option<(u32, Span)>,
    /// When its worker's busy period began; 0 if there are no slices.
    pub(super) busy_since_ns: u64,
    /// The thread that served it; 0 if that is not known.
    pub(super) tid: Tid,
    /// Its place among the workers.
    pub(super) worker: Option<usize>,
    /// When its worker became free for it; only if T3 was not meant to be recorded.
    pub(super) free_ns: Option<u64>,
    pub(super) t1_ns: u64,
    /// T2, or the estimate that replaces it.
    pub(super) queued_ns: u64,
    /// When its worker was done with it: T6, or before that ([`OpenRequest::unsent`]).
    pub(super) t6_ns: u64,
    /// For how long its response then waited to be sent, and the label of that.
    pub(super) unsent: Option<(Label, u64)>,
    /// Why its response waited to be sent, if it did.
    pub(super) sending: SendEvidence,
    pub(super) waits: Waits,
    /// Its place in the order in which it should leave.
    pub(super) turn: usize,
    /// The end of its worker's history at T2, or when its worker was free for it, in a queue that several share.
    pub(super) begin: Position,
    /// For how long its worker had waited behind others on its CPU until then.
    pub(super) behind_ns: u64,
    pub(super) late: Option<LateStart>,
    /// Its wait, if its worker shares a queue with others.
    pub(super) common: Option<CommonWait>,
    /// Work for this request, within the time that a service may take.
    pub(super) used_ns: u64,
    /// Time in its service beyond that.
    pub(super) over_ns: u64,
    /// The part of that which is charged to the service itself.
    pub(super) slow_ns: u64,
    pub(super) inheritance: Inheritance,
    /// Its worker, if that began the service of a later arrival before it.
    pub(super) overtaken_by: Option<Tid>,
    /// [T1, T2] by label, the latest first.
    pub(super) stack: Vec<(Label, u64)>,
    /// Its pieces in order of time are wanted.
    pub(super) wanted: bool,
    /// Its trace from T2 on, if the worker is known.
    pub(super) traced: Option<TraceStart>,
}

impl OpenRequest {
    /// T6 − T1.
    pub(super) const fn sojourn_ns(&self) -> u64 {
        self.left_ns() - self.t1_ns
    }

    /// T6 in nanoseconds since boot.
    pub(super) const fn left_ns(&self) -> u64 {
        match self.unsent {
            Some((_, length_ns)) => self.t6_ns + length_ns,
            None => self.t6_ns,
        }
    }

    /// The label of what its worker does for others once it is late, if it is.
    pub(super) fn order(&self, labels: &mut Labels) -> Option<Label> {
        let late = self.late.as_ref()?;
        let order = || labels.label(Cause::Order, CulpritId::Worker(self.tid));
        Some(late.away.unwrap_or_else(order))
    }

    /// It was overtaken while it waited for another server.
    pub(super) fn is_away(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.away.is_some())
    }

    /// T4 in nanoseconds since boot, if recorded.
    pub(super) fn t4_ns(&self) -> Option<u64> {
        self.stamps.t4.map(Monotonic::nanos_since_boot)
    }

    /// T5 in nanoseconds since boot, if recorded.
    pub(super) fn t5_ns(&self) -> Option<u64> {
        self.stamps.t5.map(Monotonic::nanos_since_boot)
    }
}

/// The requests between T1 and T6, by their ids.
#[derive(Default)]
pub(super) struct RequestsInside {
    slots: Vec<OpenRequest>,
    free: Vec<RequestId>,
}

impl RequestsInside {
    /// How many requests are in the server.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a request, which reuses the memory of an earlier one.
    pub(super) fn insert(&mut self, mut request: OpenRequest) -> RequestId {
        match self.free.pop() {
            Some(id) => {
                let slot = &mut self.slots[id as usize];
                request.stack = std::mem::take(&mut slot.stack);
                request.stack.clear();
                *slot = request;
                id
            }
            None => {
                self.slots.push(request);
                (self.slots.len() - 1) as RequestId
            }
        }
    }

    /// Forgets a request that has left.
    pub(super) fn remove(&mut self, id: RequestId) {
        self[id].place = GONE;
        self.free.push(id);
    }
}

impl Index<RequestId> for RequestsInside {
    type Output = OpenRequest;

    fn index(&self, id: RequestId) -> &OpenRequest {
        &self.slots[id as usize]
    }
}

impl IndexMut<RequestId> for RequestsInside {
    fn index_mut(&mut self, id: RequestId) -> &mut OpenRequest {
        &mut self.slots[id as usize]
    }
}
