//! What held the server up, as the things that happened: a throttle, a stay of another thread, a sleep, a
//! slow service. However many pieces a delay was charged in, and however many requests it delayed, it is one
//! disturbance, with its own length.
//!
//! Pieces of one label at one place (a CPU, or a worker that sleeps) belong to one disturbance if they are
//! parts of the same stay, service or sleep, or if the gap between them is much shorter than what came before
//! it: an interrupt does not cut a throttle in two. A quota and a pause of the runtime stop all CPUs, so
//! their disturbances are joined over all of them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, LongEvents};
use taillab_model::histogram::{cell, cell_of};

use super::label::{Label, Labels};
use crate::id_map::{IdMap, grow_to};
use crate::timeline::Question;

/// log2 of the number of cells for each doubling of a length: a median is within 1.6 %.
const BITS: u32 = 5;

/// A gap of up to this part of what came before it does not end a disturbance …
const GAP: u64 = 10;

/// … unless it is longer than this: then the worker has gone on meanwhile.
const LONGEST_GAP_NS: u64 = 1_000_000;

/// A long disturbance lasts at least so many times as long as the mean one.
const LONG: f64 = 3.0;

/// The long ones are told apart if they take at least this part of the time of all.
const MOST_OF_THE_TIME: f64 = 0.5;

/// The lengths of disturbances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLengths {
    n: u64,
    sum_ns: u64,
    longest_ns: u64,
    /// How many there are in each cell of a histogram.
    cells: BTreeMap<u32, u64>,
}

impl EventLengths {
    /// Adds `n` disturbances of this length.
    pub(crate) fn add(&mut self, length_ns: u64, n: u64) {
        self.n += n;
        self.sum_ns += n * length_ns;
        self.longest_ns = self.longest_ns.max(length_ns);
        let cell = cell(length_ns, BITS) as u32;
        *self.cells.entry(cell).or_default() += n;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.n += other.n;
        self.sum_ns += other.sum_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for (&cell, &n) in &other.cells {
            *self.cells.entry(cell).or_default() += n;
        }
    }

    /// How many there are.
    pub const fn count(&self) -> u64 {
        self.n
    }

    /// Their mean length in nanoseconds; 0 without any.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.n.max(1) as f64
    }

    /// The longest; `None` without any.
    pub fn longest(&self) -> Option<Nanos> {
        (self.n > 0).then_some(Nanos::new(self.longest_ns))
    }

    /// Their median length, to 1.6 %; `None` without any.
    pub fn median(&self) -> Option<Nanos> {
        let mut below = 0;
        let (&found, _) = self.cells.iter().find(|(_, n)| {
            below += **n;
            2 * below >= self.n && below > 0
        })?;
        Some(Nanos::new(middle_of(found).min(self.longest_ns)))
    }

    /// The long ones, if few take most of the time: a mean over many short and few long ones describes neither.
    pub fn long(&self) -> Option<LongEvents> {
        let least = LONG * self.mean_ns();
        let cells = self.cells.iter().map(|(&cell, &n)| (middle_of(cell), n));
        let long = cells.filter(|(length, _)| *length as f64 >= least);
        let (events, sum_ns) = long.fold((0, 0), |(events, sum), (length, n)| {
            (events + n, sum + n * length)
        });
        (events > 0 && sum_ns as f64 >= MOST_OF_THE_TIME * self.sum_ns as f64).then(|| LongEvents {
            events,
            mean_ns: match events {
                1 => self.longest_ns as f64,
                _ => (sum_ns as f64 / events as f64).min(self.longest_ns as f64),
            },
        })
    }
}

/// The length in the middle of a cell of the histogram.
fn middle_of(cell: u32) -> u64 {
    let (least, width) = cell_of(cell as usize, BITS);
    least + (width - 1) / 2
}

/// Where a disturbance is: neither two CPUs nor two sleeping workers share one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Site {
    Cpu(usize),
    Worker(usize),
}

/// What a piece of a delay is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceOrigin {
    /// Something that began then: a segment of a CPU, or a pause.
    Stay {
        /// In nanoseconds since boot; all of it counts, even if no request waited yet.
        since_ns: u64,
    },
    /// A wait for a CPU on which a thread is, or which is idle, since then: it counts from when somebody waited.
    Wait {
        /// In nanoseconds since boot.
        since_ns: u64,
    },
    /// The service of the request at this place, of which each has its own.
    Service(usize),
    /// A sleep that began then, in the service of the request at this place, if there is one.
    Sleep(u64, Option<usize>),
    /// The sending of the response to the request at this place: a client that takes it bit by bit is waited for once.
    Sending(usize),
    /// A sleep, of which only parts have this label: what else a lock was held for between them does not lengthen it.
    Chain(u64, Option<usize>),
    /// A wait for the answer to this question: a thread that serves many clients may sleep often meanwhile.
    Question(Question),
}

impl PieceOrigin {
    /// Whether the next piece is surely a part of the same disturbance; `None` if that depends on the gap.
    fn continues(self, next: Self) -> Option<bool> {
        match (self, next) {
            (Self::Service(this), Self::Service(next))
            | (Self::Sending(this), Self::Sending(next)) => Some(this == next),
            (Self::Sleep(_, this), Self::Sleep(_, next)) if this != next => Some(false),
            (Self::Chain(..), Self::Chain(..)) => Some(self == next),
            _ => (self == next).then_some(true),
        }
    }
}

/// A disturbance that may go on.
#[derive(Clone, Copy, Debug)]
struct Open {
    from_ns: u64,
    to_ns: u64,
    length_ns: u64,
    part_of: PieceOrigin,
}

impl Open {
    /// Adds a piece, if it belongs to this.
    fn goes_on(&mut self, piece: &Range<u64>, part_of: PieceOrigin) -> bool {
        let (from_ns, to_ns) = (piece.start, piece.end);
        let gap_ns = from_ns.saturating_sub(self.to_ns);
        let known = self.part_of.continues(part_of);
        if !known.unwrap_or_else(|| is_short(gap_ns, self.length_ns)) {
            return false;
        }
        // what interrupts a service does not lengthen it; a throttle goes on while packets come in
        let bridged_ns = match part_of {
            PieceOrigin::Service(_) | PieceOrigin::Chain(..) => 0,
            _ => gap_ns,
        };
        self.length_ns += bridged_ns + to_ns.saturating_sub(from_ns.max(self.to_ns));
        self.to_ns = self.to_ns.max(to_ns);
        self.part_of = part_of;
        true
    }
}

const fn is_short(gap_ns: u64, before_ns: u64) -> bool {
    gap_ns <= before_ns / GAP && gap_ns <= LONGEST_GAP_NS
}

/// A question that was waited for.
#[derive(Clone, Copy, Debug)]
struct WaitedFor {
    question: Question,
    /// When it was last waited for; not before the answer.
    to_ns: u64,
}

/// The questions of a worker that are remembered: so many may be open at once, and each is counted once.
const MOST_QUESTIONS: usize = 64;

/// Collects the disturbances of all labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Disturbances {
    /// What ended before is not counted: it delayed requests of the warm-up only.
    from_ns: u64,
    open: IdMap<Open, u64>,
    /// The latest questions, by label and worker.
    questions: BTreeMap<(Label, usize), VecDeque<WaitedFor>>,
    ended: Vec<EventLengths>,
    /// Those of causes that stop all CPUs at once, by label, in order of their beginnings: they are joined.
    of_all: BTreeMap<Label, Vec<Range<u64>>>,
}

impl Disturbances {
    /// None yet; what ends before `from_ns` is not counted.
    pub(super) fn since(from_ns: u64) -> Self {
        Self {
            from_ns,
            ..Self::default()
        }
    }

    /// A piece of a delay. Pieces of one label at one place come in order of time.
    pub(super) fn add(
        &mut self,
        (cause, label): (Cause, Label),
        site: Site,
        mut piece: Range<u64>,
        part_of: PieceOrigin,
    ) {
        // of the hypervisor, which made the wait longer, it is a piece like any other
        if let (Cause::Upstream, PieceOrigin::Question(question), Site::Worker(w)) =
            (cause, part_of, site)
        {
            return self.waited_for((label, w), question, piece.end);
        }
        let part_of = match (cause, part_of) {
            (Cause::Client, PieceOrigin::Sleep(_, Some(place))) => PieceOrigin::Sending(place),
            _ => part_of,
        };
        let key = match site {
            Site::Cpu(k) => u64::from(label) << 32 | (k as u64) << 1,
            Site::Worker(w) => u64::from(label) << 32 | (w as u64) << 1 | 1,
        };
        let open = self.open.get_mut(&key);
        if let Some(open) = open
            && open.goes_on(&piece, part_of)
        {
            return;
        }
        if let PieceOrigin::Stay { since_ns } = part_of {
            piece.start = piece.start.min(since_ns);
        }
        let new = Open {
            from_ns: piece.start,
            to_ns: piece.end,
            length_ns: piece.end - piece.start,
            part_of,
        };
        if let Some(before) = self.open.insert(key, new) {
            self.end(label, stops_all(cause), before);
        }
    }

    /// Worker `w` waited until `to_ns` for the answer to a question.
    fn waited_for(&mut self, (label, w): (Label, usize), question: Question, to_ns: u64) {
        let latest = self.questions.entry((label, w)).or_default();
        let to_ns = to_ns.max(question.to_ns);
        let known = latest.iter_mut().rev();
        if let Some(known) = known.into_iter().find(|known| known.question == question) {
            known.to_ns = known.to_ns.max(to_ns);
            return;
        }
        latest.push_back(WaitedFor { question, to_ns });
        if latest.len() > MOST_QUESTIONS
            && let Some(oldest) = latest.pop_front()
        {
            self.answered(label, oldest);
        }
    }

    /// A question is not waited for any more.
    fn answered(&mut self, label: Label, waited: WaitedFor) {
        if waited.to_ns > self.from_ns {
            let length_ns = waited.to_ns - waited.question.from_ns;
            grow_to(&mut self.ended, label as usize).add(length_ns, 1);
        }
    }

    /// Ends those of workers that have gone: `is_there` says of a worker's place whether it is taken.
    pub(super) fn forget(&mut self, labels: &Labels, is_there: impl Fn(usize) -> bool) {
        let has_gone = |key: &u64| key & 1 == 1 && !is_there((*key as u32 >> 1) as usize);
        for ((label, w), waited) in std::mem::take(&mut self.questions) {
            match is_there(w) {
                true => drop(self.questions.insert((label, w), waited)),
                false => waited.into_iter().for_each(|one| self.answered(label, one)),
            }
        }
        let gone: Vec<(u64, Open)> = self.open.extract_if(|key, _| has_gone(key)).collect();
        for (key, open) in gone {
            let label = (key >> 32) as Label;
            self.end(label, stops_all(labels.cause(label)), open);
        }
    }

    /// How many go on, or may.
    pub(super) fn len(&self) -> usize {
        let questions = self.questions.values().map(VecDeque::len);
        self.open.len() + questions.sum::<usize>()
    }

    fn end(&mut self, label: Label, of_all: bool, open: Open) {
        if open.to_ns <= self.from_ns {
            return;
        }
        if of_all {
            let spans = self.of_all.entry(label).or_default();
            join(spans, open.from_ns..open.to_ns);
        } else {
            grow_to(&mut self.ended, label as usize).add(open.length_ns, 1);
        }
    }

    /// The lengths by label.
    pub(super) fn finish(mut self, labels: &Labels) -> Vec<EventLengths> {
        for (key, open) in std::mem::take(&mut self.open) {
            let label = (key >> 32) as Label;
            self.end(label, stops_all(labels.cause(label)), open);
        }
        for ((label, _), waited) in std::mem::take(&mut self.questions) {
            waited.into_iter().for_each(|one| self.answered(label, one));
        }
        self.ended.resize(labels.len(), EventLengths::default());
        for (label, spans) in self.of_all {
            let lengths = &mut self.ended[label as usize];
            spans
                .iter()
                .for_each(|span| lengths.add(span.end - span.start, 1));
        }
        self.ended
    }
}

/// Whether one event of this cause stops all CPUs of the server.
const fn stops_all(cause: Cause) -> bool {
    matches!(cause, Cause::Throttled | Cause::Pause)
}

/// Adds a span to those in order of their beginnings, and joins those that overlap or nearly do.
fn join(spans: &mut Vec<Range<u64>>, mut span: Range<u64>) {
    let touches = |a: &Range<u64>, b: &Range<u64>| {
        let gap_ns = a.start.max(b.start).saturating_sub(a.end.min(b.end));
        is_short(gap_ns, (a.end - a.start).max(b.end - b.start))
    };
    let mut place = spans.partition_point(|other| other.start <= span.start);
    while place > 0 && touches(&spans[place - 1], &span) {
        place -= 1;
        let before = spans.remove(place);
        span = span.start.min(before.start)..span.end.max(before.end);
    }
    while place < spans.len() && touches(&spans[place], &span) {
        span.end = span.end.max(spans.remove(place).end);
    }
    spans.insert(place, span);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taillab_model::RecordingContext;

    use super::*;
    use crate::ledger::label::CulpritId;

    /// The pieces of one cause on CPUs: (CPU, from, to), each a segment of its own.
    fn lengths(cause: Cause, pieces: &[(usize, u64, u64)]) -> EventLengths {
        let mut labels = Labels::new(&RecordingContext::default());
        let label = labels.label(cause, CulpritId::Nobody);
        let mut disturbances = Disturbances::default();
        for &(k, from, to) in pieces {
            let since_ns = from;
            let part_of = PieceOrigin::Stay { since_ns };
            disturbances.add((cause, label), Site::Cpu(k), from..to, part_of);
        }
        disturbances.finish(&labels).swap_remove(label as usize)
    }

    #[test]
    fn an_interrupt_does_not_cut_a_disturbance_in_two() {
        let pieces = [(0, 0, 1_000), (0, 1_050, 2_000), (0, 5_000, 6_000)];
        let found = lengths(Cause::Background, &pieces);
        assert_eq!((found.count(), found.mean_ns()), (2, 1_500.0));
        assert_eq!(found.longest(), Some(Nanos::new(2_000)));
    }

    /// A packet comes 10 µs after a quota has stopped the server, and is received for 4 µs.
    #[test]
    fn a_packet_does_not_cut_a_throttle_in_two() {
        let mut labels = Labels::new(&RecordingContext::default());
        let label = labels.label(Cause::Throttled, CulpritId::Nobody);
        let mut disturbances = Disturbances::default();
        for (since_ns, from, to) in [
            (90, 100, 10_100),
            (90, 14_100, 500_000),
            (900_000, 900_000, 910_000),
        ] {
            let (of, part_of) = ((Cause::Throttled, label), PieceOrigin::Wait { since_ns });
            disturbances.add(of, Site::Cpu(0), from..to, part_of);
        }
        let found = disturbances.finish(&labels).swap_remove(label as usize);
        assert_eq!(
            (found.count(), found.longest()),
            (2, Some(Nanos::new(499_900)))
        );
    }

    /// Fifty requests in 5,000 wait 30 ms for a backend, the others 0.3 ms.
    #[test]
    fn few_long_ones_that_take_most_of_the_time_are_told_apart() {
        let mut lengths = EventLengths::default();
        lengths.add(200_000, 3_000);
        assert_eq!(lengths.long(), None, "none stands out");
        lengths.add(30_000_000, 15);
        assert_eq!(lengths.long(), None, "they take 450 ms of 1,050");
        lengths.add(30_000_000, 35);
        let long = lengths.long().expect("they take 1.5 s of 2.1 s");
        assert_eq!(long.events, 50);
        assert!((long.mean_ns / 3e7 - 1.0).abs() < 0.016, "{long:?}");
    }

    #[test]
    fn a_quota_that_stops_two_cpus_is_one_event_and_two_threads_are_two() {
        let pieces = [(0, 0, 9_000), (1, 200, 9_100), (0, 50_000, 59_000)];
        assert_eq!(lengths(Cause::Throttled, &pieces).count(), 2);
        assert_eq!(lengths(Cause::Background, &pieces).count(), 3);
    }

    /// A client makes room for a part of a response four times, and the server sends between.
    #[test]
    fn a_response_that_is_taken_bit_by_bit_waits_once() {
        let mut labels = Labels::new(&RecordingContext::default());
        let label = labels.label(Cause::Client, CulpritId::Nobody);
        let mut disturbances = Disturbances::default();
        for (place, from, to) in [(4, 0, 100), (4, 180, 300), (4, 400, 500), (5, 700, 800)] {
            let part_of = PieceOrigin::Sleep(from, Some(place));
            disturbances.add((Cause::Client, label), Site::Worker(0), from..to, part_of);
        }
        let found = disturbances.finish(&labels).swap_remove(label as usize);
        assert_eq!((found.count(), found.mean_ns()), (2, 300.0));
    }

    /// A holder reads from a disk three times in one wait, and works between: the wait is one event, as long as the reads.
    #[test]
    fn parts_of_one_chain_are_one_event_without_what_is_between_them() {
        let mut labels = Labels::new(&RecordingContext::default());
        let label = labels.label(Cause::BlockedIo, CulpritId::Call(17));
        let mut disturbances = Disturbances::default();
        for (since_ns, from, to) in [
            (90, 100, 400),
            (90, 600, 900),
            (90, 1_100, 1_400),
            (5_000, 5_000, 5_300),
        ] {
            let (of, part_of) = (
                (Cause::BlockedIo, label),
                PieceOrigin::Chain(since_ns, Some(3)),
            );
            disturbances.add(of, Site::Worker(0), from..to, part_of);
        }
        let found = disturbances.finish(&labels).swap_remove(label as usize);
        assert_eq!((found.count(), found.mean_ns()), (2, 600.0));
    }

    /// Two questions to one server are open at once, and the worker sleeps five times; then the rest of an answer comes.
    #[test]
    fn a_question_is_one_event_however_often_its_thread_sleeps() {
        let mut labels = Labels::new(&RecordingContext::default());
        let label = labels.label(Cause::Upstream, CulpritId::Nobody);
        let mut disturbances = Disturbances::since(20);
        let question = |from_ns, to_ns| Question {
            from_ns,
            to_ns,
            server: 1,
        };
        let (first, second) = (question(100, 1_100), question(300, 900));
        for (of, from, to) in [
            (question(5, 10), 6, 11),
            (first, 110, 200),
            (second, 310, 500),
            (first, 600, 700),
            (second, 800, 900),
            (first, 950, 1_100),
            (first, 1_200, 1_300),
        ] {
            let part_of = PieceOrigin::Question(of);
            disturbances.add((Cause::Upstream, label), Site::Worker(0), from..to, part_of);
        }
        let found = disturbances.finish(&labels).swap_remove(label as usize);
        assert_eq!((found.count(), found.mean_ns()), (2, 900.0));
        assert_eq!(found.longest(), Some(Nanos::new(1_200)));
    }

    #[test]
    fn what_ended_in_the_warm_up_is_not_counted() {
        let mut labels = Labels::new(&RecordingContext::default());
        for cause in [Cause::Background, Cause::Throttled] {
            let label = labels.label(cause, CulpritId::Nobody);
            let mut disturbances = Disturbances::since(5_000);
            for since_ns in [1_000, 4_500, 9_000] {
                let span = since_ns..since_ns + 1_000;
                let part_of = PieceOrigin::Stay { since_ns };
                disturbances.add((cause, label), Site::Cpu(0), span, part_of);
            }
            let found = disturbances.finish(&labels).swap_remove(label as usize);
            assert_eq!(found.count(), 2, "{cause:?}");
        }
    }

    #[test]
    fn the_median_is_that_of_the_events() {
        let mut lengths = EventLengths::default();
        assert_eq!(lengths.median(), None);
        lengths.add(10, 4);
        lengths.add(1_000_000, 3);
        assert_eq!(lengths.median(), Some(Nanos::new(10)));
        assert_eq!(lengths.longest(), Some(Nanos::new(1_000_000)));
    }

    proptest! {
        /// However a delay is cut into pieces, it is the same events.
        #[test]
        fn cuts_change_nothing(
            events in prop::collection::vec((1_u64..50_000, 2_000_000_u64..9_000_000), 1..20),
            cut in 1_u64..20_000,
        ) {
            let (mut whole, mut cuts, mut at) = (Vec::new(), Vec::new(), 0);
            for (length, gap) in events {
                let (from, to) = (at + gap, at + gap + length);
                whole.push((0, from, to));
                let mut begin = from;
                while begin < to {
                    let end = to.min(begin + cut);
                    cuts.push((0, begin, end));
                    begin = end;
                }
                at = to;
            }
            for cause in [Cause::Throttled, Cause::Softirq] {
                prop_assert_eq!(lengths(cause, &cuts), lengths(cause, &whole));
            }
        }
    }
}
