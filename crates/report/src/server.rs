//! Sentences about a server's result that all outputs share.

use taillab_model::Nanos;
use taillab_model::explanation::Cause;
use taillab_model::summary::{
    BusyPeriods, Calibration, Exclusions, LimitedBy, LoadSegment, LoadSummary, NoScaling, Reason,
    Report, ServerResult, ServiceTimeSource, ValidPercentiles, Verdict, WorkersSource,
};

use crate::document::Document;
use crate::figures::{self, counted, rate};
use crate::reservations;
use crate::text::Ink;

/// The most requests per second that the workers of the ideal queue can serve.
pub(crate) fn capacity_per_s(result: &ServerResult) -> f64 {
    f64::from(result.ideal.workers) / result.service_time_ns.as_secs_f64()
}

/// The workers of the ideal queue: `1 worker`, `8 virtual workers`.
pub(crate) fn workers(result: &ServerResult) -> String {
    let kind = match result.ideal.virtual_workers {
        true => "virtual ",
        false => "",
    };
    let n = u64::from(result.ideal.workers);
    counted(n, &format!("{kind}worker"), &format!("{kind}workers"))
}

/// How much longer than in the ideal queue a request stays, if that is known.
pub(crate) fn excess_sentence(result: &ServerResult) -> Option<String> {
    let (p50, p99) = (result.excess.quantile(0.5)?, result.excess.quantile(0.99)?);
    let ideal = match result.ideal.base_of_own_work() {
        None => "its own ideal",
        Some(_) => "its ideal with t",
    };
    Some(format!(
        "Request by request, the excess over {ideal} is {p50} (p50) and {p99} (p99)."
    ))
}

/// The service time as a figure, where it is known.
pub(crate) fn service_time(result: &ServerResult) -> String {
    match result.service_time_source {
        ServiceTimeSource::Unknown => "not known".to_owned(),
        _ => result.service_time_ns.to_string(),
    }
}

/// If 1 / peak and t differ by more than this, the difference needs a name.
const AGREES: f64 = 0.1;

/// The cost of a request in busy periods, beside what the peak says.
fn busy_periods_origin(seen: &BusyPeriods, report: &Report) -> String {
    let receive = match seen.receive_ns {
        Nanos::ZERO => String::new(),
        receive => format!(", {receive} of it to receive it"),
    };
    let by_cpu: Vec<String> = (report.server.busy_periods_by_cpu.iter())
        .map(|of| format!("{} on CPU {}", of.seen.service_time_ns, of.cpu))
        .collect();
    let by_cpu = match by_cpu.is_empty() {
        true => String::new(),
        false => format!(" ({})", by_cpu.join(", ")),
    };
    let times = counted(seen.seen, "time", "times");
    let peak = report.calibration.as_ref();
    let peak = peak.map_or_else(String::new, |peak| beside_peak(report, peak));
    format!(
        "what a request cost the server's CPU while the next one already waited, {times} in this \
         recording{receive}{by_cpu}{peak}"
    )
}

/// `; the peak of 61,257/s says 16.3 µs`, with the reason where that is something else.
fn beside_peak(report: &Report, peak: &Calibration) -> String {
    let workers = f64::from(report.server.ideal.workers);
    let Some(by_peak) = Nanos::try_from_secs_f64(workers / peak.peak_per_s) else {
        return String::new();
    };
    let t = report.server.service_time_ns.as_secs_f64();
    let apart = by_peak.as_secs_f64() / t - 1.0;
    let why = if apart.abs() <= AGREES {
        ""
    } else if apart < 0.0 {
        ": without the probe, and with more requests at once, one costs less"
    } else {
        match peak.limited_by {
            LimitedBy::Server => ": at the peak a request costs more",
            LimitedBy::Others => ": other programs used its CPUs there",
            LimitedBy::Client => ": the client was the limit there",
            LimitedBy::Waits => ": requests waited for something other than a CPU there",
        }
    };
    let per_s = rate(peak.peak_per_s);
    format!("; the peak of {per_s}/s says {by_peak}{why}")
}

/// Where the service time comes from, in words.
pub(crate) fn service_time_origin(document: &Document<'_>) -> String {
    let origin = source_of_service_time(document.report);
    match waits_inside(&document.report.server) {
        true => format!(
            "{origin}; what requests wait for inside the server (disks, locks, other servers) is no part of it"
        ),
        false => origin,
    }
}

/// t is CPU time, and requests notably wait for something else while they are served.
fn waits_inside(result: &ServerResult) -> bool {
    /// A smaller share of the excess needs no sentence.
    const NOTABLE: f64 = 0.05;
    const WAITS: [Cause; 5] = [
        Cause::BlockedLock,
        Cause::BlockedFault,
        Cause::BlockedIo,
        Cause::BlockedOther,
        Cause::Upstream,
    ];
    let is_cpu_time = matches!(
        result.service_time_source,
        ServiceTimeSource::BusyPeriods | ServiceTimeSource::BusyTime
    );
    let mut wholes = result.causes.iter().filter(|share| share.culprit.is_none());
    is_cpu_time && wholes.any(|share| WAITS.contains(&share.cause) && share.share.value >= NOTABLE)
}

/// The same, without what it leaves out.
fn source_of_service_time(report: &Report) -> String {
    match (
        report.server.service_time_source,
        report.calibration.as_ref(),
    ) {
        (ServiceTimeSource::BusyPeriods, _) => match &report.server.busy_periods {
            Some(seen) => busy_periods_origin(seen, report),
            None => "what a request cost while the next one already waited".to_owned(),
        },
        (ServiceTimeSource::Calibrated, Some(calibration)) => {
            let peak = rate(calibration.peak_per_s);
            format!("{} ÷ the peak of {peak}/s", workers(&report.server))
        }
        (ServiceTimeSource::Calibrated, None) => {
            format!("{} ÷ the peak, calibrated", workers(&report.server))
        }
        (ServiceTimeSource::Given, _) => "as given, not calibrated".to_owned(),
        (ServiceTimeSource::VirtualWait, _) => "the mean wait of a worker".to_owned(),
        (ServiceTimeSource::BusyTime, _) => {
            "at most: the busy time of the workers ÷ requests, in the most efficient tenth of the \
             recording"
                .to_owned()
        }
        (ServiceTimeSource::AsFastAsMeasured, _) => {
            "the longest with which the ideal is not slower than this server was".to_owned()
        }
        (ServiceTimeSource::Unknown, _) => "T1 and T6 alone do not show it".to_owned(),
    }
}

/// ` (40.1 µs to 43.2 µs)`: the interval of t, where there is one.
pub(crate) fn service_time_interval(result: &ServerResult) -> String {
    let interval = result.service_time_lo_ns.zip(result.service_time_hi_ns);
    interval.map_or_else(String::new, |(lo, hi)| format!(" ({lo} to {hi})"))
}

/// Where the number of the ideal queue's workers comes from, in words.
pub(crate) const fn workers_origin(result: &ServerResult) -> &'static str {
    match result.ideal.workers_source {
        WorkersSource::Known => "known before the recording",
        WorkersSource::Given => "as given",
        WorkersSource::Seen => "the threads that served requests, at most one per CPU",
    }
}

/// The share of the server's CPU time that was used in all segments together.
fn used_share(segments: &[LoadSegment]) -> Option<f64> {
    let seconds = |segment: &LoadSegment| segment.length_ns.as_secs_f64();
    let all: f64 = segments.iter().map(seconds).sum();
    let used = segments.iter().map(|at| at.busy_share * seconds(at));
    (all > 0.0).then(|| used.sum::<f64>() / all)
}

/// How the rate followed the capacity; `None` where it was constant.
pub(crate) fn followed(load: &LoadSummary) -> Option<String> {
    let rates = || load.segments.iter().map(|segment| segment.rate_per_s);
    let least = rates().min_by(f64::total_cmp)?;
    let most = rates().max_by(f64::total_cmp)?;
    if load.segments.len() == 1 {
        return Some("the rate followed the capacity".to_owned());
    }
    Some(format!(
        "the rate followed the capacity, {} to {}/s in {}",
        rate(least),
        rate(most),
        counted(load.segments.len() as u64, "segment", "segments")
    ))
}

/// How busy the server was: as measured, then as requested or as computed from t.
pub(crate) fn utilization(document: &Document<'_>) -> String {
    let report = document.report;
    if let Some(load) = &report.load
        && let Some(used) = used_share(&load.segments)
    {
        let asked = figures::known_percent(load.target_utilization);
        let used = figures::percent(used, 1);
        return format!("{used} of the server’s CPU time ({asked} asked for)");
    }
    let nominal = match &report.load {
        Some(load) => figures::known_percent(load.target_utilization),
        None => figures::percent(report.server.ideal.utilization, 1),
    };
    let origin = match &report.load {
        Some(_) => "asked for",
        None => "by t",
    };
    match report.server.measured.utilization {
        None if report.server.service_time_source == ServiceTimeSource::Unknown => {
            "not known".to_owned()
        }
        Some(measured) => format!("{} ({nominal} {origin})", figures::percent(measured, 1)),
        None => format!("{nominal} {origin}"),
    }
}

/// What came to the server's port, or left it, and is no request to the server or no response of it, or is not known to
/// belong together.
pub(crate) fn left_out(result: &ServerResult) -> Option<String> {
    let Exclusions {
        early,
        elsewhere,
        parts,
        other_processes,
        unasked,
        unasked_ports,
        ..
    } = &result.left_out;
    let early = (*early > 0).then(|| {
        let requests = counted(*early, "request", "requests");
        format!("{requests} at the beginning, when it was not yet known which response was whose")
    });
    let passing = (*elsewhere > 0).then(|| {
        let requests = counted(*elsewhere, "request", "requests");
        format!("{requests} that no socket of the server received")
    });
    let others = (*other_processes > 0).then(|| {
        let requests = counted(*other_processes, "request", "requests");
        format!("{requests} to other processes that share its port")
    });
    let unasked = (*unasked > 0).then(|| {
        let ports: Vec<String> = unasked_ports.iter().map(u16::to_string).collect();
        let more = if *unasked > ports.len() as u64 {
            " …"
        } else {
            ""
        };
        format!(
            "{} on which the server sends unasked (client's {} {}{more})",
            counted(*unasked, "connection", "connections"),
            if ports.len() == 1 { "port" } else { "ports" },
            ports.join(", ")
        )
    });
    let parts = (*parts > 0).then(|| {
        format!(
            "{} that only began a request: without --protocol, what a client sends before it waits is one",
            counted(*parts, "packet", "packets")
        )
    });
    let all: Vec<String> = ([early, passing, others, unasked, parts].into_iter())
        .flatten()
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The responses that were sent again, where no finding says so.
pub(crate) fn sent_again(result: &ServerResult) -> Option<String> {
    let again = result.sent_again.filter(|_| result.explanation.is_none())?;
    let responses = counted(again.responses, "response", "responses");
    let (median, longest) = (again.median_ns, again.longest_ns);
    Some(format!(
        "{responses}, {median} later at the median, {longest} at most: the sojourn ends before"
    ))
}

/// What several workers reached at the peak of as many times what one reaches: `4 workers reach 151,000/s
/// together, 86.1 % (82.0–90.3) of 4 × one alone (43,900/s)`.
pub(crate) fn scaling(report: &Report) -> Option<String> {
    let peak = report.calibration.as_ref()?;
    let scaling = peak.scaling?;
    let (n, workers) = (scaling.workers, workers(&report.server));
    let Some((reached, one)) = scaling.reached.zip(scaling.one_per_s) else {
        let why = match scaling.not_known_because {
            Some(NoScaling::PeakIsNotOfServer) => "the server was not the limit at the peak",
            _ => "too few requests had to wait to show what one costs",
        };
        return Some(format!(
            "what {workers} reach of {n} × one alone is not known: {why}"
        ));
    };
    let share = figures::percent(reached.value, 1);
    let ends = figures::interval_by(
        |end: f64| format!("{:.1}", end * 100.0),
        reached.lo,
        reached.hi,
    );
    let together = reached.value * one * f64::from(n);
    Some(format!(
        "{workers} reach {}/s together, {share} ({ends}) of {n} × one alone ({}/s)",
        rate(together),
        rate(one)
    ))
}

/// What a request cost at this rate, and t, where both are known: `a request cost 43.1 µs (38.0 µs at the
/// peak)`.
pub(crate) fn cost_of_a_request(result: &ServerResult) -> Option<String> {
    let cost = result.measured.busy_ns_per_request?;
    let t = result.service_time_ns;
    let at_best = match result.service_time_source {
        ServiceTimeSource::Calibrated => "at the peak",
        ServiceTimeSource::BusyPeriods => "without a pause",
        ServiceTimeSource::BusyTime => "at best",
        ServiceTimeSource::AsFastAsMeasured
        | ServiceTimeSource::Given
        | ServiceTimeSource::Unknown
        | ServiceTimeSource::VirtualWait => "by t",
    };
    let cost = figures::micros_f64(cost);
    Some(format!("a request cost {cost} µs ({t} {at_best})"))
}

/// What a reader must know before the first figure: the reasons of the verdict that affect all
/// figures, without their remedies, which the verdict shows. Those with one root are one. Those with keys in `told`
/// are said elsewhere.
pub(crate) fn foremost(verdict: &Verdict, told: &[&str]) -> Vec<String> {
    const KEYS: [&str; 8] = [
        "overload",
        "growing",
        "rate_missed",
        "client_busy",
        "errors",
        "unanswered",
        "tracer_in_tail",
        "generator_in_tail",
    ];
    let all = verdict.reasons.iter().chain(&verdict.warnings);
    let these = all.filter(|reason| {
        let key = reason.key.as_str();
        KEYS.contains(&key) && !told.contains(&key)
    });
    let mut by_root: Vec<(&str, Vec<&str>)> = Vec::new();
    for Reason { key, text } in these {
        // what was seen may have a colon too: the rate of a sweep, or an answer of the server
        let seen = text
            .rsplit_once(": ")
            .map_or(text.as_str(), |(seen, _)| seen);
        match by_root
            .iter_mut()
            .find(|(of, _)| reservations::have_one_root(of, key))
        {
            Some((_, said)) => said.push(seen),
            None => by_root.push((key, vec![seen])),
        }
    }
    by_root.iter().map(|(_, said)| joined(said)).collect()
}

/// One sentence of several. What follows from each of them alike is said after the last one only.
fn joined(said: &[&str]) -> String {
    let what_follows = |text: &str| text.find(", so ").map(|at| text[at..].to_owned());
    let last = said.last().copied().and_then(what_follows);
    let mut told: Vec<&str> = Vec::with_capacity(said.len());
    for (place, text) in said.iter().enumerate() {
        let same = last.as_deref().filter(|_| place + 1 < said.len());
        told.push(same.and_then(|so| text.strip_suffix(so)).unwrap_or(text));
    }
    told.join("; ")
}

/// Whether a measurement is valid, in a few words and their colour:
/// `VALID up to p99.9, with 2 reservations`. Those with one root are one.
pub(crate) fn verdict_word(verdict: &Verdict, partial: bool) -> (Ink, String) {
    let (ink, word) = match (verdict.valid, partial) {
        (false, false) => (Ink::Bad, "INVALID"),
        (false, true) => (Ink::Bad, "INVALID, PARTIAL"),
        (true, true) => (Ink::Notable, "PARTIAL"),
        (true, false) => (Ink::Good, "VALID"),
    };
    let (ink, word) = match verdict.valid_percentiles() {
        ValidPercentiles::UpTo(highest) if verdict.valid => {
            (ink, format!("{word} up to {highest}"))
        }
        ValidPercentiles::None if verdict.valid => {
            (Ink::Notable, format!("{word}, but no percentile holds"))
        }
        _ => (ink, word.to_owned()),
    };
    let reservations = reservations::of(verdict, &[]).len() as u64;
    match (verdict.valid, reservations) {
        (false, _) | (_, 0) => (ink, word),
        (true, n) => {
            let reservations = counted(n, "reservation", "reservations");
            (ink, format!("{word}, with {reservations}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::summary::{Claim, ClaimName};

    use super::*;

    #[test]
    fn a_reservation_lacks_only_its_remedy() {
        let seen = "at 1000/s: 9 error responses in 90 requests, the first: HTTP/1.1 404";
        let verdict = Verdict {
            reasons: vec![Reason::new("errors", format!("{seen}: check the path"))],
            ..Verdict::default()
        };
        assert_eq!(foremost(&verdict, &[]), [seen]);
        assert!(foremost(&verdict, &["errors"]).is_empty());
    }

    /// A generator that was held up has missed its rate and was busy, which is one thing.
    #[test]
    fn what_has_one_root_is_said_once_with_all_its_numbers() {
        let verdict = |keys: [(&str, &str); 3]| Verdict {
            warnings: keys
                .map(|(key, text)| Reason::new(key, format!("{text}: give it a CPU")))
                .to_vec(),
            ..Verdict::default()
        };
        let sends = verdict([
            ("rate_missed", "it sent 9 of 12, so nothing is known"),
            ("errors", "3 errors"),
            ("client_busy", "it was busy 99 %, so nothing is known"),
        ]);
        assert_eq!(
            foremost(&sends, &[]),
            [
                "it sent 9 of 12; it was busy 99 %, so nothing is known",
                "3 errors"
            ]
        );
        let unlike = verdict([
            ("rate_missed", "it sent 9 of 12, so p99 is not known"),
            ("client_busy", "it was busy 99 %, so nothing is known"),
            ("virtual_machine", "this is a virtual machine"),
        ]);
        assert_eq!(
            foremost(&unlike, &[]),
            ["it sent 9 of 12, so p99 is not known; it was busy 99 %, so nothing is known"]
        );
    }

    #[test]
    fn a_verdict_says_how_many_percentiles_hold() {
        let word = |hold: usize| {
            let claim = |(place, claim): (usize, ClaimName)| Claim {
                claim,
                valid: place < hold,
                because: Vec::new(),
            };
            let claims = ClaimName::PERCENTILES.into_iter().enumerate().map(claim);
            let verdict = Verdict {
                valid: true,
                claims: claims.collect(),
                ..Verdict::default()
            };
            verdict_word(&verdict, false).1
        };
        assert_eq!(word(6), "VALID");
        assert_eq!(word(3), "VALID up to p99");
        assert_eq!(word(0), "VALID, but no percentile holds");
    }
}
