//! The sweep goes on from one part of a recording to the next.

use taillab_model::{Monotonic, Nanos};

use super::Entry;
use super::cpu::CpuState;
use super::label::Labels;
use super::sweep::Sweep;
use super::worker::WorkerTrack;
use crate::matched::Matched;
use crate::timeline::Timeline;

/// Lines of time that the next part of a recording shares with the one before it, at least.
pub const LOOK_BACK: Nanos = Nanos::from_millis(20);

impl Sweep {
    /// Follows the requests of a part of the recording until `upto`: what happens later is
    /// left to the next part, whose timeline must reach back to the oldest request that is
    /// in the server then, and [`LOOK_BACK`] before `upto`.
    pub(super) fn follow(
        &mut self,
        matched: &Matched,
        timeline: &Timeline,
        upto: Monotonic,
        sink: &mut impl FnMut(&Entry<'_>, &Labels),
    ) {
        self.enter(matched, timeline);
        for arrival in matched.arrivals() {
            let t1_ns = arrival.t1.nanos_since_boot();
            self.until(t1_ns, sink);
            self.came_in(matched, &arrival, t1_ns);
        }
        self.requests_before += matched.requests.len();
        self.until(upto.nanos_since_boot(), sink);
        self.leave(upto.nanos_since_boot());
    }

    /// Goes on with a part of the recording.
    fn enter(&mut self, matched: &Matched, timeline: &Timeline) {
        self.timeline = timeline.clone();
        let upto_ns = self.upto_ns;
        for (place, line) in timeline.cpus().iter().enumerate() {
            let k = self.cpu_index(line.cpu()).unwrap_or_else(|| {
                self.cpus.push(CpuState::new(line.cpu()));
                self.cpus.len() - 1
            });
            self.cpus[k].goes_on(place, line);
            self.know_worker(k);
        }
        let mut last = 0;
        for &tid in &matched.workers {
            if tid == last || tid == 0 || self.by_tid.contains(tid) {
                continue;
            }
            last = tid;
            if timeline.worker(tid).is_some() {
                self.by_tid.insert(tid, self.workers.len());
                self.workers
                    .push(WorkerTrack::new(tid, self.fixed.unobserved));
            }
        }
        for w in 0..self.workers.len() {
            let worker = &mut self.workers[w];
            let (Some(place), before) = (
                timeline.worker_place(worker.tid),
                (worker.state, worker.until_ns),
            ) else {
                continue;
            };
            worker.goes_on(place, &timeline.workers()[place], upto_ns);
            if worker.outstanding > 0 && before != (worker.state, worker.until_ns) {
                worker.turn = worker.turn.wrapping_add(1);
                self.enter_state(w, upto_ns);
            }
        }
        let again = timeline.retransmissions().iter();
        let again = again.map(|(at, client)| (at.nanos_since_boot(), *client));
        self.resent = again.collect();
    }

    /// Nothing before `upto_ns`, or little, will be read of this part any more.
    fn leave(&mut self, upto_ns: u64) {
        self.upto_ns = upto_ns;
        if upto_ns == u64::MAX {
            return;
        }
        let least_ns = upto_ns.saturating_sub(LOOK_BACK.get());
        for k in 0..self.cpus.len() {
            self.advance(k, least_ns);
        }
        for w in 0..self.workers.len() {
            if self.workers[w].outstanding == 0 {
                self.skim(w, upto_ns);
            }
        }
    }
}
