//! When a CPU stood still, and by which evidence.
//!
//! When a hypervisor takes a CPU away, no event is recorded, and half of such stalls do not even show
//! as steal. What can be seen is silence: a thread is current, and for far longer than usual there is no
//! event on that CPU. But a request that computes for long is silent too. So silence alone never counts
//! as a stall; there must be evidence:
//!
//! - **a canary** (a thread that only looks at the clock) missed at least half of the same time, and
//!   at least half of what it missed was this. It is on another CPU, and what it missed counts for all
//!   of them: a hypervisor mostly stops the whole machine. But it counts only for those that were
//!   silent themselves: a CPU that was heard meanwhile did not stand still;
//! - **steal**: the hypervisor itself reports that it took this CPU, and one silence shortly before,
//!   and since its last report, is about as long. The report counts in ticks and does not say when.
//!   Time taken in many small parts is therefore not assigned to any silence, rather than to the
//!   wrong one;
//! - **another CPU** fell silent and spoke again at the same two moments, to within a tenth of the
//!   silence, and both had threads of the server. With more such CPUs, they must agree as much more
//!   closely: of many that compute for equally long, some always begin together by chance. Where workers
//!   compute so often for about as long that one begins with another by chance in more than 1 of 50 cases,
//!   it shows nothing. (For other threads only switches are recorded: while one of them computes, a thread
//!   that spins for its answer on another CPU is silent for exactly as long);
//! - **the timer**: the silence ended with a tick of the local timer (or with other interrupts
//!   that had waited too, and then a tick), and by the rhythm of the ticks before, that tick
//!   was due in the middle of it. A thread that computes does not delay a tick;
//! - **another CPU's interrupt**: a packet that another CPU had received reached its socket only when
//!   the silence ended, and that other CPU had received a later packet long before (see
//!   [`super::missed_interrupts`]). This needs no current thread: an idle CPU must react too, except for one in
//!   a power state, which takes its time to leave it.
//!
//! Without evidence the time remains that of the thread. Where events were lost (in a blind window),
//! silence shows nothing.

use std::collections::BTreeMap;

use taillab_model::{Monotonic, Nanos};

use crate::spans::earlier;

/// Shorter silences are ignored.
pub const MIN_SILENCE: Nanos = Nanos::from_micros(100);

/// A time in which a CPU stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it began, as far as it is proven.
    pub from: Monotonic,
    /// When it ended.
    pub to: Monotonic,
}

/// A time in which a thread was current on a CPU and nothing was recorded there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) from: Monotonic,
    pub(super) to: Monotonic,
    /// The tick of the local timer that ended it, or that came right after its end.
    pub(super) tick: Option<Monotonic>,
    /// The thread was one of the server's, for which more is recorded than switches.
    pub(super) own: bool,
}

/// Interrupts that waited for the end of the same silence come within this time. Those with a higher vector
/// than the timer's come before the tick, and so do their softirqs.
pub(super) const RIGHT_AFTER: Nanos = Nanos::from_micros(50);

/// Time stolen from a CPU, as one event reports it: since the CPU's last such event, or shortly before
/// this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct StolenTime {
    pub(super) cpu: u16,
    pub(super) from: Option<Monotonic>,
    pub(super) to: Monotonic,
    pub(super) lasted: Nanos,
}

impl Silence {
    /// The local timer ticked at `at`; if that was right after this silence, the tick ended it.
    pub(super) fn ticked(&mut self, at: Monotonic) {
        if self.tick.is_none() && self.to <= at && at.saturating_since(self.to) <= RIGHT_AFTER {
            self.tick = Some(at);
        }
    }

    const fn length(&self) -> u64 {
        self.to.saturating_since(self.from).get()
    }

    fn both(&self, from: Monotonic, to: Monotonic) -> Option<(Monotonic, Monotonic)> {
        let (from, to) = (self.from.max(from), self.to.min(to));
        (from < to).then_some((from, to))
    }
}

/// The stalls of each CPU, in order of time, among its silences (in order of time).
pub(super) fn find(
    silences: &BTreeMap<u16, Vec<Silence>>,
    canary: &[(u16, Monotonic, Monotonic)],
    stolen: &[StolenTime],
    missed_interrupts: &[(u16, Stall)],
) -> BTreeMap<u16, Vec<Stall>> {
    let mut found: BTreeMap<u16, Vec<Stall>> = BTreeMap::new();
    // what one canary missed does not overlap; what several missed may
    let mut missed: BTreeMap<u16, Vec<(Monotonic, Monotonic)>> = BTreeMap::new();
    for &(of, from, to) in canary {
        missed.entry(of).or_default().push((from, to));
    }
    missed.values_mut().for_each(|times| times.sort_unstable());
    let of_server = ServerSilences::among(silences);
    for (&cpu, own) in silences {
        let stalls = found.entry(cpu).or_default();
        for silence in own {
            let by_canary = missed.values().find_map(|of| seen_by_canary(silence, of));
            let proven = by_canary.or_else(|| of_server.simultaneous(cpu, silence));
            stalls.extend(proven.map(|(from, to)| Stall { from, to }));
        }
        late_ticks(own, stalls);
    }
    for &(cpu, stall) in missed_interrupts {
        if let Some(stalls) = found.get_mut(&cpu)
            && !overlaps(stalls, stall.from, stall.to)
        {
            stalls.push(stall);
        }
    }
    for steal in stolen {
        let Some(own) = silences.get(&steal.cpu) else {
            continue;
        };
        by_steal(steal, own, found.entry(steal.cpu).or_default());
    }
    for stalls in found.values_mut() {
        stalls.sort_by_key(|stall| stall.from);
    }
    found
}

/// The part of the silence that this canary missed, if it is at least half of the silence and of what the
/// canary missed.
fn seen_by_canary(
    silence: &Silence,
    missed: &[(Monotonic, Monotonic)],
) -> Option<(Monotonic, Monotonic)> {
    let first = missed.partition_point(|&(_, to)| to <= silence.from);
    let near = missed[first..]
        .iter()
        .take_while(|(from, _)| *from < silence.to);
    near.filter_map(|&(from, to)| {
        let both = silence.both(from, to)?;
        let common = both.1.saturating_since(both.0).get();
        let whole = to.saturating_since(from).get();
        (2 * common >= silence.length() && 2 * common >= whole).then_some(both)
    })
    .next()
}

/// Silences that begin together by chance in more than 1 of so many cases show nothing,
const BY_CHANCE_ONE_IN: u64 = 50;

/// if there are at least this many about as long.
const ALIKE: usize = 20;

/// The silences of the server's threads on all CPUs, in order of their beginnings: CPUs are not compared
/// with each other one by one, since there may be hundreds.
struct ServerSilences<'s> {
    /// Each with its CPU.
    silences: Vec<(u16, &'s Silence)>,
    /// How many CPUs have any.
    cpus: u64,
    /// Their lengths, the shortest first, and the time in which they were.
    lengths: Vec<u64>,
    span_ns: u64,
}

impl<'s> ServerSilences<'s> {
    fn among(silences: &'s BTreeMap<u16, Vec<Silence>>) -> Self {
        let mut of_server = Self {
            silences: Vec::new(),
            cpus: 0,
            lengths: Vec::new(),
            span_ns: 0,
        };
        for (&cpu, of_cpu) in silences {
            let before = of_server.silences.len();
            let own = of_cpu.iter().filter(|silence| silence.own);
            of_server.silences.extend(own.map(|silence| (cpu, silence)));
            of_server.cpus += u64::from(of_server.silences.len() > before);
        }
        // the sort is stable
        of_server.silences.sort_by_key(|(_, silence)| silence.from);
        let all = of_server.silences.iter();
        of_server.lengths = all.map(|(_, silence)| silence.length()).collect();
        of_server.lengths.sort_unstable();
        if let [(_, first), .., (_, last)] = &of_server.silences[..] {
            of_server.span_ns = last.to.saturating_since(first.from).get();
        }
        of_server
    }

    /// Whether one as long as this would often begin within `slack` of another by chance.
    fn begins_with_another_by_chance(&self, length: u64, slack: u64) -> bool {
        let (least, most) = (length.saturating_sub(2 * slack), length + 2 * slack);
        let first = self.lengths.partition_point(|other| *other < least);
        let after = self.lengths.partition_point(|other| *other <= most);
        let alike = after - first;
        let covered = (alike as u64).saturating_mul(2 * slack);
        alike >= ALIKE && covered.saturating_mul(BY_CHANCE_ONE_IN) > self.span_ns
    }

    /// What a silence of `cpu` has in common with the one of another CPU that begins and ends with it; of
    /// several, of the CPU with the lowest number.
    fn simultaneous(&self, cpu: u16, silence: &Silence) -> Option<(Monotonic, Monotonic)> {
        if !silence.own {
            return None;
        }
        let others = self.cpus.saturating_sub(1).max(1);
        let slack = Nanos::new(silence.length() / (10 * others));
        if self.begins_with_another_by_chance(silence.length(), slack.get()) {
            return None;
        }
        let apart = |a: Monotonic, b: Monotonic| a.max(b).saturating_since(a.min(b));
        let (least, most) = (earlier(silence.from, slack), silence.from + slack);
        let first = self.silences.partition_point(|(_, o)| o.from < least);
        let near = self.silences[first..].iter();
        near.take_while(|(_, other)| other.from <= most)
            .filter(|(of, other)| *of != cpu && apart(silence.to, other.to) <= slack)
            .min_by_key(|(of, _)| *of)
            .and_then(|(_, other)| silence.both(other.from, other.to))
    }
}

/// Periods of the kernel's tick: 100, 250, 300 and 1,000 per second. The longest that fits is used, since a
/// period of 4 ms also fits 1 ms.
const TICKS_NS: [u64; 4] = [10_000_000, 4_000_000, 3_333_333, 1_000_000];

/// The stalls among the silences that a tick ended: the tick should have come earlier.
///
/// The phase of the ticks is learnt from these silences themselves: a computation of 500 µs with a tick in
/// it is two silences, of which the first ends with a tick on time. The phase (the beat) is the most frequent
/// place within the period. It counts only if at least eight ticks are within 2 % of it, and these are more
/// than half.
fn late_ticks(silences: &[Silence], stalls: &mut Vec<Stall>) {
    let ticks = || {
        let ended = silences.iter();
        ended.filter_map(|silence| Some((silence, silence.tick?.nanos_since_boot())))
    };
    for period_ns in TICKS_NS {
        let near = period_ns / 50;
        let places: Vec<u64> = ticks().map(|(_, tick_ns)| tick_ns % period_ns).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        let upto = |end: u64| sorted.partition_point(|&other| other <= end);
        let agree = |place: u64| {
            let before = sorted.partition_point(|&other| other < place);
            // places near the end of the period are near its beginning
            let wrapped = (place + near).checked_sub(period_ns);
            upto(place + near) - before + wrapped.map_or(0, upto)
        };
        let Some(beat) = sorted.iter().copied().max_by_key(|&place| agree(place)) else {
            return;
        };
        let on_beat = agree(beat);
        if on_beat < 8 || 2 * on_beat <= places.len() {
            continue;
        }
        for (silence, tick_ns) in ticks() {
            // the first beat in the silence; a long silence has several, and all were missed
            let late_ns = (tick_ns % period_ns + period_ns - beat) % period_ns;
            let heard_ns = silence.from.nanos_since_boot();
            let missed = tick_ns.saturating_sub(late_ns + heard_ns + 1) / period_ns;
            let due_ns = tick_ns.saturating_sub(late_ns + missed * period_ns);
            let due = Monotonic::from_nanos_since_boot(due_ns);
            let late_ns = tick_ns - due_ns;
            let proven =
                late_ns > 2 * near && due > silence.from && 2 * late_ns >= silence.length();
            if proven && due < silence.to && !overlaps(stalls, silence.from, silence.to) {
                stalls.push(Stall {
                    from: due,
                    to: silence.to,
                });
            }
        }
        return;
    }
}

fn overlaps(stalls: &[Stall], from: Monotonic, to: Monotonic) -> bool {
    stalls
        .iter()
        .any(|stall| stall.from < to && stall.to > from)
}

/// The longest silences since the hypervisor's last report, as long as each is about as long as the rest
/// of the stolen time.
fn by_steal(steal: &StolenTime, silences: &[Silence], stalls: &mut Vec<Stall>) {
    let from = steal.from.unwrap_or(steal.to);
    let mut left = steal.lasted.get();
    for stall in stalls.iter() {
        if stall.from >= from && stall.to <= steal.to {
            left = left.saturating_sub(stall.to.saturating_since(stall.from).get());
        }
    }
    let first = silences.partition_point(|silence| silence.from < from);
    let mut inside: Vec<&Silence> = silences[first..]
        .iter()
        .take_while(|silence| silence.to <= steal.to)
        .filter(|silence| !overlaps(stalls, silence.from, silence.to))
        .collect();
    inside.sort_by_key(|silence| std::cmp::Reverse(silence.length()));
    for silence in inside {
        // less than half of it would be stolen, so this is not the silence
        if left * 2 < silence.length() || left == 0 {
            continue;
        }
        // the time was stolen in many parts, and it is unknown which
        if silence.length() * 2 < left {
            break;
        }
        let taken = left.min(silence.length());
        left -= taken;
        let from = silence.to.nanos_since_boot() - taken;
        stalls.push(Stall {
            from: Monotonic::from_nanos_since_boot(from),
            to: silence.to,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1_000)
    }

    fn silence(from: u64, to: u64) -> Silence {
        Silence {
            from: at(from),
            to: at(to),
            tick: None,
            own: true,
        }
    }

    fn found(
        own: &[Silence],
        other: &[Silence],
        canary: &[(u64, u64)],
        stolen: Option<(u64, u64, u64)>,
    ) -> Vec<(u64, u64)> {
        let silences = BTreeMap::from([(0, own.to_vec()), (1, other.to_vec())]);
        let canary: Vec<_> = canary.iter().map(|&(a, b)| (7, at(a), at(b))).collect();
        let stolen = stolen.map(|(from, to, lasted)| StolenTime {
            cpu: 0,
            from: Some(at(from)),
            to: at(to),
            lasted: Nanos::from_micros(lasted),
        });
        let stalls = find(&silences, &canary, stolen.as_slice(), &[]);
        let us = |at: Monotonic| at.nanos_since_boot() / 1_000;
        stalls[&0]
            .iter()
            .map(|stall| (us(stall.from), us(stall.to)))
            .collect()
    }

    #[test]
    fn silence_alone_is_no_stall() {
        assert!(
            found(
                &[silence(1_000, 3_000)],
                &[silence(1_500, 2_000)],
                &[],
                None
            )
            .is_empty()
        );
    }

    #[test]
    fn a_canary_must_have_missed_most_of_the_same_time() {
        let own = [silence(1_000, 3_000)];
        let stall = found(&own, &[], &[(1_100, 2_950)], None);
        assert_eq!(stall, [(1_100, 2_950)]);
        assert!(found(&own, &[], &[(2_500, 2_950)], None).is_empty());
        assert!(found(&own, &[], &[(2_000, 9_000)], None).is_empty());
        // this CPU was heard meanwhile
        let heard = [(1_000, 1_700), (1_700, 2_400), (2_400, 3_000)];
        let heard = heard.map(|(from, to)| silence(from, to));
        assert!(found(&heard, &[], &[(1_100, 2_950)], None).is_empty());
    }

    #[test]
    fn a_canary_is_heard_though_another_one_missed_less_meanwhile() {
        let silences = BTreeMap::from([(0, vec![silence(5_000, 9_000)])]);
        let canaries = [(7, at(4_800), at(9_000)), (8, at(4_900), at(4_950))];
        let stalls = find(&silences, &canaries, &[], &[]);
        let (from, to) = (at(5_000), at(9_000));
        assert_eq!(stalls[&0], [Stall { from, to }]);
    }

    #[test]
    fn another_cpu_must_fall_silent_and_speak_again_with_this_one() {
        let own = [silence(1_000, 3_000)];
        let stall = found(&own, &[silence(1_150, 3_050)], &[], None);
        assert_eq!(stall, [(1_150, 3_000)]);
        assert!(found(&own, &[silence(1_000, 3_500)], &[], None).is_empty());
    }

    /// Two CPUs compute again and again for 150 µs, which begin together now and then. That shows nothing, but a
    /// silence of both that is far longer does.
    #[test]
    fn what_workers_compute_for_equally_long_begins_together_by_chance() {
        let apart = |own: u64| (0..100).map(move |i| silence(1_000 + own * i, 1_150 + own * i));
        let long = silence(60_000, 62_000);
        let own: Vec<Silence> = apart(400).chain([long]).collect();
        let other: Vec<Silence> = apart(401).chain([silence(60_010, 62_010)]).collect();
        assert_eq!(found(&own, &other, &[], None), [(60_010, 62_000)]);
        // rare ones count
        let rare =
            |by: u64| (0..3).map(move |i| silence(1_000 + 9_000 * i + by, 1_150 + 9_000 * i + by));
        let (own, other): (Vec<Silence>, Vec<Silence>) = (rare(0).collect(), rare(5).collect());
        assert_eq!(found(&own, &other, &[], None).len(), 3);
    }

    /// Sixteen CPUs whose numbers have gaps compute for 1.5 ms each, and begin one after the other.
    #[test]
    fn with_many_cpus_silences_must_agree_more_closely() {
        let found = |apart: u64| {
            let of = |place: u16| {
                let from = 1_000 + apart * u64::from(place);
                (17 * place, vec![silence(from, from + 1_500)])
            };
            find(&(0..16).map(of).collect(), &[], &[], &[])
        };
        // a hundred and fiftieth is 10 µs
        assert!(found(11).values().all(Vec::is_empty));
        let stalls = found(10);
        assert!(stalls.values().all(|stalls| stalls.len() == 1));
        // 10 µs before or after it: the lower number counts
        let (from, to) = (at(1_020), at(2_510));
        assert_eq!(stalls[&34], [Stall { from, to }]);
    }

    #[test]
    fn a_thread_of_which_only_switches_are_recorded_is_silent_anyway() {
        let own = silence(1_000, 3_000);
        let other = Silence { own: false, ..own };
        assert!(found(&[own], &[other], &[], None).is_empty());
        assert!(found(&[other], &[own], &[], None).is_empty());
        // a canary does not need the other CPU
        let stall = found(&[other], &[own], &[(1_000, 3_000)], None);
        assert_eq!(stall, [(1_000, 3_000)]);
    }

    #[test]
    fn stolen_time_is_that_of_silences_about_as_long() {
        let own = [silence(1_000, 1_200), silence(2_000, 5_000)];
        let stall = found(&own, &[], &[], Some((0, 9_000, 2_500)));
        assert_eq!(stall, [(2_500, 5_000)]);
        // time that was stolen in many parts is not assigned to a long silence
        assert!(found(&own, &[], &[], Some((0, 9_000, 20_000))).is_empty());
        // nor to silences of which it would fill less than half
        assert!(found(&own, &[], &[], Some((0, 9_000, 50))).is_empty());
    }

    /// Silences that a tick ends on its beat, every 8 ms.
    fn rhythm() -> Vec<Silence> {
        let ended = |i: u64| Silence {
            tick: Some(at(i * 8_000 + 20)),
            ..silence(i * 8_000 - 300, i * 8_000 + 20)
        };
        (1..20).map(ended).collect()
    }

    #[test]
    fn a_late_tick_shows_a_stall() {
        let mut own = rhythm();
        own.push(Silence {
            tick: Some(at(171_000)),
            ..silence(167_900, 171_000)
        });
        let stall = found(&own, &[], &[], None);
        assert_eq!(stall.len(), 1, "{stall:?}");
        let (from, to) = stall[0];
        assert_eq!(to, 171_000);
        assert!((168_000..168_100).contains(&from), "{from}");
    }

    /// The ticks come up to 15 µs before and after whole periods.
    #[test]
    fn a_rhythm_goes_on_where_the_period_begins_again() {
        let ended = |i: u64| {
            let tick = i * 8_000 - 15 + i % 2 * 30;
            Silence {
                tick: Some(at(tick)),
                ..silence(tick - 300, tick)
            }
        };
        let mut own: Vec<Silence> = (1..20).map(ended).collect();
        own.push(Silence {
            tick: Some(at(171_000)),
            ..silence(167_900, 171_000)
        });
        let stall = found(&own, &[], &[], None);
        assert_eq!(stall, [(167_985, 171_000)]);
    }

    #[test]
    fn a_tick_after_other_interrupts_is_late_too_and_the_first_that_was_missed_counts() {
        let mut own = rhythm();
        // two beats of 4 ms lie in it, and another interrupt came 30 µs before the tick
        let mut long = silence(167_000, 173_500);
        long.ticked(at(173_400));
        assert_eq!(long.tick, None, "before its end");
        long.ticked(at(173_530));
        long.ticked(at(173_540));
        assert_eq!(long.tick, Some(at(173_530)));
        let mut computes = silence(180_500, 181_500);
        computes.ticked(at(184_000));
        own.extend([long, computes]);
        let stall = found(&own, &[], &[], None);
        assert_eq!(stall.len(), 1, "{stall:?}");
        let (from, to) = stall[0];
        assert_eq!(to, 173_500);
        assert!((168_000..168_100).contains(&from), "{from}");
    }
}
