//! The limits that a result must meet (`--assert`), and the file for continuous integration (`--junit`).

use taillab_analysis::verdict::is_overload;
use taillab_console::args::LimitArgs;
use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_host::user_files;
use taillab_model::Distribution;
use taillab_model::load_result::LoadReport;
use taillab_model::summary::{LoadSummary, Report, Verdict};
use taillab_model::threshold::{Assertion, AssertionOutcome, Figures, Standing, Threshold};
use taillab_report::junit::junit;

/// Checks the limits of a measured server, by the sojourn of all requests: the arrivals may not have been those of
/// the schedule, and the server is not to blame for what happened before or after. Errors are those that the
/// client saw, where it is ours.
pub fn hold(args: &LimitArgs, report: &mut Report) -> Result<(), Failure> {
    let stayed = &report.server.measured.sojourn;
    let all = stayed.count + stayed.unanswered;
    let errors = match &report.load {
        Some(load) => {
            let errors = load.errors.of_server(stayed.unanswered);
            (errors.failed_requests(), load.requests)
        }
        None => (stayed.unanswered, all),
    };
    let measured = (stayed, "sojourn", errors);
    report.assertions = held(&args.limits, measured, standing(&report.verdict));
    write(args, report)
}

/// Checks the limits of what a client alone measured: one load, or a closed loop.
pub fn hold_load(args: &LimitArgs, report: &mut LoadReport) -> Result<(), Failure> {
    let closed = report.generator().closed_loop.as_ref();
    let of_closed = closed.map(|closed| {
        let errors = (closed.errors.failed_requests(), closed.requests);
        (&closed.service_time, "service time", errors)
    });
    // a sweep has neither; the command line allows no limit for it
    let measured = report.load.as_ref().map(of_load).or(of_closed);
    report.assertions = measured.map_or_else(Vec::new, |measured| {
        held(&args.limits, measured, standing(&report.verdict))
    });
    write(args, report)
}

/// The latencies with their name, then how many requests failed and how many there were.
type LimitedFigures<'a> = (&'a Distribution, &'static str, (u64, u64));

fn of_load(load: &LoadSummary) -> LimitedFigures<'_> {
    (&load.response_time, "response time", errors_of(load))
}

const fn errors_of(load: &LoadSummary) -> (u64, u64) {
    (load.errors.failed_requests(), load.requests)
}

fn held(
    limits: &[Threshold],
    (latency, latency_name, errors): LimitedFigures<'_>,
    standing: Standing,
) -> Vec<Assertion> {
    let figures = Figures {
        latency,
        latency_name,
        before: None,
        errors,
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
fn write<Server>(args: &LimitArgs, report: &Report<Server>) -> Result<(), Failure> {
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
