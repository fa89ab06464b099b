//! What was checked about the run, in words that the terminal and the page share.

use taillab_model::load_result::{ClosedLoopResult, Floor, LoadResult};
use taillab_model::summary::{
    ArrivalsReference, Calibration, DispersionAt, Hook, LoadErrors, LoadSummary,
    MAX_CLIENT_BUSY_SHARE, MIN_COMPLETE_SHARE, MIN_MATCHED_SHARE, Observer,
};
use taillab_model::{Distribution, Nanos};

use crate::document::Document;
use crate::figures::{bytes, count, counted, micros_f64, percent, percent_of, rate, round_length};
use crate::server::service_time_origin;
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

/// How a check came out. Whether the run is valid is the verdict's to say, not this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// As it should be.
    Good,
    /// Worth knowing.
    Notable,
    /// Not as it should be.
    Bad,
}

/// Everything that was checked, in the order of a reader's doubts.
pub(crate) fn of(document: &Document<'_>) -> Vec<TrustCheck> {
    let mut findings = vec![matching(document), lost_and_blind(document)];
    if let Some(load) = document.report.load.as_ref() {
        findings.extend([
            arrivals(load),
            sender(load),
            errors(&load.errors),
            probe(document),
        ]);
    }
    findings.extend(document.report.observer.as_ref().map(observer));
    if let Some(calibration) = document.report.calibration.as_ref() {
        findings.push(calibrated(document, calibration));
    }
    findings.push(precision(document));
    findings.extend(not_recorded(document));
    findings
}

/// Everything that was checked about a load.
pub(crate) fn of_load(result: &LoadResult) -> Vec<TrustCheck> {
    let mut findings = vec![arrivals(&result.load), sender(&result.load)];
    if let Some(wire) = &result.wire {
        findings.push(TrustCheck {
            name: "on the wire",
            state: State::Good,
            lines: vec![
                format!("by the kernel’s stamps late by {}", brief(&wire.lateness)),
                format!(
                    "service time {}, of {}",
                    brief(&wire.service_time),
                    counted(
                        wire.stamped,
                        "request with both stamps",
                        "requests with both stamps"
                    ),
                ),
            ],
        });
    }
    findings.push(floor(
        result.floor.as_ref(),
        result.floor_absent_because.as_deref(),
    ));
    findings.push(errors(&result.load.errors));
    findings
}

/// The client's floor, which says how much of a result is the client's own.
pub(crate) fn floor(floor: Option<&Floor>, absent_because: Option<&str>) -> TrustCheck {
    let lines = floor.map(|floor| {
        vec![
            format!("{}: {}", floor.responder, brief(&floor.load.response_time)),
            format!("late by {}", brief(&floor.load.lateness)),
        ]
    });
    about_floor(lines, absent_because)
}

/// The same of a closed loop.
pub(crate) fn closed_floor(result: &ClosedLoopResult) -> TrustCheck {
    let lines = result.floor.as_ref().map(|floor| {
        vec![format!(
            "{}: {}; {} answers/s",
            floor.responder,
            brief(&floor.service_time),
            rate(floor.answered_rate_per_s)
        )]
    });
    about_floor(lines, result.floor_absent_because.as_deref())
}

fn about_floor(lines: Option<Vec<String>>, absent_because: Option<&str>) -> TrustCheck {
    let (state, lines) = match lines {
        Some(lines) => (State::Good, lines),
        None => (
            State::Notable,
            vec![format!(
                "not measured: {}",
                absent_because.unwrap_or("no reason was given")
            )],
        ),
    };
    TrustCheck {
        name: "floor",
        state,
        lines,
    }
}

fn matching(document: &Document<'_>) -> TrustCheck {
    let m = &document.report.server.matching;
    let at_least = |part: u64, whole: u64, share: f64| part as f64 >= whole as f64 * share;
    let mut lines = vec![format!(
        "{} of {} responses have T1 and T6 ({}), {} all six stamps in order ({})",
        count(m.matched),
        count(m.responses),
        percent_of(m.matched, m.responses),
        count(m.complete),
        percent_of(m.complete, m.responses),
    )];
    if m.client_responses > 0 {
        lines.push(format!(
            "of the {} that the client received, counted without the probe, {} have T1 and T6 ({})",
            counted(m.client_responses, "response", "responses"),
            count(m.client_matched),
            percent_of(m.client_matched, m.client_responses),
        ));
    }
    let missing: Vec<String> = ["T2", "T3", "T4", "T5"]
        .iter()
        .zip(m.missing_middle)
        .filter(|&(_, n)| n > 0)
        .map(|(stamp, n)| format!("{stamp} missing in {}", count(n)))
        .collect();
    if !missing.is_empty() {
        lines.push(format!(
            "{}; those requests stay in the distribution",
            missing.join(", ")
        ));
    }
    lines.push(format!(
        "{} ambiguous, {} unanswered, {} out of order",
        count(m.ambiguous),
        count(m.unanswered),
        count(m.out_of_order),
    ));
    TrustCheck {
        name: "matching",
        state: if at_least(m.matched, m.responses, MIN_MATCHED_SHARE)
            && at_least(m.client_matched, m.client_responses, MIN_MATCHED_SHARE)
            && at_least(m.complete, m.responses, MIN_COMPLETE_SHARE)
        {
            State::Good
        } else {
            State::Bad
        },
        lines,
    }
}

fn lost_and_blind(document: &Document<'_>) -> TrustCheck {
    let m = &document.report.server.matching;
    let blind = if m.blind_windows == 0 {
        "no blind window".to_owned()
    } else {
        format!(
            "{} of {} in all ({} of the time), {} overlap one",
            counted(m.blind_windows, "blind window", "blind windows"),
            m.blind_ns,
            percent_of(m.blind_ns.get(), document.report.duration_ns.get()),
            counted(m.blind_requests, "request", "requests"),
        )
    };
    TrustCheck {
        name: "lost events",
        state: match (m.lost_events, m.blind_windows) {
            (0, 0) => State::Good,
            (0, _) => State::Notable,
            _ => State::Bad,
        },
        lines: vec![format!("{} events lost; {blind}", count(m.lost_events))],
    }
}

pub(crate) fn arrivals(load: &LoadSummary) -> TrustCheck {
    let a = &load.arrivals;
    let how = match (a.reference, a.gaps_passed()) {
        (ArrivalsReference::Process, true) => "gap by gap",
        (ArrivalsReference::Process, false) => "but not gap by gap (5 % tests)",
        (ArrivalsReference::Schedule, _) => "held against the schedule, single gaps not judged",
    };
    let mut lines = vec![format!(
        "{} {how}: CV of the gaps {:.3}, KS D {:.4} (critical {:.4}), Anderson–Darling A² {:.2} (critical {:.2})",
        a.process, a.cv, a.ks_d, a.ks_critical, a.ad_a2, a.ad_critical,
    )];
    let window = |at: &DispersionAt| round_length(at.window_ns.get() as f64);
    let idc: Vec<String> = a
        .idc
        .iter()
        .map(|at| match (at.value, at.expected) {
            (Some(value), Some(expected)) if a.reference == ArrivalsReference::Schedule => {
                format!("{value:.3} in {} (planned {expected:.3})", window(at))
            }
            (Some(value), _) => format!("{value:.3} in {}", window(at)),
            (None, _) => format!("too few windows of {} to tell", window(at)),
        })
        .collect();
    if !idc.is_empty() {
        lines.push(format!(
            "index of dispersion of counts (IDC) {}",
            idc.join(", ")
        ));
    }
    TrustCheck {
        name: "arrivals",
        // Bursts decide, not single gaps of microseconds: they make the queues.
        state: if a.foreign_bursts(load.duration_ns).is_some() {
            State::Bad
        } else if a.gaps_passed() || a.reference == ArrivalsReference::Schedule {
            State::Good
        } else {
            State::Notable
        },
        lines,
    }
}

fn sender(load: &LoadSummary) -> TrustCheck {
    TrustCheck {
        name: "sender",
        state: if load.client.busy_share > MAX_CLIENT_BUSY_SHARE {
            State::Bad
        } else {
            State::Good
        },
        lines: vec![
            format!("late by {}", brief(&load.lateness)),
            format!(
                "sent {}/s of {}/s wanted; the client costs {} of CPU per request and is busy {} of the time",
                rate(load.sent_rate_per_s),
                rate(load.target_rate_per_s),
                load.client.cpu_ns_per_request,
                percent(load.client.busy_share, 1),
            ),
        ],
    }
}

pub(crate) fn errors(errors: &LoadErrors) -> TrustCheck {
    let kinds = errors.kinds();
    let seen: Vec<String> = kinds
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, kind)| format!("{} {kind}", count(*n)))
        .collect();
    TrustCheck {
        name: "errors",
        state: if seen.is_empty() {
            State::Good
        } else {
            State::Notable
        },
        lines: vec![if seen.is_empty() {
            "none: no time-out, no refusal, no miss".to_owned()
        } else {
            seen.join(", ")
        }],
    }
}

fn probe(document: &Document<'_>) -> TrustCheck {
    /// Above this share of the peak throughput the probe's cost is worth a reader's eye.
    const DEAR: f64 = 0.1;
    let o = &document.report.server.overhead;
    let Some(loss) = o.throughput_loss else {
        return TrustCheck {
            name: "probe",
            state: State::Notable,
            lines: vec!["its cost was not measured".to_owned()],
        };
    };
    let interval = match (o.throughput_loss_lo, o.throughput_loss_hi) {
        (Some(lo), Some(hi)) => {
            format!(" (95 % interval {} to {})", percent(lo, 1), percent(hi, 1))
        }
        _ => String::new(),
    };
    let mut line = format!(
        "costs {} of the peak throughput{interval}, in {}",
        percent(loss, 1),
        counted(u64::from(o.pairs), "interleaved pair", "interleaved pairs"),
    );
    if let Some(cost) = o.cpu_ns_per_request {
        line.push_str(&format!(
            "; {} µs of server CPU per request",
            micros_f64(cost)
        ));
    }
    TrustCheck {
        name: "probe",
        state: if loss > DEAR {
            State::Notable
        } else {
            State::Good
        },
        lines: vec![line],
    }
}

fn calibrated(document: &Document<'_>, c: &Calibration) -> TrustCheck {
    /// Below this share the server was not the limit at the peak.
    const BUSY: f64 = 0.9;
    let result = &document.report.server;
    let mut lines = vec![format!(
        "peak {}/s (95 % interval {} to {}) in {}, server CPU {} busy; t = {} = {}",
        rate(c.peak_per_s),
        rate(c.peak_lo_per_s),
        rate(c.peak_hi_per_s),
        counted(u64::from(c.blocks), "block", "blocks"),
        percent(c.server_cpu_busy_share, 1),
        result.service_time_ns,
        service_time_origin(document),
    )];
    if let Some(busy) = result.measured.server_cpu_busy_share {
        lines.push(format!(
            "in the measurement the server's CPU was {} busy at {} utilisation",
            percent(busy, 1),
            percent(result.ideal.utilization, 1),
        ));
    }
    TrustCheck {
        name: "calibration",
        state: if c.server_cpu_busy_share < BUSY && !result.ideal.virtual_workers {
            State::Notable
        } else {
            State::Good
        },
        lines,
    }
}

fn precision(document: &Document<'_>) -> TrustCheck {
    let lost: Vec<String> = document
        .report
        .server
        .matching
        .hooks
        .iter()
        .filter_map(|hook| {
            let lost = hook.lost_precision.as_ref()?;
            Some(format!("{} at {}: {lost}", hook.stamp, hook.hook))
        })
        .collect();
    let hooks = || -> String {
        let of: Vec<String> = (document.report.server.matching.hooks.iter())
            .map(|hook| format!("{} {}", hook.stamp, hook.hook))
            .collect();
        of.join(", ")
    };
    TrustCheck {
        name: "hooks",
        state: if lost.is_empty() {
            State::Good
        } else {
            State::Notable
        },
        lines: if lost.is_empty() { vec![hooks()] } else { lost },
    }
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
        let cells = [name(&hook.stamp), cell(&hook.hook), cell(lost)];
        table.row(cells);
    }
    table
}

/// What watching cost, by the observer's own account.
fn observer(o: &Observer) -> TrustCheck {
    /// Above this share of a CPU the observer is worth a reader's eye.
    const DEAR: f64 = 0.5;
    let mut line = format!(
        "taillab itself took {} of one CPU and {} of memory",
        percent(o.cpu_share, 1),
        bytes(o.peak_memory_bytes as f64),
    );
    if let Some(ns) = o.program_ns_per_request {
        line.push_str(&format!(
            "; its programs in the kernel {} µs for each request",
            micros_f64(ns)
        ));
    }
    let mut events = format!(
        "{:.1} events recorded for each request",
        o.events_per_request
    );
    if o.written_bytes_per_s > 0.0 {
        events.push_str(&format!(", {}/s written", bytes(o.written_bytes_per_s)));
    }
    TrustCheck {
        name: "observer",
        state: if o.cpu_share > DEAR {
            State::Notable
        } else {
            State::Good
        },
        lines: vec![line, events],
    }
}

/// What could not be recorded, and what therefore stays unexplained.
fn not_recorded(document: &Document<'_>) -> Option<TrustCheck> {
    let explanation = document.report.server.explanation.as_ref()?;
    (!explanation.limits.is_empty()).then(|| TrustCheck {
        name: "not recorded",
        state: State::Notable,
        lines: explanation.limits.clone(),
    })
}

/// A distribution in a clause: `0.4 µs (p50), 6.1 µs (p99), 120 µs (max)`.
pub(crate) fn brief(distribution: &Distribution) -> String {
    let parts: Vec<String> = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")]
        .iter()
        .filter_map(|&(q, name)| Some((distribution.quantile(q)?, name)))
        .chain(distribution.max.map(|max: Nanos| (max, "max")))
        .map(|(value, name)| format!("{value} ({name})"))
        .collect();
    if parts.is_empty() {
        "– (no request)".to_owned()
    } else {
        parts.join(", ")
    }
}
