//! Whether the machine contaminated a measurement: decided by what it did, not by the result.
//!
//! The machine is one more disturber: its hold-ups ([`evidence`]) become delays of requests in the
//! same way as the injections do ([`delays`]). Nobody asked for the burst that follows a pause of the
//! generator either, so the time that its requests wait for each other counts as the machine's.

mod evidence;
mod generator;
mod hold_up;
mod idle;
#[cfg(test)]
mod samples;
mod silence;

use crate::attribution::{Span, delays};
use crate::ground_truth::{GroundTruth, InjectedInterval, InjectedSource};
use taillab_analysis::AnalysisOptions;
use taillab_model::explanation::Cause;
use taillab_model::summary::Reason;
use taillab_model::{Monotonic, Nanos};

pub(crate) use self::evidence::MachineEvidence;
use self::generator::bursts;
use self::hold_up::{HoldUp, Proof, Stretch};
use super::criteria::{LEAST_SHARE, MOST_CONTAMINATED, MOST_CONTAMINATED_PAIR};
use super::reason::ReasonKey;

/// A measurement is made at most this many times.
pub const ATTEMPTS: u32 = 3;

/// What the machine did to a measurement, and what of that the requests felt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Hold-ups of the server.
    hold_ups: usize,
    held: Nanos,
    /// Pauses of the generator.
    silences: usize,
    silent: Nanos,
    /// The delay of all requests by the machine.
    cost: Nanos,
    /// Their delay by the injection.
    injected: Nanos,
    /// The share of the injected delay that the machine alone would have caused in the same
    /// requests: nothing says which of the two caused it.
    shared: f64,
    /// The share of the slowest hundredth's time that passed in silences without a cause.
    unknown: f64,
}

impl Machine {
    /// Of a measurement of the requests at `places`. `injected` are the delays of all by each
    /// source, alone and (empty where that is the same) with all else.
    pub(crate) fn of(
        evidence: &MachineEvidence,
        spans: &[Span],
        injected: [&[Vec<Nanos>]; 2],
        options: &AnalysisOptions,
        mut places: Vec<usize>,
    ) -> Self {
        let AnalysisOptions {
            service_time: usual,
            workers,
            measure_from,
            ..
        } = *options;
        let by = |of: &dyn Fn(&HoldUp) -> bool| {
            cost(evidence.hold_ups.iter().filter(|it| of(it)), spans)
        };
        let held_up = by(&|_| true);
        let unknown = by(&|hold_up| hold_up.proof == Proof::Silence);
        let sojourn = |place: usize| spans[place].t6.saturating_since(spans[place].t1);
        let mut machine = held_up.clone();
        for (place, wait) in bursts(&evidence.silent, spans, usual, workers) {
            machine[place] += wait;
        }
        // bursts do not hide which requests were overtaken or waited while a worker was idle
        let [alone, together] = injected;
        let matters = if together.is_empty() {
            &held_up
        } else {
            &machine
        };
        let sum = |delays: &[Nanos], of: &[usize]| of.iter().map(|it| delays[*it]).sum::<Nanos>();
        let shared = |delays: &Vec<Nanos>| {
            let both = |place: &usize| delays[*place].min(matters[*place]);
            share(places.iter().map(both).sum(), sum(delays, &places))
        };
        let judged = |sources: &[Vec<Nanos>]| {
            let largest = sources.iter().map(|of| sum(of, &places)).max();
            let least = LEAST_SHARE * largest.unwrap_or(Nanos::ZERO).as_secs_f64();
            (sources.iter())
                .filter(|of| sum(of, &places).as_secs_f64() > least)
                .map(shared)
                .fold(0.0, f64::max)
        };
        let hold_ups = evidence.hold_ups.iter().map(|hold_up| hold_up.at);
        let (hold_ups, held) = total(hold_ups, measure_from);
        let (silences, silent) = total(evidence.silent.iter().copied(), measure_from);
        let mut this = Self {
            hold_ups,
            held,
            silences,
            silent,
            cost: sum(&machine, &places),
            injected: alone.iter().map(|of| sum(of, &places)).sum(),
            shared: judged(alone).max(judged(together)),
            unknown: 0.0,
        };
        places.sort_by_key(|place| sojourn(*place));
        let slowest = &places[places.len() - places.len() / 100..];
        let all = slowest.iter().map(|place| sojourn(*place)).sum();
        this.unknown = share(sum(&unknown, slowest), all);
        this
    }

    /// Why a measurement proves little about what was injected; `None` where it proves enough.
    pub fn contaminated(&self) -> Option<Reason> {
        let (key, why) = if self.shared > MOST_CONTAMINATED {
            let why = format!(
                "{:.0} % of the injected delay are of requests that the machine delayed as well",
                100.0 * self.shared
            );
            (ReasonKey::SharedDelay, why)
        } else if self.unknown > MOST_CONTAMINATED {
            let why = format!(
                "the slowest requests spent {:.0} % of their time in silences that nothing explains",
                100.0 * self.unknown
            );
            (ReasonKey::UnexplainedSilence, why)
        } else {
            return None;
        };
        Some(key.because(format!(
            "the machine stopped the server's CPU or left it asleep {} times ({} in all) and stopped \
             the generator {} times ({} in all): {why}",
            self.hold_ups, self.held, self.silences, self.silent
        )))
    }

    /// Whether the machine cost more than a tenth of what the injection into `with` cost, so that
    /// comparing the two measurements proves nothing.
    pub fn outweighs(&self, with: &Self) -> bool {
        let injected = with.injected.as_secs_f64();
        injected > 0.0 && self.cost.as_secs_f64() > MOST_CONTAMINATED_PAIR * injected
    }
}

fn share(part: Nanos, of: Nanos) -> f64 {
    part.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// The number of stretches from `measure_from` on, and their total length.
fn total(stretches: impl Iterator<Item = Stretch>, measure_from: Monotonic) -> (usize, Nanos) {
    let measured = stretches.filter(|(from, _)| *from >= measure_from);
    measured.fold((0, Nanos::ZERO), |(count, sum), (from, to)| {
        (count + 1, sum + to.saturating_since(from))
    })
}

/// The delay of each request that would be missing without these hold-ups.
fn cost<'a>(hold_ups: impl Iterator<Item = &'a HoldUp>, spans: &[Span]) -> Vec<Nanos> {
    let truth = GroundTruth {
        sources: vec![InjectedSource {
            injected: String::new(),
            cause: Cause::Hypervisor,
            culprit: None,
        }],
        intervals: hold_ups
            .map(|hold_up| InjectedInterval {
                source: 0,
                cpu: None,
                held: hold_up.thread,
                from_ns: hold_up.at.0,
                to_ns: hold_up.at.1,
            })
            .collect(),
        unrecorded: 0,
    };
    delays(spans, &truth, Nanos::MAX).pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::samples::at;
    use super::*;

    /// A server that takes 20 µs for each of 1,000 requests, one every 100 µs, and was held up
    /// by an injection (from, length) and by the machine, both in µs.
    fn machine(injected: (u64, u64), held_up: (u64, u64), proof: Proof) -> Machine {
        measured(injected, (held_up, proof), (0, 0))
    }

    /// The same, where the generator also paused for a while and sent late what was due.
    fn measured(
        injected: (u64, u64),
        (held_up, proof): ((u64, u64), Proof),
        silent: (u64, u64),
    ) -> Machine {
        let stretch = |(from, length)| (at(from), at(from + length));
        let mut free = at(0);
        let spans: Vec<Span> = (1..=1_000)
            .map(|n| {
                let due = at(100 * n);
                let (from, to) = stretch(silent);
                let t1 = if from < due { due.max(to) } else { due };
                let mut begun = free.max(t1);
                let mut holds = [stretch(injected), stretch(held_up)];
                holds.sort_unstable();
                for (from, to) in holds {
                    if (from..to).contains(&begun) {
                        begun = to;
                    }
                }
                free = begun + Nanos::from_micros(20);
                Span {
                    t1,
                    t2: t1,
                    t6: free,
                    worker: 0,
                }
            })
            .collect();
        let hold_up = |at, proof| HoldUp {
            at,
            thread: None,
            proof,
        };
        let injection = [hold_up(stretch(injected), Proof::Stall)];
        let delays = [cost(injection.iter(), &spans)];
        let evidence = MachineEvidence {
            hold_ups: vec![hold_up(stretch(held_up), proof)],
            silent: vec![stretch(silent)],
        };
        let places = (0..spans.len()).collect();
        let options = AnalysisOptions::new(Nanos::from_micros(20), NonZeroU32::MIN, at(0));
        Machine::of(&evidence, &spans, [&delays, &delays], &options, places)
    }

    #[test]
    fn a_hold_up_contaminates_what_was_injected_where_both_delay_the_same_requests() {
        let apart = machine((20_000, 2_000), (60_000, 2_000), Proof::Stall);
        assert_eq!(apart.contaminated(), None);
        let together = machine((20_000, 2_000), (22_000, 1_000), Proof::Stall);
        let why = together.contaminated().unwrap();
        assert_eq!(why.key, "shared_delay");
        assert!(why.text.contains("1 times (1.00 ms in all)"), "{why:?}");
        assert!(why.text.contains("delayed as well"), "{why:?}");
        // a short one does not matter
        let short = machine((20_000, 2_000), (22_000, 40), Proof::Stall);
        assert_eq!(short.contaminated(), None);
    }

    #[test]
    fn an_injection_into_a_burst_that_the_generator_made_is_contaminated() {
        let no_hold_up = ((0, 0), Proof::Stall);
        let apart = measured((20_000, 2_000), no_hold_up, (60_000, 5_000));
        assert_eq!(apart.contaminated(), None);
        let into_it = measured((60_500, 2_000), no_hold_up, (55_000, 5_000));
        let why = into_it.contaminated().unwrap().text;
        assert!(why.contains("the generator 1 times (5.00 ms"), "{why}");
    }

    #[test]
    fn silence_without_a_cause_contaminates_the_tail_and_a_proven_stall_does_not() {
        let silent = machine((20_000, 2_000), (60_000, 2_000), Proof::Silence);
        let why = silent.contaminated().unwrap();
        assert_eq!(why.key, "unexplained_silence");
        assert!(
            why.text.contains("silences that nothing explains"),
            "{why:?}"
        );
        let nothing_injected = machine((0, 0), (60_000, 2_000), Proof::Silence);
        assert!(nothing_injected.contaminated().is_some());
        let short = machine((20_000, 2_000), (60_000, 100), Proof::Silence);
        assert_eq!(short.contaminated(), None);
    }

    #[test]
    fn a_measurement_beside_it_is_compared_with_what_the_injection_cost() {
        let with = machine((20_000, 8_000), (60_000, 100), Proof::Stall);
        assert!(!with.outweighs(&with));
        let without = machine((0, 0), (60_000, 4_000), Proof::Stall);
        assert!(without.outweighs(&with));
        // nothing was injected into the control: there is nothing to compare with
        assert!(!with.outweighs(&without));
    }
}
