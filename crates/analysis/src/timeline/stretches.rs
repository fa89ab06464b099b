//! Joins the timelines of some stretches of a long recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use taillab_model::{Monotonic, Tid};

use super::codes::pack_state;
use super::column::Column;
use super::line::{CpuLine, Seen, Timeline, WorkerLine, ns};
use super::state::WorkerState;

/// The timelines of some stretches of a recording. Between two stretches, the states of the workers are
/// unknown, and each CPU keeps its last state.
#[derive(Clone, Debug, Default)]
pub struct Stretches {
    cpus: BTreeMap<u16, CpuLine>,
    workers: BTreeMap<Tid, WorkerLine>,
    span: Option<(Monotonic, Monotonic)>,
    seen: Seen,
}

impl Stretches {
    /// Adds `part` from one instant to another. Stretches come in order of time; if one overlaps the last, the
    /// overlap is not added again.
    pub fn add(&mut self, part: &Timeline, from: Monotonic, to: Monotonic) {
        let from = self.span.map_or(from, |(_, end)| from.max(end));
        if from >= to {
            return;
        }
        self.seen = part.seen;
        self.span = Some((self.span.map_or(from, |(begin, _)| begin), to));
        for line in part.cpus() {
            let own = self.cpus.entry(line.cpu).or_insert_with(|| CpuLine {
                cpu: line.cpu,
                changes: Column::default(),
                meanings: Vec::new(),
                stalls: Vec::new(),
                end_ns: 0,
            });
            // a part has all codes of earlier parts
            own.meanings.clone_from(&line.meanings);
            copy(&line.changes, &mut own.changes, ns(from), ns(to));
            let inside = |from: Monotonic| move |at: &Monotonic| from <= *at && *at < to;
            let stalls = line.stalls.iter().filter(|stall| inside(from)(&stall.from));
            own.stalls.extend(stalls);
            own.end_ns = ns(to);
        }
        let unknown = pack_state(WorkerState::Unknown);
        for line in part.workers() {
            let own = self.workers.entry(line.tid).or_insert_with(|| WorkerLine {
                tid: line.tid,
                states: Column::default(),
                faults: Column::default(),
                end_ns: 0,
            });
            copy(&line.states, &mut own.states, ns(from), ns(to));
            own.states.push(ns(to), unknown);
            let mut faults = line.faults.reader_from(ns(from));
            while let Some(fault) = faults.next(&line.faults)
                && fault.at_ns < ns(to)
            {
                if fault.at_ns >= ns(from) {
                    own.faults.push_event(fault.at_ns, fault.code);
                }
            }
            own.end_ns = ns(to);
        }
    }

    /// The timeline of all stretches.
    pub fn finish(self) -> Timeline {
        let mut cpus: Vec<CpuLine> = self.cpus.into_values().collect();
        for line in &mut cpus {
            line.changes.finish();
        }
        let mut workers: Vec<WorkerLine> = self.workers.into_values().collect();
        for line in &mut workers {
            line.states.finish();
            line.faults.finish();
        }
        let places = workers.iter().enumerate();
        Timeline {
            span: self.span,
            places: Arc::new(places.map(|(place, line)| (line.tid, place)).collect()),
            cpus: cpus.into(),
            workers: workers.into(),
            seen: self.seen,
            ..Timeline::default()
        }
    }
}

/// Copies the changes from `from_ns` until `to_ns`.
fn copy(from: &Column, to: &mut Column, from_ns: u64, to_ns: u64) {
    let mut reader = from.reader_from(from_ns);
    while let Some(change) = reader.next(from)
        && change.at_ns < to_ns
    {
        to.push(change.at_ns.max(from_ns), change.code);
    }
}
