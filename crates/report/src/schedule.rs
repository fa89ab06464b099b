//! Sentences about what requests on schedule saw, where the generator was held up.

use taillab_model::Nanos;
use taillab_model::explanation::{Culprit, programs};
use taillab_model::summary::{CutBy, CutSummary, LoadSummary, Report, Scheduled};

use crate::figures::{counted, percent, quantile_name, rate};

/// A generator that was held up for less than this share of the time is not worth a line on a screen.
const NOTABLE: f64 = 0.01;

/// The percentiles that the sentence says.
const TOLD: [f64; 3] = [0.5, 0.99, 0.999];

/// What was left out of the experiment's view, where something was.
pub(crate) fn cut(report: &Report) -> Option<&CutSummary> {
    report.scheduled.as_ref()?.cut.as_ref()
}

/// [`off_schedule`], where that matters for the first look at a result.
pub(crate) fn notably_off_schedule(report: &Report) -> Option<String> {
    let matters = cut(report)?.share >= NOTABLE || withdrawn_from(report).is_some();
    matters.then(|| off_schedule(report)).flatten()
}

/// What is measured, and what arrivals on schedule would see, where the generator did not keep its schedule
/// all the time.
pub(crate) fn off_schedule(report: &Report) -> Option<String> {
    let view = report.scheduled.as_ref()?;
    let cut = view.cut.as_ref()?;
    let by = by_whom(cut).map_or_else(String::new, |by| format!(" ({by})"));
    Some(format!(
        "The generator was held up for {} of the time{by}: what is measured is the server under the \
         arrivals as they came; {}{}{} (scheduled{})",
        percent(cut.share, 1),
        on_schedule(&planned(report.load.as_ref()), view),
        undisturbed(view).unwrap_or_default(),
        at_worst(view).unwrap_or_default(),
        match view.replayed {
            Some(_) => "; partly by a replay of the schedule",
            None => "",
        },
    ))
}

/// Who held the generator up: `mostly by stress (pid 77) on CPU 1`, `by 11 processes named sh and 2 others`.
fn by_whom(cut: &CutSummary) -> Option<String> {
    let by = cut.by_reason.iter();
    let culprits: Vec<(Culprit, f64)> = by
        .map(|by| (by.culprit(), by.length_ns.as_secs_f64()))
        .collect();
    let programs = programs(culprits.iter().map(|(culprit, part)| (culprit, *part)));
    let (first, others) = programs.split_first()?;
    let mut cpus = cut.by_reason.iter().map(CutBy::cpu);
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

/// `Poisson arrivals at 30,000/s would see p50 41.2 µs, p99 1.30 ms (1.10 ms to 1.52 ms)`, as far as it is known.
/// The latter is from the replay.
fn on_schedule(arrivals: &str, view: &Scheduled) -> String {
    let measured = |q| {
        view.sojourn
            .as_ref()?
            .quantile(q)
            .map(|value| value.to_string())
    };
    let known = TOLD.into_iter().filter_map(|q| {
        let value = measured(q).or_else(|| replayed(view, q))?;
        Some(format!("{} {value}", quantile_name(q)))
    });
    let known: Vec<String> = known.collect();
    match known.is_empty() {
        true => format!("what {arrivals} would see is not known"),
        false => format!("{arrivals} would see {}", known.join(", ")),
    }
}

/// What a replay of the schedule says of this percentile.
fn replayed(view: &Scheduled, q: f64) -> Option<String> {
    let points = &view.replayed.as_ref()?.points;
    let point = points.iter().find(|point| (point.q - q).abs() < 1e-9)?;
    let ends = point.lo_ns.zip(point.hi_ns);
    let interval = ends.map_or_else(String::new, |(lo, hi)| format!(" ({lo} to {hi})"));
    Some(format!("{}{interval}", point.predicted_ns))
}

/// `, and without other threads on its CPUs p50 12.1 µs, p99 50.1 µs`, where they disturbed the server.
fn undisturbed(view: &Scheduled) -> Option<String> {
    let points = &view.replayed.as_ref()?.without_other_threads;
    let told = points.iter().filter(|point| TOLD.contains(&point.q));
    let told = told.map(|point| format!("{} {}", quantile_name(point.q), point.predicted_ns));
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            ", and without other threads on its CPUs {}",
            told.join(", ")
        )
    })
}

/// `, or up to p99 10.2 ms from when each was due, if that held the server up too`: a stall of the whole machine takes
/// away what the server would have been seen to do meanwhile.
fn at_worst(view: &Scheduled) -> Option<String> {
    let (all, kept) = (view.at_worst.as_ref()?, view.sojourn.as_ref()?);
    let told = TOLD.into_iter().filter_map(|q| {
        let worst = all.quantile(q)?;
        let is_far = kept.quantile(q).is_none_or(|kept| worst > kept * 2);
        is_far.then(|| format!("{} {worst}", quantile_name(q)))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            ", or up to {} from when each was due, if that held the server up too",
            told.join(", ")
        )
    })
}

/// From which percentile on the experiment's view, and with it the client's, is withdrawn.
pub(crate) fn withdrawn_from(report: &Report) -> Option<f64> {
    report.scheduled.as_ref()?.withdrawn_from()
}

/// `1.25 % of the time (1,204 requests): 7 × the generator's CPU stood still (the hypervisor …)`.
pub(crate) fn reasons(cut: &CutSummary) -> String {
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
    use taillab_model::explanation::PredictedPoint;
    use taillab_model::summary::ReplayedSchedule;
    use taillab_model::{CutReason, Distribution};

    use super::*;

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
        assert_eq!(
            on_schedule("they", &view),
            "they would see p50 41.2 µs, p99 1.00 ms (900 µs to 1.20 ms)"
        );
        assert_eq!(
            undisturbed(&view).unwrap(),
            ", and without other threads on its CPUs p50 12.0 µs"
        );
        assert_eq!(
            on_schedule("they", &Scheduled::default()),
            "what they would see is not known"
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
        assert_eq!(
            at_worst(&view).unwrap(),
            ", or up to p99 20.0 ms, p99.9 20.0 ms from when each was due, if that held the server up too"
        );
        view.at_worst = view.sojourn.clone();
        assert_eq!(at_worst(&view), None);
    }

    /// Loops in processes of their own, threads of one program, and stalls of two kinds were counted one by one.
    #[test]
    fn who_held_the_generator_up_is_counted_by_program() {
        let (task, late) = (CutReason::GeneratorNotScheduled, CutReason::GeneratorLate);
        let by = |why, who: &str, millis| CutBy {
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
        let by = |number: u64| CutBy {
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
