//! Overloads: stretches in which work came faster than it was done.
//!
//! The number of requests in the server is followed in cells of a tenth of a second. The least number
//! in a cell is the standing queue: a burst that is worked off within the cell leaves none. While it
//! does not fall below the number of workers, the server is busy without a pause. Such a stretch is an
//! overload if the queue grew for a second or more, and by more than chance explains for a load
//! below the capacity. None of this needs t.
//!
//! Requests that wait in our own client, because their connection is busy or the kernel takes no more, are
//! part of the queue: they count from their intended send. So are those that a server with a full queue drops, and
//! those whose responses could be several requests': the first of these requests counts as answered by the first
//! of these responses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use taillab_model::explanation::nameless;
use taillab_model::summary::{CpuTaken, Overload, TakenBy};
use taillab_model::{Monotonic, Nanos, RecordingContext, Tid};

use crate::coarsening::{Coarsen, Coarsening};
use crate::crowd::{Crowd, Step};
use crate::matched::Matched;
use crate::timeline::{NET_RX, Top};
use crate::window::Window;

/// The initial width of a cell.
const CELL: Nanos = Nanos::from_millis(100);

/// The cells of an hour; beyond that, they are joined.
const MOST_CELLS: usize = 36_000;

/// A queue that grows for a shorter time is a burst; in a recording of less than twice this length, one that
/// grows for less than half of it.
const LEAST: Duration = Duration::from_secs(1);

/// A queue that grows over fewer cells is a burst, however short the recording.
const FEWEST_CELLS: usize = 3;

/// The queue must grow by at least this many standard deviations of a Poisson number.
const BEYOND_CHANCE: f64 = 4.0;

/// The queue must grow by at least this many requests for each worker.
const LEAST_GROWTH: u64 = 10;

/// If a smaller share of the requests was not answered, the probe may have missed their responses.
const DROPPED: f64 = 0.01;

/// How many threads of other programs are told apart in a cell.
const TOLD_APART: usize = 32;

/// How many other programs are named.
const NAMED: usize = 3;

/// A program that took a smaller share of the CPUs is not named.
const WORTH_NAMING: f64 = 0.01;

/// What happened in a cell of time.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// Requests that were due: by the client's intended send, or else by T1.
    due: u64,
    /// Requests that reached the server.
    reached: u64,
    left: u64,
    /// Requests that reached the server and were never answered.
    unanswered: u64,
    /// Those whose responses could be several requests'. They are also in the counts above.
    unsure_came: u64,
    /// Such responses.
    unsure_left: u64,
    /// The least number of requests in the server; `None` where nothing happened.
    least: Option<u64>,
    /// What the CPUs did, if there was a standing queue.
    cpu: CpuTime,
}

/// Nanoseconds of the server's CPUs.
#[derive(Clone, Debug, Default)]
struct CpuTime {
    server: u64,
    receive: u64,
    others: u64,
    /// Those of `others` that are told apart.
    by_thread: Vec<(Tid, u64)>,
    interrupts: u64,
    stalled: u64,
    all: u64,
}

impl CpuTime {
    fn add(&mut self, more: Self) {
        self.server += more.server;
        self.receive += more.receive;
        self.others += more.others;
        self.interrupts += more.interrupts;
        self.stalled += more.stalled;
        self.all += more.all;
        for (thread, ns) in more.by_thread {
            self.add_thread(thread, ns);
        }
    }

    /// Adds time of a thread of another program to those that are told apart.
    fn add_thread(&mut self, thread: Tid, ns: u64) {
        let place = self
            .by_thread
            .iter()
            .position(|(other, _)| *other == thread);
        match place {
            Some(place) => self.by_thread[place].1 += ns,
            None if self.by_thread.len() < TOLD_APART => self.by_thread.push((thread, ns)),
            None => {}
        }
    }
}

impl Coarsen for Cell {
    fn add(&mut self, next: Self) {
        self.due += next.due;
        self.reached += next.reached;
        self.left += next.left;
        self.unanswered += next.unanswered;
        self.unsure_came += next.unsure_came;
        self.unsure_left += next.unsure_left;
        self.least = match (self.least, next.least) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.cpu.add(next.cpu);
    }
}

/// Follows the queue of a recording while its windows come.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    crowd: Crowd,
    cells: Coarsening<Cell>,
    /// T1 of the first request, where the cells begin.
    begin: Option<Monotonic>,
    /// Nanoseconds since then, up to which the number in the server is known.
    told_ns: u64,
    /// What the CPUs did before this has been added.
    watched: Monotonic,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            crowd: Crowd::default(),
            cells: Coarsening::new(CELL.get(), MOST_CELLS),
            begin: None,
            told_ns: 0,
            watched: Monotonic::from_nanos_since_boot(0),
        }
    }
}

impl Queue {
    /// Takes the next window of a server with `workers` workers.
    pub(crate) fn add(&mut self, window: &Window, workers: u32) {
        let matched = &window.matched;
        if matched.requests.is_empty() {
            return;
        }
        let begin = *self.begin.get_or_insert_with(|| matched.requests.t1(0));
        let from_ns = self.told_ns;
        let mut crowd = std::mem::take(&mut self.crowd);
        crowd.walk(matched, |at, inside, step| {
            self.count(begin, at, inside as u64, step);
        });
        self.crowd = crowd;
        self.count_work(matched, begin);
        // cells may have been joined on the way
        let first = (from_ns / self.cells.width()) as usize;
        // what the CPUs did is needed only where there may be an overload
        let stood: Vec<bool> = (self.cells.cells().iter().skip(first))
            .map(|cell| cell.least.is_some_and(|least| least >= u64::from(workers)))
            .collect();
        for run in runs(&stood) {
            self.watch(window, begin, first + run.start..first + run.end);
        }
        let end_ns = self.cells.cells().len() as u64 * self.cells.width();
        self.watched = window.upto.min(begin + Nanos::new(end_ns));
    }

    /// Counts the work that came with a window, whether or not it was done.
    fn count_work(&mut self, matched: &Matched, begin: Monotonic) {
        let since_begin = |at: Monotonic| at.saturating_since(begin).get();
        for place in 0..matched.requests.len() {
            let due = since_begin(matched.requests.due(place));
            self.cells.cell(due).0.due += 1;
        }
        let mut unsure = matched.ambiguous.len();
        for other in &matched.unmatched {
            if other.ambiguous && unsure == 0 {
                continue;
            }
            let cell = self.cells.cell(since_begin(other.t1)).0;
            cell.due += 1;
            cell.reached += 1;
            if other.ambiguous {
                unsure -= 1;
                cell.unsure_came += 1;
            } else {
                cell.unanswered += 1;
            }
        }
        let answers = matched.ambiguous.len() - unsure;
        for left in matched.ambiguous.iter().take(answers) {
            let cell = self.cells.cell(since_begin(*left)).0;
            cell.left += 1;
            cell.unsure_left += 1;
        }
    }

    fn count(&mut self, begin: Monotonic, at: Monotonic, inside: u64, step: Step) {
        let at_ns = at.saturating_since(begin).get();
        // in cells without an event since the last one, the number in the server stayed the same
        loop {
            let width = self.cells.width();
            let next_ns = (self.told_ns / width + 1) * width;
            if next_ns > at_ns {
                break;
            }
            self.cells.cell(next_ns).0.holds(inside);
            self.told_ns = next_ns;
        }
        self.told_ns = self.told_ns.max(at_ns);
        let cell = self.cells.cell(at_ns).0;
        let after = match step {
            Step::Came => {
                cell.reached += 1;
                inside + 1
            }
            Step::Left => {
                cell.left += 1;
                inside - 1
            }
        };
        cell.holds(inside.min(after));
    }

    /// Adds what the CPUs did in these cells until the window ends, as far as it was recorded. Neighbouring
    /// windows share a cell, and their timelines overlap.
    fn watch(&mut self, window: &Window, begin: Monotonic, cells: Range<usize>) {
        let (timeline, sliced) = (&window.timeline, window.matched.slices.are_used());
        let width = self.cells.width();
        let at = |cell: usize| begin + Nanos::new(cell as u64 * width);
        let from = at(cells.start).max(self.watched);
        let to = at(cells.end).min(timeline.to()).min(window.upto);
        for line in timeline.cpus() {
            let segments = line.segments_from(from).take_while(|s| s.from < to);
            for segment in segments.filter(|s| !sliced || s.top != Top::Blind) {
                let (mut now, end) = (segment.from.max(from), segment.to.min(to));
                while now < end {
                    let place = now.saturating_since(begin).get();
                    let (cell, cell_ends) = self.cells.cell(place);
                    let until = end.min(begin + Nanos::new(cell_ends));
                    let ns = until.saturating_since(now).get();
                    let is_server = timeline.worker(segment.thread).is_some();
                    match segment.top {
                        Top::Stall => cell.cpu.stalled += ns,
                        Top::Softirq { vector: NET_RX } => cell.cpu.receive += ns,
                        Top::Softirq { .. } | Top::Interrupt(_) => cell.cpu.interrupts += ns,
                        _ if is_server => cell.cpu.server += ns,
                        Top::Idle { .. } => {}
                        _ if segment.thread != 0 => {
                            cell.cpu.others += ns;
                            cell.cpu.add_thread(segment.thread, ns);
                        }
                        _ => {}
                    }
                    cell.cpu.all += ns;
                    now = until;
                }
            }
        }
    }

    /// The worst overload of a server with these workers, with what follows from t where that is known. `from`
    /// is where the measurement began: an overload that ended before is none of it.
    pub(crate) fn finish(
        mut self,
        workers: u32,
        service_time: Option<Nanos>,
        from: Monotonic,
        context: &RecordingContext,
    ) -> Option<Overload> {
        let begin = self.begin?;
        let crowd = std::mem::take(&mut self.crowd);
        crowd.finish(|at, inside, step| self.count(begin, at, inside as u64, step));
        let width = self.cells.width();
        let cells = self.cells.into_cells();
        let at = |cell: usize| begin + Nanos::new(cell as u64 * width);
        let stood: Vec<bool> = (cells.iter())
            .map(|cell| cell.least() >= u64::from(workers))
            .collect();
        let lengths = lengths(&cells);
        let growths = runs(&stood).filter_map(|run| Growth::of(&cells, &lengths, run));
        let worst = growths
            .filter(|growth| at(growth.run.end) > from)
            .filter(|growth| growth.is_overload(workers, width, cells.len()))
            .max_by_key(|growth| growth.by)?;
        let Growth {
            run,
            grew,
            unanswered,
            came,
            ..
        } = worst;
        let since_from = |cell: usize| at(cell).saturating_since(from);
        let seconds = Nanos::new(grew.len() as u64 * width).as_secs_f64();
        let left: u64 = cells[grew.clone()].iter().map(|cell| cell.left).sum();
        let last_came = cells.iter().rposition(|cell| cell.due > 0);
        let mut cpu = CpuTime::default();
        // a cell may have been watched before a later window showed that its queue did not stand
        for place in grew.clone().filter(|place| stood[*place]) {
            cpu.add(cells[place].cpu.clone());
        }
        Some(Overload {
            from_ns: since_from(run.start),
            worst_ns: since_from(grew.end),
            to_ns: (run.end < cells.len()).then(|| since_from(run.end)),
            outlasts_load: last_came.is_some_and(|last| run.end > last),
            waiting: lengths[grew.end - 1],
            unanswered,
            came_per_s: came as f64 / seconds,
            done_per_s: left as f64 / seconds,
            capacity_per_s: service_time.map(|t| f64::from(workers) / t.as_secs_f64()),
            service_time_ns: service_time,
            cpu: (cpu.all > 0).then(|| cpu.taken(left, context)),
        })
    }
}

impl Cell {
    /// The least number of requests in the server.
    fn least(&self) -> u64 {
        self.least.unwrap_or(0)
    }

    /// This many requests were in the server at some time.
    fn holds(&mut self, inside: u64) {
        self.least = Some(self.least.map_or(inside, |known| known.min(inside)));
    }
}

/// The queue in each cell: what stood in the server, what was due and had not reached it, and what is known to be in
/// the server but not until when.
fn lengths(cells: &[Cell]) -> Vec<u64> {
    let (mut due, mut reached) = (0_u64, 0_u64);
    let (mut came, mut left) = (0_u64, 0_u64);
    let mut before = 0;
    let length = |cell: &Cell| {
        due += cell.due;
        reached += cell.reached;
        came += cell.unsure_came;
        left += cell.unsure_left;
        let after = due.saturating_sub(reached) + came.saturating_sub(left);
        cell.least() + std::mem::replace(&mut before, after).min(after)
    };
    cells.iter().map(length).collect()
}

/// How a queue grew while it stood.
struct Growth {
    /// The cells in which it stood.
    run: Range<usize>,
    /// From the cell before, in which it began to grow, to the one in which it was longest.
    grew: Range<usize>,
    /// By how many requests, with those that were dropped.
    by: u64,
    /// How many were dropped.
    unanswered: u64,
    /// How many came.
    came: u64,
}

impl Growth {
    fn of(cells: &[Cell], lengths: &[u64], run: Range<usize>) -> Option<Self> {
        let first = run.start.saturating_sub(1);
        let of_run = || cells[run.clone()].iter();
        let due: u64 = of_run().map(|cell| cell.due).sum();
        let all: u64 = of_run().map(|cell| cell.unanswered).sum();
        let dropped = |cell: usize| match all as f64 >= DROPPED * due as f64 {
            true => cells[cell].unanswered,
            false => 0,
        };
        let mut unanswered = 0;
        let sums = run.clone().map(|cell| {
            unanswered += dropped(cell);
            (cell, unanswered)
        });
        let sums: Vec<(usize, u64)> = sums.collect();
        // the first of equal queues
        let worst = sums.into_iter().rev();
        let (peak, unanswered) =
            worst.max_by_key(|(cell, unanswered)| lengths[*cell] + unanswered)?;
        let grew = first..peak + 1;
        let came = cells[grew.clone()].iter().map(|cell| cell.due).sum();
        Some(Self {
            run,
            grew,
            by: lengths[peak].saturating_sub(lengths[first]) + unanswered,
            unanswered,
            came,
        })
    }

    /// It grew for long enough, and by more than chance explains, in a recording of `cells` cells.
    fn is_overload(&self, workers: u32, width: u64, cells: usize) -> bool {
        let seconds = |cells: usize| Nanos::new(cells as u64 * width).as_secs_f64();
        let by_chance = BEYOND_CHANCE * (self.came as f64).sqrt();
        let least = by_chance.max((LEAST_GROWTH * u64::from(workers)) as f64);
        let length = seconds(self.grew.len() - 1);
        let is_long = length >= LEAST.as_secs_f64().min(seconds(cells) / 2.0);
        is_long && self.grew.len() >= FEWEST_CELLS && self.by as f64 > least
    }
}

impl CpuTime {
    /// These times as shares, with the names of other programs; `answered` requests were answered in them.
    fn taken(&self, answered: u64, context: &RecordingContext) -> CpuTaken {
        let share = |ns: u64| ns as f64 / self.all.max(1) as f64;
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for &(thread, ns) in &self.by_thread {
            *by_name.entry(name(context, thread)).or_default() += ns;
        }
        let others = by_name.into_iter().map(|(name, ns)| TakenBy {
            name,
            share: share(ns),
        });
        let mut others: Vec<TakenBy> = others.filter(|by| by.share >= WORTH_NAMING).collect();
        others.sort_by(|a, b| b.share.total_cmp(&a.share));
        others.truncate(NAMED);
        CpuTaken {
            server_share: share(self.server),
            receive_share: share(self.receive),
            others_share: share(self.others),
            others,
            interrupts_share: share(self.interrupts),
            stalled_share: share(self.stalled),
            busy_ns_per_request: (self.server + self.receive) as f64 / answered.max(1) as f64,
        }
    }
}

fn name(context: &RecordingContext, thread: Tid) -> String {
    let known = context.threads.iter().find(|known| known.tid == thread);
    let known = known.filter(|known| !known.comm.is_empty());
    known.map_or_else(|| nameless(thread), |known| known.comm.clone())
}

/// The ranges in which all flags are true.
fn runs(flags: &[bool]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    flags.chunk_by(|a, b| a == b).filter_map(move |run| {
        let range = at..at + run.len();
        at = range.end;
        run[0].then_some(range)
    })
}

#[cfg(test)]
mod tests;
