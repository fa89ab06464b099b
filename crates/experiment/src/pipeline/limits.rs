//! The limits that a result must meet (`--assert`), and the file for continuous integration (`--junit`).

use taillab_analysis::verdict::is_overload;
use taillab_console::args::LimitArgs;
use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_host::user_files;
use taillab_model::Distribution;
use taillab_model::load_result::ClosedLoop;
use taillab_model::summary::{LoadSummary, Report, Verdict};
use taillab_model::threshold::{
    Assertion, AssertionOutcome, ErrorCount, Figures, Standing, Threshold,
};
use taillab_report::junit::junit;

/// Holds limits against a measured server, by the sojourn of all requests: the arrivals may not have been those of
/// the schedule, and the server is not to blame for what happened before or after. Errors are those that the
/// client saw, where it is ours.
pub(super) fn of_server(
    limits: &[Threshold],
    sojourn: &Distribution,
    load: Option<&LoadSummary>,
    verdict: &Verdict,
) -> Vec<Assertion> {
    let errors = match load {
        Some(load) => {
            let errors = load.errors.of_server(sojourn.unanswered);
            ErrorCount {
                failed: errors.failed_requests(),
                all: load.requests,
            }
        }
        None => ErrorCount {
            failed: sojourn.unanswered,
            all: sojourn.count + sojourn.unanswered,
        },
    };
    let measured = LimitedFigures {
        latency: sojourn,
        latency_name: "sojourn",
        errors,
    };
    held(limits, measured, standing(verdict))
}

/// Holds limits against what a client alone measured: one load, or a closed loop. A sweep has neither; the command
/// line allows no limit for it.
pub(super) fn of_client(
    limits: &[Threshold],
    load: Option<&LoadSummary>,
    closed_loop: Option<&ClosedLoop>,
    verdict: &Verdict,
) -> Vec<Assertion> {
    let of_load = load.map(|load| LimitedFigures {
        latency: &load.response_time,
        latency_name: "response time",
        errors: ErrorCount {
            failed: load.errors.failed_requests(),
            all: load.requests,
        },
    });
    let of_closed = closed_loop.map(|closed| LimitedFigures {
        latency: &closed.service_time,
        latency_name: "service time",
        errors: ErrorCount {
            failed: closed.errors.failed_requests(),
            all: closed.requests,
        },
    });
    let measured = of_load.or(of_closed);
    measured.map_or_else(Vec::new, |measured| {
        held(limits, measured, standing(verdict))
    })
}

/// The figures of a result that has no other to be compared with.
struct LimitedFigures<'a> {
    latency: &'a Distribution,
    latency_name: &'static str,
    errors: ErrorCount,
}

fn held(limits: &[Threshold], measured: LimitedFigures<'_>, standing: Standing) -> Vec<Assertion> {
    let figures = Figures {
        latency: measured.latency,
        latency_name: measured.latency_name,
        before: None,
        errors: measured.errors,
        standing,
    };
    limits.iter().map(|limit| limit.hold(&figures)).collect()
}

/// What a verdict says of the figures that limits are held against.
pub fn standing(verdict: &Verdict) -> Standing {
    /// The generator's own limits.
    const GENERATOR: [&str; 2] = ["rate_missed", "client_busy"];
    let mut keys = verdict.warnings.iter().map(|warning| warning.key.as_str());
    if !verdict.valid {
        Standing::Invalid
    } else if is_overload(verdict) {
        Standing::Overloaded
    } else if keys.any(|key| GENERATOR.contains(&key)) {
        Standing::GeneratorLimited
    } else {
        Standing::Sound
    }
}

/// Writes the file of `--junit`, where it was asked for.
///
/// # Errors
/// It cannot be written.
pub fn write<Server>(args: &LimitArgs, report: &Report<Server>) -> Result<(), Failure> {
    match &args.junit {
        Some(path) => user_files::write_named(path, &junit(report)).map_err(host),
        None => Ok(()),
    }
}

/// The exit code: a limit that is not met comes first, then one that is undecided.
pub fn exit(assertions: &[Assertion]) -> Exit {
    let any = |held| assertions.iter().any(|of| of.outcome == held);
    if any(AssertionOutcome::Fail) {
        Exit::Missed
    } else if any(AssertionOutcome::Undecided) {
        Exit::Invalid
    } else {
        Exit::Ok
    }
}
