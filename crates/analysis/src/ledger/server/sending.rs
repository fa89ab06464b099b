//! Responses that were written and did not leave: they wait for the client, or for the network on the way to it.

use std::ops::Range;

use taillab_model::explanation::{Cause, SendWait};
use taillab_model::{Monotonic, SendLimit};

use super::ServerState;
use crate::ledger::disturbances::{PieceOrigin, Site};
use crate::ledger::events::RequestId;
use crate::ledger::label::{CulpritId, Label};
use crate::ledger::pauses::served_at;
use crate::ledger::send_evidence::SendEvidence;
use crate::matched::Matched;
use crate::timeline::{Sleep, Top, WorkerState};

/// `NET_TX_SOFTIRQ` of the kernel.
const NET_TX: u8 = 2;

/// A response that leaves so soon after its first write waited for nobody, or for the acknowledgements that come at
/// once.
const LEAST_NS: u64 = 1_000_000;

impl ServerState {
    /// From when on a response of worker `w` waited to be sent while the worker went on with other requests, and the
    /// label of that; `unsent_ns` is from T5 to T6. `None` if it did not wait so: the worker sent it itself, or did
    /// nothing else meanwhile.
    pub(in crate::ledger) fn goes_on_before(
        &mut self,
        matched: &Matched,
        w: usize,
        unsent_ns: Range<u64>,
        evidence: SendEvidence,
    ) -> Option<(Label, u64)> {
        let Range {
            start: t5_ns,
            end: t6_ns,
        } = unsent_ns;
        if t6_ns.saturating_sub(t5_ns) < LEAST_NS || self.has_cpu(w, t6_ns)? {
            return None;
        }
        let tid = self.workers[w].tid;
        let others = (self.acts_ns.entry(tid)).or_insert_with(|| served_at(matched, tid));
        let next = others.partition_point(|&at_ns| at_ns <= t5_ns);
        let goes_on_ns = others.get(next).copied().filter(|at_ns| *at_ns < t6_ns)?;
        let goes_on_ns = self
            .falls_asleep(w, t5_ns..goes_on_ns)
            .unwrap_or(goes_on_ns);
        let wait = self.send_wait(t5_ns..t6_ns, evidence);
        let label = self.label(Cause::Client, CulpritId::Sending(wait));
        Some((label, goes_on_ns))
    }

    /// When in this time worker `w` fell asleep, not for storage; `None` if it did not.
    fn falls_asleep(&self, w: usize, within_ns: Range<u64>) -> Option<u64> {
        let line = self.timeline.worker(self.workers[w].tid)?;
        let spans = line.spans_from(Monotonic::from_nanos_since_boot(within_ns.start));
        let begun = spans.map(|span| (span.from.nanos_since_boot(), span.state));
        let mut within = begun.take_while(|(begin_ns, _)| *begin_ns < within_ns.end);
        let asleep = within.find(|(begin_ns, state)| match state {
            WorkerState::Asleep(Sleep::Fault | Sleep::Io { .. } | Sleep::Stopped) => false,
            WorkerState::Asleep(_) => within_ns.contains(begin_ns),
            _ => false,
        });
        asleep.map(|(begin_ns, _)| begin_ns)
    }

    /// Whether worker `w` itself was on a CPU then, and nothing on top of it; `None` where that is not known.
    fn has_cpu(&self, w: usize, at_ns: u64) -> Option<bool> {
        let at = Monotonic::from_nanos_since_boot(at_ns);
        let tid = self.workers[w].tid;
        let now = self.timeline.worker(tid)?.spans_from(at).next()?;
        match now.state {
            WorkerState::Unknown => None,
            WorkerState::OnCore { cpu } if self.timeline.seen().softirqs => {
                let segment = self.timeline.cpu(cpu)?.segments_from(at).next()?;
                Some(segment.thread == tid && segment.top == Top::Nothing)
            }
            WorkerState::OnCore { .. } => Some(true),
            _ => Some(false),
        }
    }

    /// The response of request `id` left after its worker had gone on: that is an event.
    pub(in crate::ledger) fn left_later(&mut self, w: usize, id: RequestId) {
        let request = &self.requests[id];
        let Some((label, _)) = request.unsent else {
            return;
        };
        let span = request.t6_ns..request.left_ns();
        let part_of = PieceOrigin::Sleep(span.start, Some(request.place));
        (self.disturbances).add((Cause::Client, label), Site::Worker(w), span, part_of);
    }

    /// What the response of worker `w`, which sleeps so since it wrote it, waits for. `None` if it has not begun
    /// to answer, or sleeps for another reason.
    pub(super) fn waits_to_send(&mut self, w: usize, sleep: Sleep) -> Option<Label> {
        let worker = &self.workers[w];
        let request = &self.requests[worker.serving?];
        let t5_ns = (request.t5_ns()).filter(|t5_ns| *t5_ns <= worker.state_since_ns)?;
        // the response leaves without the thread
        let leaves = request.t6_ns <= worker.until_ns;
        let sends = match sleep {
            Sleep::Stopped => false,
            Sleep::Work => leaves || self.hands_over(w).is_none(),
            _ => leaves || sleep.is_in_send(),
        };
        let evidence = SendEvidence {
            for_ack: leaves && request.sending.for_ack,
            ..request.sending
        };
        let wait = sends.then(|| self.send_wait(t5_ns..request.t6_ns, evidence))?;
        Some(self.label(Cause::Client, CulpritId::Sending(wait)))
    }

    /// What a response waited for between T5 and T6, which is `unsent_ns`.
    fn send_wait(&self, unsent_ns: Range<u64>, evidence: SendEvidence) -> SendWait {
        let at = Monotonic::from_nanos_since_boot(unsent_ns.end);
        let now_runs = |vector| {
            let mut lines = self.timeline.cpus().iter();
            lines.any(|line| {
                let segment = line.segments_from(at).next();
                segment.is_some_and(|now| now.from <= at && now.top == Top::Softirq { vector })
            })
        };
        let is_long = unsent_ns.end.saturating_sub(unsent_ns.start) >= LEAST_NS;
        match evidence.limit {
            _ if now_runs(NET_TX) => SendWait::Device,
            Some(SendLimit::ClientWindow) if is_long => SendWait::ClientWindow,
            // the acknowledgement that lets it leave may be received on a CPU that is not the server's
            _ if evidence.for_ack => SendWait::Nagle,
            _ if !is_long => SendWait::RoundTrips,
            Some(SendLimit::CongestionWindow) => SendWait::CongestionWindow,
            _ => SendWait::Window,
        }
    }
}
