//! Divides a round trip into parts, from the server's stamps, the client's times, and what the CPUs did.
//!
//! | from | to | is | unless the CPU was taken from it |
//! |---|---|---|---|
//! | client's send | T1 | client's stack | client's CPU |
//! | T1 | T2 | server's stack | the CPU of the receive softirq |
//! | T2 | T3 | server's wake-up | server's CPU |
//! | T3 | T4 | server's stack | server's CPU |
//! | T4 | T5 | application | server's CPU |
//! | T5 | T6 | server's stack | server's CPU |
//! | T6 | client woken | client's stack | the CPU of the receive softirq |
//! | client woken | client on its CPU | client's wake-up | client's CPU |
//! | client on its CPU | client's receipt | client's stack | client's CPU |
//!
//! A client that spins is not woken: then all time after T6 is its stack. Over loopback, the receive
//! softirq runs on the sender's CPU; between two devices, it runs on the receiver's.

use std::ops::Range;

use taillab_model::explanation::Cause;
use taillab_model::rtt::{RttEnd, RttPart};
use taillab_model::{Interrupt, Monotonic, Stamps, Tid};

use crate::ledger::{CulpritId, Label, Labels, of_top};
use crate::timeline::{CpuLine, NET_RX, Segment, Timeline, Top, WorkerState};

/// `NET_TX`.
const NET_TX: u8 = 2;

/// The client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEnd {
    /// Its port.
    pub port: u16,
    /// The thread that sends and receives.
    pub thread: Tid,
    /// The CPU of that thread.
    pub cpu: u16,
}

/// The two ends of the connections.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The client's connections.
    pub clients: &'a [ClientEnd],
    /// The CPUs of the server's threads.
    pub server_cpus: &'a [u16],
    /// The receive softirq runs on the sender's CPU.
    pub loopback: bool,
}

/// The parts of a round trip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// By [`RttPart::ALL`], in nanoseconds.
    pub(super) parts: [u64; RttPart::ALL.len()],
    /// What took a CPU: at which end, the cause, and for how long.
    pub(super) taken: Vec<(RttEnd, Label, u64)>,
}

/// A stretch of a round trip: its end, its part, and the end whose CPU it needs.
type PartStretch = (Monotonic, RttPart, RttEnd);

/// Divides the round trips of one recording.
pub(super) struct Splitter<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) ends: Ends<'a>,
    /// Threads that belong to either end.
    pub(super) own: &'a [Tid],
}

impl Splitter<'_> {
    /// `None` if a stamp is missing, or if the times contradict each other.
    pub(super) fn split(
        &self,
        client: &ClientEnd,
        worker: Tid,
        trip: Range<Monotonic>,
        stamps: &Stamps,
        labels: &mut Labels,
    ) -> Option<Split> {
        use RttPart::{Application, ClientStack, ClientWakeUp, ServerStack, ServerWakeUp};
        let [t2, t3, t4, t5] = [stamps.t2?, stamps.t3?, stamps.t4?, stamps.t5?];
        let (t1, t6) = (stamps.t1, stamps.t6);
        let received = trip.end;
        let (woken, on_cpu) = self.wake_up(client, t6..received);
        let (near, far) = (RttEnd::Client, RttEnd::Server);
        let (to_server, to_client) = match self.ends.loopback {
            true => (near, far),
            false => (far, near),
        };
        let stretches: [PartStretch; 9] = [
            (t1, ClientStack, near),
            (t2, ServerStack, to_server),
            (t3, ServerWakeUp, far),
            (t4, ServerStack, far),
            (t5, Application, far),
            (t6, ServerStack, far),
            (woken, ClientStack, to_client),
            (on_cpu, ClientWakeUp, near),
            (received, ClientStack, near),
        ];
        let server_cpu = self.server_cpu(worker, t4);
        let mut split = Split {
            parts: [0; RttPart::ALL.len()],
            taken: Vec::new(),
        };
        let mut from = trip.start;
        for (to, part, end) in stretches {
            let length = to.checked_since(from)?.get();
            let cpu = match end {
                RttEnd::Client => Some(client.cpu),
                RttEnd::Server => server_cpu,
            };
            let line = cpu.and_then(|cpu| self.timeline.cpu(cpu));
            let before = split.taken.len();
            if let Some(line) = line {
                self.taken(line, from..to, labels, |label, ns| {
                    split.taken.push((end, label, ns));
                });
            }
            let taken: u64 = split.taken[before..].iter().map(|(_, _, ns)| ns).sum();
            let disturbance = match end {
                RttEnd::Client => RttPart::ClientDisturbance,
                RttEnd::Server => RttPart::ServerDisturbance,
            };
            split.parts[disturbance as usize] += taken;
            split.parts[part as usize] += length - taken;
            from = to;
        }
        Some(split)
    }

    /// When the client was last woken after T6, and when it was on its CPU; T6 twice if it was not asleep.
    fn wake_up(&self, client: &ClientEnd, to_client: Range<Monotonic>) -> (Monotonic, Monotonic) {
        let (t6, received) = (to_client.start, to_client.end);
        let mut found = (t6, t6);
        let Some(line) = self.timeline.worker(client.thread) else {
            return found;
        };
        let spans = line.spans_from(t6);
        for span in spans.take_while(|span| span.from < received) {
            if matches!(span.state, WorkerState::Woken { .. }) && span.from >= t6 {
                found = (span.from, span.to.min(received));
            }
        }
        found
    }

    /// The CPU on which the worker read.
    fn server_cpu(&self, worker: Tid, t4: Monotonic) -> Option<u16> {
        if let [cpu] = self.ends.server_cpus {
            return Some(*cpu);
        }
        let line = self.timeline.worker(worker)?;
        let mut spans = line.spans_from(t4).take_while(|span| span.from <= t4);
        spans.find_map(|span| match span.state {
            WorkerState::OnCore { cpu } if span.to >= t4 => Some(cpu),
            _ => None,
        })
    }

    /// Calls `take` for whatever had the CPU between the two times and belongs to neither end.
    fn taken(
        &self,
        line: &CpuLine,
        span: Range<Monotonic>,
        labels: &mut Labels,
        mut take: impl FnMut(Label, u64),
    ) {
        for segment in line.segments_from(span.start) {
            if segment.from >= span.end {
                break;
            }
            let ns = (segment.to.min(span.end)).saturating_since(segment.from.max(span.start));
            if ns.get() > 0
                && let Some((cause, who)) = self.foreign(&segment)
            {
                take(labels.label(cause, who), ns.get());
            }
        }
    }

    /// The cause of a segment, unless it is a part of the round trip, such as packets and wake-ups.
    fn foreign(&self, segment: &Segment) -> Option<(Cause, CulpritId)> {
        match segment.top {
            Top::Softirq {
                vector: NET_RX | NET_TX,
            }
            | Top::Interrupt(Interrupt::Reschedule | Interrupt::CallFunction)
            | Top::KernelLock
            | Top::Storage { .. } => None,
            Top::Nothing | Top::Idle { .. } => {
                let thread = segment.thread;
                let other = thread != 0 && !self.own.contains(&thread);
                other.then_some((Cause::Background, CulpritId::Thread(thread)))
            }
            top => of_top(top),
        }
    }
}
