//! What was checked about a measurement, in words that the terminal and the page share.

use taillab_model::load_result::{Generator, LoadReport};
use taillab_model::summary::{
    ArrivalsReference, Calibration, Claim, ClientsSummary, DeadTime, DispersionAt, Hook, LimitedBy,
    LoadErrors, LoadSummary, MAX_CLIENT_BUSY_SHARE, MIN_COMPLETE_SHARE, MIN_MATCHED_SHARE,
    Matching, Observer, Overhead, Report, Verdict,
};
use taillab_model::{Distribution, MiddleStamps, Nanos};

use crate::clients;
use crate::document::Document;
use crate::figures::{
    bytes, count, counted, interval, micros, micros_f64, percent, percent_of, rate, round_length,
};
use crate::schedule;
use crate::server::{self, service_time_origin};
use crate::table::{Column, Table, cell, name};

/// One thing that was checked.
#[derive(Clone, Debug)]
pub(crate) struct TrustCheck {
    /// What was looked at.
    pub(crate) name: &'static str,
    /// How it came out.
    pub(crate) state: State,
    /// What was found, one sentence or clause in each.
    pub(crate) lines: Vec<String>,
}

/// How a check came out. Whether the run is valid is for the verdict to say, not for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// As it should be.
    Good,
    /// Worth knowing.
    Notable,
    /// Not as it should be.
    Bad,
}

impl State {
    const fn good_if(is_good: bool, otherwise: Self) -> Self {
        if is_good { Self::Good } else { otherwise }
    }
}

fn check(name: &'static str, state: State, lines: impl IntoIterator<Item = String>) -> TrustCheck {
    TrustCheck {
        name,
        state,
        lines: lines.into_iter().collect(),
    }
}

/// Everything that was checked, in the order in which a reader would ask.
pub(crate) fn of(document: &Document<'_>) -> Vec<TrustCheck> {
    let report = document.report;
    let matched = &report.server.matching;
    let mut checks: Vec<TrustCheck> = claims(&report.verdict).into_iter().collect();
    checks.extend(on_schedule(report));
    checks.extend([matching(matched), lost_and_blind(document)]);
    if let Some(load) = &report.load {
        let cut = schedule::cut(report).map_or(Nanos::ZERO, |cut| cut.length_ns);
        let on_schedule = load.duration_ns.saturating_sub(cut);
        checks.extend([
            arrivals(load, on_schedule),
            sender(load),
            errors(&load.errors),
        ]);
        checks.extend(load.clients.as_ref().map(clients_of));
        checks.push(probe(&report.server.overhead));
    }
    checks.extend(report.observer.as_ref().map(observer));
    checks.extend((report.calibration.as_ref()).map(|c| calibration(document, c)));
    checks.push(precision(&matched.hooks));
    // what could not be recorded, and therefore cannot be explained
    let limits = report.server.explanation.as_ref().map(|of| &of.limits);
    let limits = limits.filter(|limits| !limits.is_empty());
    checks.extend(limits.map(|limits| check("not recorded", State::Notable, limits.clone())));
    checks
}

/// Everything that was checked about a load.
pub(crate) fn of_load(report: &LoadReport) -> Vec<TrustCheck> {
    let generator = report.generator();
    let loads = report.load.iter();
    let mut checks: Vec<TrustCheck> = claims(&report.verdict).into_iter().collect();
    checks.extend(
        loads
            .clone()
            .flat_map(|load| [arrivals(load, load.duration_ns), sender(load)]),
    );
    checks.extend(loads.filter_map(|load| load.clients.as_ref().map(clients_of)));
    checks.extend(generator.wire.as_ref().map(|wire| {
        let stamped = counted(
            wire.stamped,
            "request with both stamps",
            "requests with both stamps",
        );
        let lines = [
            format!("late by {}, by the kernel’s stamps", brief(&wire.lateness)),
            format!("service time {}, of {stamped}", brief(&wire.service_time)),
        ];
        check("on the wire", State::Good, lines)
    }));
    checks.push(floor(generator));
    let closed = generator.closed_loop.as_ref().map(|closed| &closed.errors);
    let sent = report.load.as_ref().map(|load| &load.errors);
    checks.extend(sent.or(closed).map(errors));
    checks
}

/// Which claims hold and which are withdrawn; `None` where the result makes no claims.
fn claims(verdict: &Verdict) -> Option<TrustCheck> {
    judged("claims", &verdict.claims)
}

/// Which percentiles of what requests on schedule saw hold, and what is known of them; `None` where it is the view
/// of all requests.
fn on_schedule(report: &Report) -> Option<TrustCheck> {
    let view = report.scheduled.as_ref()?;
    let is_own = !view.same_as_measured || view.withdrawn_from().is_some();
    let mut check = is_own
        .then(|| judged("scheduled", &view.claims))
        .flatten()?;
    check.lines.extend(schedule::details(report));
    Some(check)
}

fn judged(name: &'static str, claims: &[Claim]) -> Option<TrustCheck> {
    let names = |claims: &[&Claim]| -> String {
        let names = claims.iter().map(|claim| claim.claim.to_string());
        names.collect::<Vec<_>>().join(", ")
    };
    let (hold, withdrawn): (Vec<&Claim>, Vec<&Claim>) =
        claims.iter().partition(|claim| claim.valid);
    let mut lines = Vec::new();
    if withdrawn.is_empty() && !hold.is_empty() {
        lines.push(format!("all hold: {}", names(&hold)));
    }
    for together in withdrawn.chunk_by(|a, b| a.because == b.because) {
        let because = together[0].because.join(", ");
        lines.push(format!("withdrawn: {} ({because})", names(together)));
    }
    let state = match (hold.is_empty(), withdrawn.is_empty()) {
        (true, _) => State::Bad,
        (false, true) => State::Good,
        (false, false) => State::Notable,
    };
    (!lines.is_empty()).then(|| check(name, state, lines))
}

/// The client's floor, which says how much of a result is the client's own.
fn floor(generator: &Generator) -> TrustCheck {
    let Some(floor) = &generator.floor else {
        let why = generator.floor_absent_because.as_deref();
        let why = why.unwrap_or("no reason was given");
        return check("floor", State::Notable, [format!("not measured: {why}")]);
    };
    let mut lines = Vec::new();
    if let Some(load) = &floor.load {
        let time = brief(&load.response_time);
        lines.push(format!("{}: {time}", floor.responder));
        lines.push(format!("late by {}", brief(&load.lateness)));
    }
    if let Some(closed) = &floor.closed_loop {
        let (time, answers) = (
            brief(&closed.service_time),
            rate(closed.answered_rate_per_s),
        );
        lines.push(format!("{}: {time}; {answers} answers/s", floor.responder));
    }
    check("floor", State::Good, lines)
}

fn matching(m: &Matching) -> TrustCheck {
    let at_least = |part: u64, whole: u64, share: f64| part as f64 >= whole as f64 * share;
    let ends = format!(
        "{} of {} responses have T1 and T6 ({})",
        count(m.matched),
        count(m.responses),
        percent_of(m.matched, m.responses),
    );
    let complete = format!(
        "{} have all six stamps in order ({})",
        count(m.complete),
        percent_of(m.complete, m.asked()),
    );
    let mut lines = vec![match m.stamps {
        MiddleStamps::All => format!("{ends}, {complete}"),
        MiddleStamps::Sampled(_) => format!(
            "{ends}; of {} in {}, {complete}",
            count(m.asked()),
            counted(m.slices, "slice", "slices")
        ),
        MiddleStamps::Ends => format!("{ends}; the others were not recorded (--stamps ends)"),
    }];
    if m.left_late > 0 {
        lines.push(format!(
            "{} of these left after the end of their slice: what happened to them then is unobserved",
            count(m.left_late)
        ));
    }
    if m.client_responses > 0 {
        lines.push(format!(
            "the client received {}, counted without the probe: {} of them have T1 and T6 ({})",
            counted(m.client_responses, "response", "responses"),
            count(m.client_matched),
            percent_of(m.client_matched, m.client_responses),
        ));
    }
    let missing: Vec<String> = ["T2", "T3", "T4", "T5"]
        .iter()
        .zip(m.missing_middle)
        .filter(|&(_, n)| n > 0)
        .map(|(stamp, n)| format!("{stamp} is missing in {}", count(n)))
        .collect();
    if !missing.is_empty() {
        lines.push(format!(
            "{}; the distribution includes these requests",
            missing.join(", ")
        ));
    }
    lines.push(format!(
        "{} ambiguous, {} unanswered, {} out of order",
        count(m.ambiguous),
        count(m.unanswered),
        count(m.out_of_order),
    ));
    let is_good = at_least(m.matched, m.responses, MIN_MATCHED_SHARE)
        && at_least(m.client_matched, m.client_responses, MIN_MATCHED_SHARE)
        && at_least(m.complete, m.asked(), MIN_COMPLETE_SHARE);
    check("matching", State::good_if(is_good, State::Bad), lines)
}

fn lost_and_blind(document: &Document<'_>) -> TrustCheck {
    let m = &document.report.server.matching;
    // windows of several CPUs may overlap: the sum is a bound, and may exceed the time
    let length = document.report.duration_ns;
    let share = percent_of(m.blind_ns.get(), length.get());
    let of_time = match m.blind_ns > length {
        true => "on all CPUs".to_owned(),
        false => format!("at most {share} of the time"),
    };
    let blind = match m.blind_windows {
        0 => "no blind window".to_owned(),
        n => format!(
            "{}, {} in total ({of_time}), during {}",
            counted(n, "blind window", "blind windows"),
            m.blind_ns,
            counted(m.blind_requests, "request", "requests"),
        ),
    };
    let state = match (m.lost_events, m.blind_windows) {
        (0, 0) => State::Good,
        (0, _) => State::Notable,
        _ => State::Bad,
    };
    let lost = counted(m.lost_events, "event", "events");
    check("lost events", state, [format!("{lost} lost; {blind}")])
}

/// `length` is how long requests were sent on schedule.
fn arrivals(load: &LoadSummary, length: Nanos) -> TrustCheck {
    let a = &load.arrivals;
    let is_scheduled = a.reference == ArrivalsReference::Schedule;
    let how = match (is_scheduled, a.gaps_passed()) {
        (true, _) => "compared with the schedule; individual gaps are not judged",
        (false, true) => "gap by gap",
        (false, false) => "but not gap by gap (5 % tests)",
    };
    let mut lines = vec![format!(
        "{} {how}: CV of the gaps {:.3}, KS D {:.4} (critical {:.4}), Anderson–Darling A² {:.2} \
         (critical {:.2})",
        a.process, a.cv, a.ks_d, a.ks_critical, a.ad_a2, a.ad_critical,
    )];
    let idc = |at: &DispersionAt| {
        let window = round_length(at.window_ns.get() as f64);
        match (at.value, at.expected) {
            (Some(value), Some(expected)) if is_scheduled => {
                format!("{value:.3} in {window} (planned {expected:.3})")
            }
            (Some(value), _) => format!("{value:.3} in {window}"),
            (None, _) => format!("not known in {window} (too few windows)"),
        }
    };
    let idc: Vec<String> = a.idc.iter().map(idc).collect();
    if !idc.is_empty() {
        let idc = idc.join(", ");
        lines.push(format!("index of dispersion of counts (IDC) {idc}"));
    }
    let even = evenness(load, length);
    let is_exact = even.is_none() && (a.gaps_passed() || is_scheduled);
    lines.extend(even);
    lines.extend(a.dead_time.as_ref().map(dead_time));
    // bursts decide: they make the queues, and evenness only takes some away
    let state = match a.foreign_bursts(length) {
        Some(_) => State::Bad,
        None => State::good_if(is_exact, State::Notable),
    };
    check("arrivals", state, lines)
}

/// Below which windows a send takes bursts away.
fn evenness(load: &LoadSummary, length: Nanos) -> Option<String> {
    let window = load.arrivals.more_even_below(length)?;
    Some(format!(
        "sends are more even than {} in windows shorter than {}",
        load.arrivals.process,
        round_length(window.get() as f64)
    ))
}

/// How long one send keeps the next one waiting.
fn dead_time(dead: &DeadTime) -> String {
    format!(
        "dead time {} µs ({}), the median of {} pairs of sends that were due within {} of each other",
        micros(dead.median_ns),
        interval(Some(dead.lo_ns), dead.hi_ns),
        count(dead.count),
        round_length(dead.due_within_ns.get() as f64),
    )
}

fn sender(load: &LoadSummary) -> TrustCheck {
    let is_idle_enough = load.client.busy_share <= MAX_CLIENT_BUSY_SHARE;
    let lines = [
        format!("late by {}", brief(&load.lateness)),
        format!(
            "sent {}/s of {}/s wanted; the client costs {} of CPU per request and is busy {} of \
             the time",
            rate(load.sent_rate_per_s),
            rate(load.target_rate_per_s),
            load.client.cpu_ns_per_request,
            percent(load.client.busy_share, 1),
        ),
    ];
    check("sender", State::good_if(is_idle_enough, State::Bad), lines)
}

/// Who the clients were, and whether requests queued for their connections.
fn clients_of(of: &ClientsSummary) -> TrustCheck {
    let lines = [clients::who(of)].into_iter();
    let lines = lines
        .chain(clients::connections(of))
        .chain((of.connecting.as_ref()).map(|of| format!("connecting took {}", brief(&of.time))))
        .chain(clients::waits(of));
    let is_good = clients::are_enough(of) && clients::all_came_up(of);
    let state = State::good_if(is_good, State::Notable);
    check("clients", state, lines)
}

pub(crate) fn errors(errors: &LoadErrors) -> TrustCheck {
    let kinds = errors.kinds().into_iter().filter(|(n, _)| *n > 0);
    let seen: Vec<String> = kinds
        .map(|(n, kind)| format!("{} {kind}", count(n)))
        .collect();
    let line = match seen.is_empty() {
        true => "none: no time-out, no refusal, no miss".to_owned(),
        false => seen.join(", "),
    };
    let state = State::good_if(seen.is_empty(), State::Notable);
    check("errors", state, [line])
}

fn probe(o: &Overhead) -> TrustCheck {
    let Some(loss) = o.throughput_loss else {
        let line = "its cost was not measured".to_owned();
        return check("probe", State::Notable, [line]);
    };
    let interval = match (o.throughput_loss_lo, o.throughput_loss_hi) {
        (Some(lo), Some(hi)) => {
            format!(" (95 % interval {} to {})", percent(lo, 1), percent(hi, 1))
        }
        _ => String::new(),
    };
    let cost = (o.cpu_ns_per_request)
        .map(|ns| format!("; {} µs of server CPU per request", micros_f64(ns)));
    let in_slices =
        (o.throughput_loss_in_slices).map(|loss| format!("; {} within a slice", percent(loss, 1)));
    let line = format!(
        "costs {} of the peak throughput{interval}, in {} of one start of the server{}{}",
        percent(loss, 1),
        counted(u64::from(o.pairs), "interleaved pair", "interleaved pairs"),
        cost.unwrap_or_default(),
        in_slices.unwrap_or_default(),
    );
    check(
        "probe",
        State::good_if(!o.is_notable(), State::Notable),
        [line],
    )
}

fn calibration(document: &Document<'_>, c: &Calibration) -> TrustCheck {
    let result = &document.report.server;
    let mut lines = vec![format!(
        "peak {}/s (95 % interval {} to {}) in {} with {} outstanding, server CPU {} busy; \
         t = {} = {}",
        rate(c.peak_per_s),
        rate(c.peak_lo_per_s),
        rate(c.peak_hi_per_s),
        counted(u64::from(c.blocks), "block", "blocks"),
        counted(u64::from(c.outstanding), "request", "requests"),
        percent(c.server_cpu_busy_share, 1),
        result.service_time_ns,
        service_time_origin(document),
    )];
    let is_limited_by = match c.limited_by {
        _ if result.ideal.virtual_workers => None,
        LimitedBy::Server => None,
        LimitedBy::Others => Some("other programs used its CPUs too"),
        LimitedBy::Client => Some("the client could not send faster"),
        LimitedBy::Waits => Some("requests waited for something other than a CPU"),
    };
    if let Some(why) = is_limited_by {
        lines.push(format!("the peak is not the server’s: {why}"));
    }
    if let Some(busy) = result.measured.server_cpu_busy_share {
        lines.push(format!(
            "in the measurement the server’s CPU was {} busy; utilisation: {}",
            percent(busy, 1),
            server::utilization(document),
        ));
    }
    check(
        "calibration",
        State::good_if(is_limited_by.is_none(), State::Notable),
        lines,
    )
}

fn precision(hooks: &[Hook]) -> TrustCheck {
    let lost = hooks.iter().filter_map(|hook| {
        let lost = hook.lost_precision.as_ref()?;
        Some(format!("{} at {}: {lost}", hook.stamp, hook.hook))
    });
    let lost: Vec<String> = lost.collect();
    if !lost.is_empty() {
        return check("hooks", State::Notable, lost);
    }
    let all = hooks
        .iter()
        .map(|hook| format!("{} {}", hook.stamp, hook.hook));
    check("hooks", State::Good, [all.collect::<Vec<_>>().join(", ")])
}

/// The hook behind each stamp.
pub(crate) fn hooks_table(hooks: &[Hook]) -> Table {
    let columns = [
        Column::left("stamp"),
        Column::left("hook").gap(2),
        Column::left("loss of precision").gap(2).wrapped(usize::MAX),
    ];
    let mut table = Table::new("The kernel hook behind each stamp", columns);
    for hook in hooks {
        let lost = hook.lost_precision.as_deref().unwrap_or("none known");
        table.row([name(&hook.stamp), cell(&hook.hook), cell(lost)]);
    }
    table
}

/// What the observation cost, as the observer measured it.
fn observer(o: &Observer) -> TrustCheck {
    let programs = (o.program_ns_per_request).map(|ns| {
        let micros = micros_f64(ns);
        format!("; its programs in the kernel took {micros} µs for each request")
    });
    let written = match o.written_bytes_per_s {
        per_s if per_s > 0.0 => format!(", {}/s written", bytes(per_s)),
        _ => String::new(),
    };
    let lines = [
        format!(
            "taillab itself took {} of one CPU and {} of memory{}",
            percent(o.cpu_share, 1),
            bytes(o.peak_memory_bytes as f64),
            programs.unwrap_or_default(),
        ),
        format!(
            "{:.1} events recorded for each request{written}",
            o.events_per_request
        ),
    ];
    check(
        "observer",
        State::good_if(!o.is_notable(), State::Notable),
        lines,
    )
}

/// A distribution in a clause: `0.4 µs (p50), 6.1 µs (p99), 120 µs (max)`.
fn brief(distribution: &Distribution) -> String {
    let parts: Vec<String> = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")]
        .iter()
        .filter_map(|&(q, name)| Some((distribution.quantile(q)?, name)))
        .chain(distribution.max.map(|max| (max, "max")))
        .map(|(value, name)| format!("{value} ({name})"))
        .collect();
    match parts.is_empty() {
        true => "– (no request)".to_owned(),
        false => parts.join(", "),
    }
}
