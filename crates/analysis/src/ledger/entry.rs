//! The options and the results of the ledger.

use std::num::NonZeroU32;

use taillab_model::explanation::Cause;
use taillab_model::{Monotonic, Nanos, Stamps, Tid};

use super::disturbances::EventLengths;
use super::label::{Label, Labels};
use super::pieces::Piece;
use super::sharing::SharedQueues;
use crate::commands::Command;

/// What the ledger needs to know besides the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    /// t: what a request costs its core.
    pub service_time: Nanos,
    /// The part of t after the response has left; it is not in the request's ideal sojourn.
    pub after_response: Nanos,
    /// Workers of the ideal queue.
    pub workers: NonZeroU32,
    /// Requests due earlier are warm-up: they are followed, but get no entry.
    pub measure_from: Monotonic,
    /// Which workers take their requests from one queue.
    pub queues: SharedQueues,
}

/// One request's account.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its place among the matched requests of the whole recording, in order of T1.
    pub place: usize,
    /// Its stamps.
    pub stamps: Stamps,
    /// The client's port; 0 if it is not known, or no pieces of the request are.
    pub port: u16,
    /// What it asks for, where its content was read and that has a name.
    pub command: Option<Command>,
    /// The thread that served it; 0 if that is not known.
    pub worker: Tid,
    /// Whether T2 to T5 were meant to be recorded. If not, the account says little.
    pub asked: bool,
    /// The number of the slice whose sample it belongs to, if the recording has slices.
    pub slice: Option<u32>,
    /// It left after the end of that slice.
    pub left_late: bool,
    /// Its worker's busy period began before the slice, so it may inherit delays that were not recorded.
    pub carried_over: bool,
    /// T6 − T1.
    pub sojourn_ns: u64,
    /// Its sojourn in the ideal queue.
    pub ideal_ns: u64,
    /// Its sojourn in an ideal queue of its own worker alone.
    pub own_queue_ideal_ns: u64,
    /// By how much it was faster than its ideal: max(0, ideal − sojourn).
    pub gain_ns: u64,
    /// Its own time on the CPU.
    pub own_ns: u64,
    /// The part of that which is charged as slow service.
    pub own_slow_ns: u64,
    /// The sojourn by cause: the lengths, none of them zero, sum to `sojourn_ns`.
    pub parts: &'a [(Label, u64)],
    /// The excess by cause: the lengths, none of them zero, sum to max(0, sojourn − ideal).
    pub excess: &'a [(Label, u64)],
    /// The worker that served a later arrival before it, if there is one.
    pub overtaken_by: Option<Tid>,
    /// Its parts in order of time, if they were asked for; their lengths sum to `sojourn_ns`.
    pub pieces: &'a [Piece],
}

impl Entry<'_> {
    /// The cause with the largest part of the excess; `None` without one.
    pub fn main_cause(&self, labels: &Labels) -> Option<Cause> {
        let mut sums = [0; Cause::ALL.len()];
        for &(label, ns) in self.excess {
            sums[labels.cause(label) as usize] += ns;
        }
        let largest = Cause::ALL
            .into_iter()
            .max_by_key(|cause| sums[*cause as usize])?;
        (sums[largest as usize] > 0).then_some(largest)
    }
}

/// What was counted over all requests.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The names of the labels; the list of events has an entry for each.
    pub labels: Labels,
    /// What each label held up work with while a request was there, as events.
    pub events: Vec<EventLengths>,
    /// For each worker, its time in service, including timer sleeps that count as service, in nanoseconds.
    /// Of very many workers, those that served for the longest.
    pub served_ns: Vec<(Tid, u64)>,
    /// The same of all other workers together.
    pub served_by_others_ns: u64,
}
