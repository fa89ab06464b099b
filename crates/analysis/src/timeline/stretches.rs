//! Joins the timelines of some stretches of a long recording.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use taillab_model::{Monotonic, Tid};

use super::codes::pack_state;
use super::column::Column;
use super::line::{CpuLine, RecordedKinds, ThrottleWindow, Timeline, WorkerLine, ns};
use super::questions::Questions;
use super::stalls::Stall;
use super::state::{Top, WorkerState};

/// Of more workers than these, those that sleep in a stretch are left out: a server may start one for each connection,
/// and a line for each in every stretch would fill the memory.
const MANY: usize = 1 << 10;

/// The timelines of some stretches of a recording. Between two stretches, the states of the workers are
/// unknown, and each CPU keeps its last state.
#[derive(Clone, Debug, Default)]
pub struct Stretches {
    cpus: BTreeMap<u16, CpuStretches>,
    workers: BTreeMap<Tid, WorkerLine>,
    throttled: Vec<ThrottleWindow>,
    retransmissions: Vec<(Monotonic, u32)>,
    span: Option<(Monotonic, Monotonic)>,
    seen: RecordedKinds,
}

/// What happened on one CPU in all stretches so far.
#[derive(Clone, Debug)]
struct CpuStretches {
    line: CpuLine,
    /// The codes in `line`, from the first part on that does not continue those of all parts before it. Until then, they
    /// are the part's own, which all stretches of a window share.
    codes: Option<Codes>,
}

/// Codes by their meanings.
#[derive(Clone, Debug, Default)]
struct Codes {
    meanings: Vec<(Tid, Top)>,
    places: HashMap<(Tid, Top), u64>,
}

impl CpuStretches {
    fn new(cpu: u16) -> Self {
        let line = CpuLine {
            cpu,
            changes: Column::default(),
            meanings: Arc::default(),
            stalls: Vec::new(),
            end_ns: 0,
        };
        Self { line, codes: None }
    }

    fn add(&mut self, part: &CpuLine, from: Monotonic, to: Monotonic) {
        let own = &mut self.line;
        let span = ns(from)..ns(to);
        // a part has all codes of earlier parts, unless unused ones were forgotten meanwhile
        if self.codes.is_none() && part.meanings.starts_with(&own.meanings) {
            own.meanings = Arc::clone(&part.meanings);
            copy(&part.changes, &mut own.changes, span, |code| code);
        } else {
            let before = &mut own.meanings;
            let codes = (self.codes)
                .get_or_insert_with(|| std::mem::take(before).iter().copied().collect());
            let mut known = vec![None; part.meanings.len()];
            let mut renamed = |code: u64| {
                let place = code as usize;
                *known[place].get_or_insert_with(|| codes.of(part.meanings[place]))
            };
            copy(&part.changes, &mut own.changes, span, &mut renamed);
        }
        // a stall that began before the stretch is a part of it too
        let inside = (part.stalls.iter()).filter(|stall| stall.from < to && stall.to > from);
        own.stalls.extend(inside.map(|stall| Stall {
            from: stall.from.max(from),
            to: stall.to.min(to),
        }));
        own.end_ns = ns(to);
    }

    fn finish(mut self) -> CpuLine {
        self.line.changes.finish();
        if let Some(codes) = self.codes {
            self.line.meanings = codes.meanings.into();
        }
        self.line
    }
}

impl FromIterator<(Tid, Top)> for Codes {
    fn from_iter<I: IntoIterator<Item = (Tid, Top)>>(meanings: I) -> Self {
        let meanings: Vec<_> = meanings.into_iter().collect();
        let places = meanings.iter().zip(0..);
        Self {
            places: places.map(|(meaning, code)| (*meaning, code)).collect(),
            meanings,
        }
    }
}

impl Codes {
    fn of(&mut self, meaning: (Tid, Top)) -> u64 {
        *self.places.entry(meaning).or_insert_with(|| {
            self.meanings.push(meaning);
            self.meanings.len() as u64 - 1
        })
    }
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
            let own = (self.cpus.entry(line.cpu)).or_insert_with(|| CpuStretches::new(line.cpu));
            own.add(line, from, to);
        }
        // one that reaches into the stretch says how much of it was taken
        let last = self.throttled.last().map(|window| window.to);
        let windows = part.throttled().iter();
        let inside = windows.filter(|window| window.from < to && window.to > from);
        self.throttled
            .extend(inside.filter(|window| last.is_none_or(|last| window.to > last)));
        let sent_again = part.retransmissions().iter();
        self.retransmissions
            .extend(sent_again.filter(|(at, _)| (from..to).contains(at)));
        let unknown = pack_state(WorkerState::Unknown);
        let are_many = part.workers().len() > MANY;
        for line in part.workers() {
            if are_many && !self.workers.contains_key(&line.tid) && sleeps(line, from, to) {
                continue;
            }
            let own = self.workers.entry(line.tid).or_insert_with(|| WorkerLine {
                tid: line.tid,
                states: Column::default(),
                faults: Column::default(),
                questions: Questions::default(),
                end_ns: 0,
            });
            copy(&line.states, &mut own.states, ns(from)..ns(to), |code| code);
            own.states.push(ns(to), unknown);
            let mut faults = line.faults.reader_from(ns(from));
            while let Some(fault) = faults.next(&line.faults)
                && fault.at_ns < ns(to)
            {
                if fault.at_ns >= ns(from) {
                    own.faults.push_event(fault.at_ns);
                }
            }
            for question in line.questions.answered(ns(from), ns(to)) {
                own.questions.add(*question);
            }
            own.end_ns = ns(to);
        }
    }

    /// The timeline of all stretches.
    pub fn finish(self) -> Timeline {
        let cpus: Vec<CpuLine> = self.cpus.into_values().map(CpuStretches::finish).collect();
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
            throttled: self.throttled.into(),
            retransmissions: self.retransmissions.into(),
            seen: self.seen,
            forgotten: 0,
        }
    }
}

/// Whether a worker does nothing from one instant to another, as far as it is known.
fn sleeps(line: &WorkerLine, from: Monotonic, to: Monotonic) -> bool {
    let mut states = line.spans_from(from).take_while(|span| span.from < to);
    states.all(|span| matches!(span.state, WorkerState::Asleep(_) | WorkerState::Unknown))
}

/// Copies the changes in a span of time, with new codes.
fn copy(from: &Column, to: &mut Column, span: Range<u64>, mut code: impl FnMut(u64) -> u64) {
    let mut reader = from.reader_from(span.start);
    while let Some(change) = reader.next(from)
        && change.at_ns < span.end
    {
        to.push(change.at_ns.max(span.start), code(change.code));
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{Event, EventKind, Nanos, RecordingContext};

    use super::*;
    use crate::timeline::TimelineBuilder;

    /// Each change of a CPU is to another thread, so that those that have ended are forgotten.
    #[test]
    fn stretches_know_the_threads_of_each_part() {
        let time = |number: u32| Monotonic::from_nanos_since_boot(u64::from(number) * 1_000);
        let mut builder = TimelineBuilder::new(&RecordingContext::default());
        let mut stretches = Stretches::default();
        for number in 1..=150_000 {
            let kind = EventKind::Switched {
                prev: number,
                next: number + 1,
                preempted: true,
                asleep: None,
            };
            let (at, cpu) = (time(number), 0);
            builder.observe(&Event { at, cpu, kind });
            if number % 50_000 == 0 {
                let part = builder.part(time(number - 100));
                stretches.add(&part, time(number - 90), time(number - 88));
            }
        }
        let all = stretches.finish();
        let segments = all.cpu(0).unwrap().segments();
        let threads: Vec<Tid> = segments.map(|segment| segment.thread).collect();
        let expected = [50_000, 100_000, 150_000].map(|last| [last - 89, last - 88]);
        assert_eq!(threads, expected.concat());
    }

    #[test]
    fn a_stall_that_began_before_a_stretch_is_a_part_of_it() {
        let at = Monotonic::from_nanos_since_boot;
        let stall = |from, to| Stall {
            from: at(from),
            to: at(to),
        };
        let line = CpuLine {
            cpu: 0,
            changes: Column::default(),
            meanings: Arc::default(),
            stalls: vec![stall(50, 150), stall(180, 260)],
            end_ns: 400,
        };
        let part = Timeline {
            span: Some((at(0), at(400))),
            cpus: [line].into(),
            ..Timeline::default()
        };
        let mut stretches = Stretches::default();
        stretches.add(&part, at(100), at(200));
        stretches.add(&part, at(200), at(300));
        let all = stretches.finish();
        let expected = [stall(100, 150), stall(180, 200), stall(200, 260)];
        assert_eq!(all.cpu(0).unwrap().stalls(), expected);
    }

    /// Parts overlap, since a window keeps what the next one may refer to.
    #[test]
    fn what_lies_in_a_stretch_is_kept_once() {
        let at = Monotonic::from_nanos_since_boot;
        let window = |from, to| ThrottleWindow {
            from: at(from),
            to: at(to),
            held_back: Nanos::new(to - from),
        };
        let part = |span: (u64, u64), windows: &[ThrottleWindow], resent: &[u64]| Timeline {
            span: Some((at(span.0), at(span.1))),
            throttled: windows.into(),
            retransmissions: resent.iter().map(|ns| (at(*ns), 7)).collect(),
            ..Timeline::default()
        };
        let mut stretches = Stretches::default();
        let (early, across, late) = (window(0, 90), window(180, 220), window(300, 310));
        let first = part((0, 250), &[early, across], &[95, 150, 199, 240]);
        stretches.add(&first, at(100), at(200));
        let second = part((90, 400), &[across, late], &[150, 199, 240, 390]);
        stretches.add(&second, at(150), at(350));
        let all = stretches.finish();
        assert_eq!(all.throttled(), [across, late]);
        let resent: Vec<Monotonic> = all.retransmissions().iter().map(|(at, _)| *at).collect();
        assert_eq!(resent, [at(150), at(199), at(240)]);
    }
}
