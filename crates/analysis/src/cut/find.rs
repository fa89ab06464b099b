//! Finds in the generator's own record where it was held up.

use taillab_model::{Cut, CutReason, Monotonic, Nanos};

use super::occupants::Occupants;

/// A request sent later than this does not follow the schedule. On one machine, a send takes a tenth of
/// it.
const LATE: Nanos = Nanos::from_micros(100);

/// Sends are on time again when one is no later than this. (A few may be due at once.)
const ON_TIME: Nanos = Nanos::from_micros(25);

/// If more time passes between two sends although the second was due, something held the thread up.
const HELD_UP: Nanos = Nanos::from_micros(25);

/// The record of one thread of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'a> {
    /// The sends at which it was noticed that another task had had the thread's CPU, and for how long; in
    /// order of time.
    pub waits: &'a [(Monotonic, Nanos)],
    /// The CPU on which the thread ran.
    pub cpu: u32,
    /// Which threads had that CPU.
    pub occupants: &'a Occupants<'a>,
}

/// The stretches in which a thread sent late because something held it up. `sends` are the thread's
/// sends (when due, when sent) in order.
///
/// A stretch begins when the first late request was due, and ends with the first one that was sent on
/// time. The server plays no part in this. A burst in the schedule, which no sender can send at once,
/// is no reason for a cut either: cutting it would thin out the arrivals.
pub fn cuts_of(
    sends: impl IntoIterator<Item = (Monotonic, Monotonic)>,
    thread: Thread<'_>,
) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut spell: Option<Spell> = None;
    let mut before: Option<Monotonic> = None;
    for (due, sent) in sends {
        let nothing_since = before.map_or(due, |before| before.max(due));
        let gap = sent.saturating_since(nothing_since);
        before = Some(sent);
        let late = sent.saturating_since(due);
        if late <= ON_TIME {
            cuts.extend(spell.take().and_then(|spell| spell.cut(sent, thread)));
            continue;
        }
        let spell = spell.get_or_insert_with(|| Spell::new(due));
        spell.latest = spell.latest.max(late);
        spell.longest = spell.longest.max(gap);
        if gap > HELD_UP {
            spell.held_up += gap;
            let wait = thread.waits.binary_search_by_key(&sent, |(at, _)| *at);
            spell.waited += wait.map_or(Nanos::ZERO, |place| thread.waits[place].1.min(gap));
        }
    }
    if let (Some(spell), Some(end)) = (spell, before) {
        // just after the last send
        cuts.extend(spell.cut(end + Nanos::new(1), thread));
    }
    cuts
}

/// The cuts of several threads in order of time.
pub fn merged(threads: impl IntoIterator<Item = Vec<Cut>>) -> Vec<Cut> {
    let mut all: Vec<Cut> = threads.into_iter().flatten().collect();
    all.sort_by_key(|cut| cut.from);
    all
}

/// A run of late sends.
struct Spell {
    from: Monotonic,
    /// The lateness of the latest send.
    latest: Nanos,
    /// The longest time in which nothing was sent although something was due.
    longest: Nanos,
    /// The sum of such times that are longer than a send takes.
    held_up: Nanos,
    /// The part of that in which another task had the CPU.
    waited: Nanos,
}

impl Spell {
    const fn new(from: Monotonic) -> Self {
        Self {
            from,
            latest: Nanos::ZERO,
            longest: Nanos::ZERO,
            held_up: Nanos::ZERO,
            waited: Nanos::ZERO,
        }
    }

    /// The cut for it, if there is one.
    fn cut(self, to: Monotonic, thread: Thread<'_>) -> Option<Cut> {
        let Thread { cpu, occupants, .. } = thread;
        let most = |part: Nanos, whole: Nanos| part.get() >= whole.get() / 2;
        if self.latest < LATE || !most(self.held_up, self.latest) {
            return None;
        }
        let (why, who) = if most(self.waited, self.held_up) {
            let to_blame = occupants.to_blame(self.from, to, self.waited);
            let who = to_blame.unwrap_or_else(|| "another task".to_owned());
            (
                CutReason::GeneratorNotScheduled,
                format!("{who} on CPU {cpu}"),
            )
        } else if most(self.longest, self.latest) {
            let who = format!("the hypervisor, or an interrupt, on CPU {cpu}");
            (CutReason::GeneratorStalled, who)
        } else {
            let who = format!("interrupts, or the hypervisor, on CPU {cpu}");
            (CutReason::GeneratorLate, who)
        };
        Some(Cut {
            from: self.from,
            to,
            why,
            who,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1_000)
    }

    fn cuts(sends: &[(u64, u64)], waits: &[(u64, u64)]) -> Vec<(Monotonic, Monotonic, CutReason)> {
        let waits: Vec<_> = (waits.iter())
            .map(|&(us, lasted)| (at(us), Nanos::from_micros(lasted)))
            .collect();
        let sends = sends.iter().map(|&(due, sent)| (at(due), at(sent)));
        let thread = Thread {
            waits: &waits,
            cpu: 1,
            occupants: &Occupants::default(),
        };
        let cuts = cuts_of(sends, thread);
        cuts.into_iter()
            .map(|cut| (cut.from, cut.to, cut.why))
            .collect()
    }

    #[test]
    fn a_stall_is_cut_until_sends_are_on_time() {
        let sends = [
            (100, 101),
            (200, 201),
            // from 250 to 900 nothing could be sent
            (300, 900),
            (400, 907),
            (880, 914),
            (1_000, 1_001),
            (1_100, 1_101),
        ];
        let stalled = CutReason::GeneratorStalled;
        assert_eq!(cuts(&sends, &[]), [(at(300), at(1_001), stalled)]);
        let other = CutReason::GeneratorNotScheduled;
        assert_eq!(cuts(&sends, &[(900, 500)]), [(at(300), at(1_001), other)]);
    }

    #[test]
    fn several_small_holds_are_one_lateness() {
        let sends = [(0, 30), (10, 60), (20, 90), (30, 130), (200, 201)];
        let late = CutReason::GeneratorLate;
        assert_eq!(cuts(&sends, &[]), [(at(0), at(201), late)]);
    }

    /// A hundred requests that are due at once take the time of a send each: the schedule itself does that.
    #[test]
    fn a_burst_of_the_schedule_is_not_cut() {
        let mut sends: Vec<(u64, u64)> = (0..100).map(|i| (1_000, 1_000 + 7 * i)).collect();
        sends.push((5_000, 5_001));
        assert_eq!(cuts(&sends, &[]), []);
    }

    #[test]
    fn a_stall_at_the_end_is_cut_to_the_last_send() {
        let stalled = CutReason::GeneratorStalled;
        let sends = [(0, 1), (100, 900), (200, 903)];
        assert_eq!(
            cuts(&sends, &[]),
            [(at(100), at(903) + Nanos::new(1), stalled)]
        );
        assert_eq!(cuts(&[], &[]), []);
    }

    proptest! {
        /// A generator that stalls now and then: the cuts are in order, nothing late is left, and
        /// everything on time is left.
        #[test]
        fn what_is_left_was_sent_on_time(
            gaps in prop::collection::vec(30_u64..200, 1..300),
            stalls in prop::collection::vec((0_u64..30_000, 1_u64..5_000), 0..6),
        ) {
            let mut stalls = stalls;
            stalls.sort_unstable();
            let (mut due, mut free, mut sends) = (0, 0, Vec::new());
            for gap in gaps {
                due += gap;
                let mut sent = due.max(free);
                for &(from, lasted) in &stalls {
                    if (from..from + lasted).contains(&sent) {
                        sent = from + lasted;
                    }
                }
                free = sent + 5;
                sends.push((due, sent));
            }
            let found = cuts(&sends, &[]);
            prop_assert!(found.is_sorted_by(|a, b| a.1 <= b.0));
            for (due, sent) in sends {
                let cut = found.iter().any(|&(from, to, _)| (from..to).contains(&at(sent)));
                let late = Nanos::from_micros(sent - due);
                prop_assert!(!cut || late > ON_TIME, "{due} {sent}");
                prop_assert!(cut || late < LATE, "{due} {sent}");
            }
        }
    }
}
