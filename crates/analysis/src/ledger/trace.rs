//! The trace of a worker: what happens to its requests in order of time, while the pieces of some of them
//! are wanted.
//!
//! It is written once for the worker, however many of its requests are open. A request stores where its
//! part begins, and the meaning for that request is determined when it is answered.

use std::collections::VecDeque;

use super::events::RequestId;
use super::label::Label;
use super::pieces::Moment;

/// What happened for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceEntry {
    /// The worker was held up; by this request's own service, or by something else.
    Delay(Label, Option<RequestId>),
    /// A receive softirq within ρ.
    Received,
    /// Work: for this request, or for none that is known.
    Work(Option<RequestId>),
}

/// Where a request begins in its worker's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceStart {
    from: usize,
    /// The entry from which on its worker was free for it. What the worker met before is not its own.
    free: usize,
    /// The entry from which on it was late; `usize::MAX` if it was not.
    late: usize,
}

impl TraceStart {
    /// The worker was free for that request from this entry on.
    pub(super) fn is_free(&mut self, entry: usize) {
        self.free = entry.max(self.from);
    }
}

/// What happened to a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    noted: VecDeque<(TraceEntry, u64)>,
    /// How many entries were dropped from the front of `noted`.
    forgotten: usize,
    /// Where each open request whose pieces are wanted begins.
    open: VecDeque<usize>,
}

impl Trace {
    /// Whether the pieces of a request are wanted.
    pub(super) fn is_wanted(&self) -> bool {
        !self.open.is_empty()
    }

    /// The number of the next entry.
    pub(super) fn end(&self) -> usize {
        self.forgotten + self.noted.len()
    }

    /// Begins the trace of a request.
    pub(super) fn begin(&mut self) -> TraceStart {
        let from = self.end();
        self.open.push_back(from);
        TraceStart {
            from,
            free: from,
            late: usize::MAX,
        }
    }

    /// From now on that request is late.
    pub(super) fn is_late(&self, traced: &mut TraceStart) {
        traced.late = self.end();
    }

    /// Notes what happened, if a request wants it.
    #[inline]
    pub(super) fn note(&mut self, what: TraceEntry, length: u64) {
        if length > 0 && self.is_wanted() {
            self.noted.push_back((what, length));
        }
    }

    /// What happened to the request `id` until now. Once it was late, delays count as `order`, except for
    /// those of its own service and those that keep their cause.
    pub(super) fn moments(
        &self,
        id: RequestId,
        TraceStart { from, free, late }: TraceStart,
        order: Option<Label>,
        keeps: impl Fn(Label) -> bool,
    ) -> Vec<(Moment, u64)> {
        let from = from.max(free);
        let range = self.noted.range(from - self.forgotten..);
        let moment = |(place, &(what, length)): (usize, &(TraceEntry, u64))| {
            let moment = match what {
                TraceEntry::Work(of) if of == Some(id) => Moment::Own,
                TraceEntry::Work(_) => Moment::Others,
                TraceEntry::Received => Moment::Received,
                TraceEntry::Delay(label, of) => {
                    let is_own = of == Some(id) || keeps(label);
                    let order = order.filter(|_| place >= late && !is_own);
                    Moment::Delay(order.unwrap_or(label))
                }
            };
            (moment, length)
        };
        (from..).zip(range).map(moment).collect()
    }

    /// Ends the trace of a request, and drops what no other request needs.
    pub(super) fn end_of(&mut self, traced: TraceStart) {
        if let Some(place) = self.open.iter().position(|&from| from == traced.from) {
            self.open.remove(place);
        }
        let upto = self.open.front().map_or(self.end(), |&from| from);
        self.noted.drain(..upto - self.forgotten);
        self.forgotten = upto;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUESTS: RequestId = 6;

    /// A request that notes everything itself, as long as it is open.
    #[derive(Default)]
    struct OwnTrace {
        traced: Option<TraceStart>,
        late: bool,
        moments: Vec<(Moment, u64)>,
    }

    proptest! {
        /// What a request is told is what it would have noted itself.
        #[test]
        fn one_trace_is_enough_for_all_requests(
            steps in prop::collection::vec((0_u8..8, 0..REQUESTS, 0_u64..50), 1..300),
        ) {
            let order = 7;
            let mut trace = Trace::default();
            let mut requests: [OwnTrace; REQUESTS as usize] = Default::default();
            for (what, id, length) in steps {
                let request = &mut requests[id as usize];
                let happened = match what {
                    0 | 1 => {
                        if let Some(traced) = request.traced {
                            let late = request.late.then_some(order);
                            let told = trace.moments(id, traced, late, |_| false);
                            let told: Vec<_> = told.iter().map(|t| format!("{t:?}")).collect();
                            let own = request.moments.iter();
                            let own: Vec<_> = own.map(|m| format!("{m:?}")).collect();
                            prop_assert_eq!(told, own);
                            trace.end_of(traced);
                            *request = OwnTrace::default();
                        } else {
                            request.traced = Some(trace.begin());
                        }
                        continue;
                    }
                    2 => {
                        if let Some(traced) = request.traced.as_mut().filter(|_| !request.late) {
                            trace.is_late(traced);
                            request.late = true;
                        }
                        continue;
                    }
                    3 => TraceEntry::Received,
                    4 => TraceEntry::Work(None),
                    5 => TraceEntry::Work(Some(id)),
                    6 => TraceEntry::Delay(id % 3, Some(id)),
                    _ => TraceEntry::Delay(id % 3, None),
                };
                trace.note(happened, length);
                for (other, request) in (0..).zip(&mut requests) {
                    if request.traced.is_none() || length == 0 {
                        continue;
                    }
                    let moment = match happened {
                        TraceEntry::Delay(_, of) if request.late && of != Some(other) => {
                            Moment::Delay(order)
                        }
                        TraceEntry::Delay(label, _) => Moment::Delay(label),
                        TraceEntry::Received => Moment::Received,
                        TraceEntry::Work(of) if of == Some(other) => Moment::Own,
                        TraceEntry::Work(_) => Moment::Others,
                    };
                    request.moments.push((moment, length));
                }
            }
            if requests.iter().all(|request| request.traced.is_none()) {
                prop_assert!(trace.noted.is_empty());
            }
        }
    }
}
