//! Sentences about what requests on schedule saw, where the generator was held up.

use taillab_model::explanation::{Culprit, programs};
use taillab_model::summary::{CutSummary, CutsForReason, LoadSummary, Report, Scheduled};
use taillab_model::{Distribution, Nanos};

use crate::figures::{counted, interval_by, percent, quantile_name, rate};

/// A generator that was held up for less than this share of the time is not worth a line on a screen.
const NOTABLE: f64 = 0.01;

/// Where the ideal of the arrivals as they came is that many times the ideal of those on schedule, what the generator did made
/// the load, and all figures beside it are read wrong without that.
const MADE_THE_LOAD: f64 = 1.25;

/// The percentiles that the sentence says.
const TOLD: [f64; 3] = [0.5, 0.99, 0.999];

/// What was left out of the experiment's view, where something was.
pub(crate) fn cut(report: &Report) -> Option<&CutSummary> {
    report.scheduled.as_ref()?.cut.as_ref()
}

/// A sentence about the schedule.
#[derive(Clone, Debug)]
pub(crate) struct OffSchedule {
    pub(crate) text: String,
    /// The generator, and not the plan, made the load.
    pub(crate) made_the_load: bool,
}

/// [`off_schedule`], where that matters for the first look at a result.
pub(crate) fn notably_off_schedule(report: &Report) -> Option<OffSchedule> {
    let matters = cut(report)?.share >= NOTABLE || withdrawn_from(report).is_some();
    let text = off_schedule(report).filter(|_| matters)?;
    let (view, ideal) = (report.scheduled.as_ref()?, &report.server.ideal.sojourn);
    Some(OffSchedule {
        text,
        made_the_load: made_the_load(view, ideal),
    })
}

/// Whether the generator, and not the plan, made the load: the arrivals as they came queue far more, even in an ideal queue,
/// than those on schedule, or too little was on schedule to say so.
fn made_the_load(view: &Scheduled, as_they_came: &Distribution) -> bool {
    let by = |q: f64| {
        let known = |of: &Distribution| of.at(q).and_then(|at| at.value);
        let on_schedule = known(view.ideal.as_ref()?)?;
        Some(known(as_they_came)?.as_secs_f64() / on_schedule.as_secs_f64())
    };
    let is_far = |q: f64| by(q).is_some_and(|ratio| ratio > MADE_THE_LOAD);
    let is_withdrawn = view.withdrawn_from().is_some_and(|q| q <= 0.99);
    view.cut.is_some() && (is_withdrawn || is_far(0.5) || is_far(0.99))
}

/// For how much of the time the generator was held up, and what a client that keeps the schedule would have
/// waited. It takes two lines of a screen; the rest is in [`details`].
pub(crate) fn off_schedule(report: &Report) -> Option<String> {
    held_up(report, "")
}

/// [`off_schedule`] with the numbers of the reservations that say the same in other ways, and have no line beside it:
/// `The generator was held up for 61 % of the time (it was busy for 99 %, and sent 40,100 of 48,000 requests/s): …`.
pub(crate) fn off_schedule_in_numbers(report: &Report) -> Option<String> {
    let load = report.load.as_ref();
    let of = |key: &str| {
        let mut warnings = report.verdict.warnings.iter();
        load.filter(|_| warnings.any(|warning| warning.key == key))
    };
    let busy = of("client_busy");
    let busy = busy.map(|load| format!("was busy for {}", percent(load.client.busy_share, 0)));
    let sent = of("rate_missed");
    let sent = sent.map(|load| {
        let [sent, due] = [load.sent_rate_per_s, load.target_rate_per_s].map(rate);
        format!("sent {sent} of {due} requests/s")
    });
    let both: Vec<String> = busy.into_iter().chain(sent).collect();
    let numbers = match both.is_empty() {
        true => String::new(),
        false => format!(" (it {})", both.join(", and ")),
    };
    held_up(report, &numbers)
}

fn held_up(report: &Report, numbers: &str) -> Option<String> {
    let view = report.scheduled.as_ref()?;
    let share = view.cut.as_ref()?.share;
    let share = percent(share, usize::from(share < 0.1));
    let waits = OnSchedule::of(report, view).waits();
    Some(format!(
        "The generator was held up for {share} of the time{numbers}: {waits}"
    ))
}

/// What is known of the requests on schedule.
struct OnSchedule<'a> {
    view: &'a Scheduled,
    /// What the client waited, where it is known.
    client: Option<&'a Distribution>,
}

impl<'a> OnSchedule<'a> {
    fn of(report: &'a Report, view: &'a Scheduled) -> Self {
        let client = report.load.as_ref().map(|load| &load.response_time);
        Self { view, client }
    }

    /// The percentiles that are known, in ascending order.
    fn seen(&self) -> impl Iterator<Item = KnownWait> {
        TOLD.into_iter().filter_map(|q| KnownWait::at(self, q))
    }

    /// `a client on schedule would have waited p99 817 µs (790–846), p99.9 1.88 ms (1.79–1.95)`: the two highest
    /// percentiles that are known.
    fn waits(&self) -> String {
        let seen: Vec<KnownWait> = self.seen().collect();
        let seen = &seen[seen.len().saturating_sub(2)..];
        let is_replayed = seen.iter().any(|seen| seen.is_replayed);
        let (who, would) = self.who_and_what(is_replayed);
        let Some(highest) = seen.last() else {
            return format!("what {who} {would} is not known");
        };
        if let Some(worst) = highest.at_worst {
            let (of, name) = (highest.between(worst), quantile_name(highest.q));
            return format!("{who} {would} {of} at {name}, as the server may have stalled too");
        }
        let by = if is_replayed { "by a replay, " } else { "" };
        format!("{by}{who} {would} {}", listed(seen))
    }

    /// Who is on schedule, and what it does with its time. A replay, and a recording without its client, know only
    /// what the server does.
    fn who_and_what(&self, is_replayed: bool) -> (&'static str, &'static str) {
        match self.client {
            Some(_) if !is_replayed => ("a client on schedule", "would have waited"),
            _ => ("a request on schedule", "would have taken"),
        }
    }

    /// Each percentile of these arrivals, what limits them, and what a replay says of the server without other threads.
    fn details(&self, arrivals: &str) -> Vec<String> {
        let (replayed, kept): (Vec<KnownWait>, Vec<KnownWait>) =
            self.seen().partition(|seen| seen.is_replayed);
        let mut lines = Vec::new();
        for (seen, is_replayed) in [(kept, false), (replayed, true)] {
            let (who, would) = self.who_and_what(is_replayed);
            let how = if is_replayed {
                "by a replay"
            } else {
                "as measured"
            };
            let listed = listed(&seen);
            if !listed.is_empty() {
                lines.push(format!("{who} ({arrivals}) {would}, {how}, {listed}"));
            }
        }
        lines.extend(undisturbed(self.view));
        lines.extend(self.at_worst());
        lines
    }

    /// A stall of the whole machine takes away what the server would have been seen to do meanwhile.
    fn at_worst(&self) -> Option<String> {
        let told = |seen: KnownWait| Some(format!("{} {}", quantile_name(seen.q), seen.at_worst?));
        let told: Vec<String> = self.seen().filter_map(told).collect();
        (!told.is_empty()).then(|| {
            format!(
                "counted from when each was due, all requests, held up or not, waited up to {}: so long would clients \
                 on schedule have waited if the server stalled whenever the generator did",
                told.join(", ")
            )
        })
    }
}

/// A percentile of what is on schedule.
struct KnownWait {
    q: f64,
    /// Not known where all that is known is the most that it can have been.
    value: Option<Nanos>,
    lo: Option<Nanos>,
    hi: Option<Nanos>,
    /// From the replay, since too little was measured on schedule.
    is_replayed: bool,
    /// What it was from when each request was due, cut or not, where that is far more.
    at_worst: Option<Nanos>,
}

impl KnownWait {
    fn at(known: &OnSchedule<'_>, q: f64) -> Option<Self> {
        let view = known.view;
        let kept = known.client.or(view.sojourn.as_ref());
        let kept = kept.and_then(|of| of.at(q));
        let kept = kept.filter(|of| of.value.is_some());
        let points = view.replayed.as_ref().map(|replayed| &replayed.points);
        let point = points.and_then(|points| points.iter().find(|of| (of.q - q).abs() < 1e-9));
        let (value, lo, hi) = match (kept, point) {
            (Some(kept), _) => (kept.value, kept.lo, kept.hi),
            (None, Some(point)) => (Some(point.predicted_ns), point.lo_ns, point.hi_ns),
            (None, None) => (None, None, None),
        };
        let is_replayed = kept.is_none() && point.is_some();
        let worst = view.at_worst.as_ref().and_then(|of| of.at(q));
        let is_far = |worst: Nanos| value.is_none_or(|kept| worst > kept * 2);
        let worst = worst.filter(|_| !is_replayed);
        let far = worst.filter(|of| of.value.is_some_and(is_far));
        let at_worst = far.and_then(|of| of.hi.or(of.value));
        // a little more is within the interval
        let hi = match (far, hi.zip(worst.and_then(|of| of.hi))) {
            (None, Some((hi, worst))) => Some(hi.max(worst)),
            _ => hi,
        };
        (value.is_some() || at_worst.is_some()).then_some(Self {
            q,
            value,
            lo,
            hi,
            is_replayed,
            at_worst,
        })
    }

    /// `50.0 µs to 1.12 s`.
    fn between(&self, worst: Nanos) -> String {
        match self.lo.or(self.value) {
            Some(least) => format!("{least} to {worst}"),
            None => format!("up to {worst}"),
        }
    }
}

/// `p99 817 µs (790–846), p99.9 1.88 ms (1.79–1.95)`.
fn listed(seen: &[KnownWait]) -> String {
    let one = |of: &KnownWait| {
        let (name, value) = (quantile_name(of.q), of.value?);
        Some(format!("{name} {value}{}", interval_of(value, of)))
    };
    let listed: Vec<String> = seen.iter().filter_map(one).collect();
    listed.join(", ")
}

/// ` (790–846)` in the unit of the value, ` (900 µs–1.20 ms)` where the ends have others.
fn interval_of(value: Nanos, seen: &KnownWait) -> String {
    let interval = interval_by(|end| end.to_string(), seen.lo, seen.hi);
    let value = value.to_string();
    let unit = value.trim_start_matches(|c: char| c != ' ');
    match interval.split('–').all(|end| end.ends_with(unit)) {
        _ if interval.is_empty() => interval,
        true => format!(" ({})", interval.replace(unit, "")),
        false => format!(" ({interval})"),
    }
}

/// What the two lines leave out: who held the generator up, each percentile, what limits them, and what a replay
/// says of the server without other threads.
pub(crate) fn details(report: &Report) -> Vec<String> {
    let Some((view, cut)) = report.scheduled.as_ref().zip(cut(report)) else {
        return Vec::new();
    };
    let by = by_whom(cut).map_or_else(String::new, |by| format!(" ({by})"));
    let mut lines = vec![format!(
        "held up{by} for {}; all else here is the server under the arrivals as they came",
        reasons(cut)
    )];
    let arrivals = planned(report.load.as_ref());
    lines.extend(OnSchedule::of(report, view).details(&arrivals));
    lines
}

/// Who held the generator up: `mostly by stress (pid 77) on CPU 1`, `by 11 processes named sh and 2 others`.
fn by_whom(cut: &CutSummary) -> Option<String> {
    let by = cut.by_reason.iter();
    let culprits: Vec<(Culprit, f64)> = by
        .map(|by| (by.culprit(), by.length_ns.as_secs_f64()))
        .collect();
    let programs = programs(culprits.iter().map(|(culprit, part)| (culprit, *part)));
    let (first, others) = programs.split_first()?;
    let mut cpus = cut.by_reason.iter().map(CutsForReason::cpu);
    let cpu = cpus
        .next()
        .flatten()
        .filter(|cpu| cpus.all(|other| other == Some(*cpu)));
    let place = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
    let who = first.called_with_pid();
    Some(match others.len() as u64 {
        0 => format!("by {who}{place}"),
        _ if first.part * 2.0 >= cut.length_ns.as_secs_f64() => format!("mostly by {who}{place}"),
        n => format!("by {who} and {}{place}", counted(n, "other", "others")),
    })
}

/// The arrivals that were wanted: `Poisson arrivals at 30,000/s`.
fn planned(load: Option<&LoadSummary>) -> String {
    let Some(load) = load else {
        return "arrivals on schedule".to_owned();
    };
    let process = match load.arrivals.process.as_str() {
        "poisson" => "Poisson",
        process => process,
    };
    format!("{process} arrivals at {}/s", rate(load.target_rate_per_s))
}

/// `by a replay without other threads on the server's CPUs p50 12.1 µs, p99 50.1 µs`, where they disturbed it.
fn undisturbed(view: &Scheduled) -> Option<String> {
    let points = &view.replayed.as_ref()?.without_other_threads;
    let told = points.iter().filter(|point| TOLD.contains(&point.q));
    let told = told.map(|point| format!("{} {}", quantile_name(point.q), point.predicted_ns));
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            "by a replay without other threads on the server’s CPUs {}",
            told.join(", ")
        )
    })
}

/// From which percentile on the experiment's view, and with it the client's, is withdrawn.
pub(crate) fn withdrawn_from(report: &Report) -> Option<f64> {
    report.scheduled.as_ref()?.withdrawn_from()
}

/// `1.25 % of the time (1,204 requests): 7 × the generator's CPU stood still (the hypervisor …)`.
fn reasons(cut: &CutSummary) -> String {
    /// Reasons that are spelled out, the longest first.
    const SPELLED_OUT: usize = 4;
    let (spelled_out, others) = cut.by_reason.split_at(cut.by_reason.len().min(SPELLED_OUT));
    let reasons = spelled_out.iter().map(|by| {
        let (times, why) = (by.times, by.why.sentence());
        format!("{times} × {why} for {} ({})", by.length_ns, by.who)
    });
    let others = (!others.is_empty()).then(|| {
        let times: u64 = others.iter().map(|by| by.times).sum();
        let length: Nanos = others.iter().map(|by| by.length_ns).sum();
        format!("{times} × for other reasons, for {length}")
    });
    format!(
        "{} of the time ({}): {}",
        percent(cut.share, 2),
        counted(cut.requests, "request", "requests"),
        reasons.chain(others).collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use taillab_model::CutReason;
    use taillab_model::explanation::PredictedPoint;
    use taillab_model::summary::ReplayedSchedule;

    use super::*;

    /// The short sentence about this view of a recording, whose client is not known, and the details.
    fn told(view: &Scheduled) -> (String, Vec<String>) {
        let known = OnSchedule { view, client: None };
        (known.waits(), known.details("they"))
    }

    /// A generator that was away sends all that was due meanwhile in one heap.
    #[test]
    fn heaps_of_sends_that_queue_in_an_ideal_queue_too_made_the_load() {
        let of = |micros: u64| Distribution::from_sorted(&vec![Nanos::from_micros(micros); 10_000]);
        let cut = Some(CutSummary::default());
        let mut view = Scheduled {
            ideal: Some(of(30)),
            cut,
            ..Scheduled::default()
        };
        assert!(made_the_load(&view, &of(1_900)));
        assert!(!made_the_load(&view, &of(33)));
        view.cut = None;
        assert!(!made_the_load(&view, &of(1_900)));
    }

    /// p50 was measured on schedule, p99 was not.
    #[test]
    fn what_was_not_measured_on_schedule_comes_from_the_replay() {
        let ns = Nanos::new;
        let point = |q, us: u64| PredictedPoint {
            q,
            measured_ns: ns(1),
            predicted_ns: ns(us * 1_000),
            lo_ns: Some(ns(us * 900)),
            hi_ns: Some(ns(us * 1_200)),
        };
        let mut view = Scheduled {
            sojourn: Some(Distribution::from_sorted(&[ns(41_200); 101])),
            replayed: Some(ReplayedSchedule {
                points: vec![point(0.5, 30), point(0.99, 1_000)],
                without_other_threads: vec![point(0.5, 12)],
            }),
            ..Scheduled::default()
        };
        for at in &mut view.sojourn.as_mut().unwrap().quantiles {
            at.value = at.value.filter(|_| at.q < 0.9);
        }
        let (short, details) = told(&view);
        assert_eq!(
            short,
            "by a replay, a request on schedule would have taken \
             p50 41.2 µs (41.2–41.2), p99 1.00 ms (900 µs–1.20 ms)"
        );
        let without = "by a replay without other threads on the server’s CPUs p50 12.0 µs";
        assert!(details.contains(&without.to_owned()), "{details:?}");
        assert_eq!(
            told(&Scheduled::default()).0,
            "what a request on schedule would have taken is not known"
        );
    }

    /// A stall of the whole machine: 20 ms in which nothing was sent and nothing served.
    #[test]
    fn what_a_stall_of_server_and_generator_took_away_is_said_as_a_bound() {
        let (short, long) = (Nanos::from_micros(50), Nanos::from_millis(20));
        let kept = vec![short; 10_000];
        let all = [vec![short; 10_000], vec![long; 300]].concat();
        let mut view = Scheduled {
            sojourn: Some(Distribution::from_sorted(&kept)),
            at_worst: Some(Distribution::from_sorted(&all)),
            ..Scheduled::default()
        };
        let (text, details) = told(&view);
        let bound = "50.0 µs to 20.0 ms at p99.9, as the server may have stalled too";
        assert!(text.ends_with(bound), "{text}");
        let all = "waited up to p99 20.0 ms, p99.9 20.0 ms";
        assert!(details.iter().any(|line| line.contains(all)), "{details:?}");
        // less than twice as long is an interval that reaches so far
        let near = vec![Nanos::from_micros(80); 10_000];
        view.at_worst = Some(Distribution::from_sorted(&near));
        let (text, _) = told(&view);
        assert!(text.ends_with("p99.9 50.0 µs (50.0–80.0)"), "{text}");
        view.at_worst = view.sojourn.clone();
        let (text, details) = told(&view);
        assert!(!text.contains("stalled"), "{text}");
        assert!(!details.concat().contains("stalled"), "{details:?}");
    }

    /// Loops in processes of their own, threads of one program, and stalls of two kinds were counted one by one.
    #[test]
    fn who_held_the_generator_up_is_counted_by_program() {
        let (task, late) = (CutReason::GeneratorNotScheduled, CutReason::GeneratorLate);
        let by = |why, who: &str, millis| CutsForReason {
            why,
            who: who.to_owned(),
            times: 1,
            length_ns: Nanos::from_millis(millis),
            requests: 10,
        };
        let mut cut = CutSummary {
            by_reason: vec![
                by(task, "sh (pid 20102) on CPU 1", 30),
                by(
                    CutReason::GeneratorStalled,
                    "the hypervisor, or an interrupt, on CPU 1",
                    25,
                ),
                by(late, "interrupts, or the hypervisor, on CPU 1", 20),
                by(task, "sh (pid 20100) on CPU 1", 18),
                by(task, "agent (pid 70) on CPU 1", 4),
                by(task, "reaper (pid 70) and others on CPU 1", 3),
            ],
            length_ns: Nanos::from_millis(100),
            ..CutSummary::default()
        };
        let said = by_whom(&cut).unwrap();
        assert_eq!(said, "by 2 processes named sh and 2 others on CPU 1");
        cut.by_reason.retain(|by| !by.who.starts_with("sh"));
        let said = by_whom(&cut);
        assert_eq!(
            said.as_deref(),
            Some("by the hypervisor or an interrupt and 1 other on CPU 1")
        );
        cut.length_ns = Nanos::from_millis(52);
        cut.by_reason[0].who = "the hypervisor, or an interrupt, on CPU 0".to_owned();
        let said = by_whom(&cut);
        assert_eq!(
            said.as_deref(),
            Some("mostly by the hypervisor or an interrupt")
        );
    }

    #[test]
    fn the_longest_reasons_are_spelled_out() {
        let by = |number: u64| CutsForReason {
            why: CutReason::GeneratorNotScheduled,
            who: format!("program {number}"),
            times: number,
            length_ns: Nanos::from_millis(100 - number),
            requests: 10,
        };
        let cut = CutSummary {
            share: 0.0125,
            length_ns: Nanos::from_millis(579),
            requests: 1_204,
            by_reason: (1..=6).map(by).collect(),
            ..CutSummary::default()
        };
        assert_eq!(by_whom(&cut).unwrap(), "by program 1 and 5 others");
        let text = reasons(&cut);
        let begin = "1.25 % of the time (1,204 requests): 1 × the generator was not on its CPU for 99.0 ms (program 1); ";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.ends_with("; 11 × for other reasons, for 189 ms"),
            "{text}"
        );
    }
}
