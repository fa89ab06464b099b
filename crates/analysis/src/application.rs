//! T4 to T5: the server's own time on the CPU, and what it waits for, by the spans of the thread that served.

use taillab_model::Nanos;
use taillab_model::explanation::{ApplicationAt, ApplicationPart, ThreadActivity};
use taillab_model::histogram::cell;

use crate::composition::AROUND;
use crate::id_map::grow_to;
use crate::matched::Matched;
use crate::stages::cells_around;
use crate::timeline::{Sleep, Timeline, WorkerState};

/// log2 of the number of cells for each doubling of the sojourn: a cell is at most 0.2 % wide.
const BITS: u32 = 9;

const KINDS: usize = ThreadActivity::ALL.len();

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    requests: u64,
    ns: [u64; KINDS],
}

/// Sums up what threads do between T4 and T5, by the cell of the sojourn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Application {
    times: Vec<Times>,
    /// All requests, with T4 and T5 or without.
    counts: Vec<u64>,
}

impl Application {
    /// Adds a request of a window.
    pub(crate) fn add(&mut self, matched: &Matched, timeline: &Timeline, place: usize) {
        let sojourn: Nanos = matched.requests.sojourn(place);
        let cell = cell(sojourn.get(), BITS);
        *grow_to(&mut self.counts, cell) += 1;
        let [.., t4, t5] = matched.requests.stamps(place).middle();
        let (Some(t4), Some(t5)) = (t4, t5) else {
            return;
        };
        let Some(line) = timeline.worker(matched.workers[place]) else {
            return;
        };
        let times = grow_to(&mut self.times, cell);
        times.requests += 1;
        let mut left = t5.saturating_since(t4).get();
        for span in line.spans_from(t4).take_while(|span| span.from < t5) {
            let inside = span.to.min(t5).saturating_since(span.from.max(t4)).get();
            let inside = inside.min(left);
            left -= inside;
            let upstream = match span.state {
                WorkerState::Asleep(Sleep::Work) => {
                    let from_ns = span.from.max(t4).nanos_since_boot();
                    let asked_ns =
                        line.questions().open_until(from_ns, t4.nanos_since_boot()) - from_ns;
                    inside.min(asked_ns)
                }
                _ => 0,
            };
            times.ns[ThreadActivity::Upstream as usize] += upstream;
            times.ns[doing(span.state) as usize] += inside - upstream;
        }
        times.ns[ThreadActivity::Unknown as usize] += left;
    }

    /// The means around p50, p99 and p99.9; `unanswered` requests rank above all others.
    pub(crate) fn finish(&self, unanswered: u64) -> Vec<ApplicationAt> {
        AROUND
            .into_iter()
            .filter_map(|q| self.at(q, unanswered))
            .collect()
    }

    fn at(&self, q: f64, unanswered: u64) -> Option<ApplicationAt> {
        let cells = cells_around(&self.counts, unanswered, q)?;
        let mut sum = Times::default();
        for times in self.times.iter().take(cells.end).skip(cells.start) {
            sum.requests += times.requests;
            sum.ns
                .iter_mut()
                .zip(times.ns)
                .for_each(|(sum, ns)| *sum += ns);
        }
        let mean = |ns: u64| ns as f64 / sum.requests as f64;
        let parts = ThreadActivity::ALL
            .into_iter()
            .zip(sum.ns)
            .filter(|(_, ns)| *ns > 0);
        (sum.requests > 0).then(|| ApplicationAt {
            q,
            requests: sum.requests,
            mean_ns: mean(sum.ns.iter().sum()),
            parts: parts
                .map(|(doing, ns)| ApplicationPart {
                    doing,
                    mean_ns: mean(ns),
                })
                .collect(),
        })
    }
}

fn doing(state: WorkerState) -> ThreadActivity {
    if state.is_timer() {
        return ThreadActivity::Timer;
    }
    match state {
        WorkerState::OnCore { .. } => ThreadActivity::OnCpu,
        WorkerState::Preempted { .. } | WorkerState::Woken { .. } => ThreadActivity::WaitingForCpu,
        WorkerState::Asleep(Sleep::Work) => ThreadActivity::Sockets,
        WorkerState::Asleep(Sleep::Lock { .. }) => ThreadActivity::Lock,
        WorkerState::Asleep(Sleep::Fault) => ThreadActivity::PageFault,
        WorkerState::Asleep(Sleep::Io { .. }) => ThreadActivity::Storage,
        WorkerState::Asleep(Sleep::Stopped) => ThreadActivity::Stopped,
        WorkerState::Asleep(Sleep::Other { .. }) => ThreadActivity::OtherCall,
        WorkerState::Asleep(Sleep::Unknown) | WorkerState::Unknown => ThreadActivity::Unknown,
    }
}
