//! The limits that a result must hold (`--assert`), and the file that says so to continuous
//! integration (`--junit`).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use taillab_host::{Invoker, Roots};
use taillab_model::Distribution;
use taillab_model::load_result::LoadReport;
use taillab_model::summary::Report;
use taillab_model::threshold::{Assertion, Figures, Held, Threshold};
use taillab_report::junit::junit;

use crate::cli::LimitArgs;
use crate::exit::{Exit, Failure};

/// Holds the limits against a measured server: what its client waited, where it is ours, otherwise
/// how long requests stayed.
pub fn hold(args: &LimitArgs, report: &mut Report) -> Result<(), Failure> {
    let stayed = &report.server.measured.sojourn;
    let figures = match &report.load {
        Some(load) => Figures {
            latency: &load.response_time,
            before: None,
            errors: (load.errors.failed_requests(), load.requests),
            valid: report.verdict.valid,
        },
        None => Figures {
            latency: stayed,
            before: None,
            errors: (stayed.unanswered, stayed.count + stayed.unanswered),
            valid: report.verdict.valid,
        },
    };
    report.assertions = held(&args.limits, &figures);
    write(args, report)
}

/// The same for what a client alone measured: one load, or a closed loop.
pub fn hold_load(args: &LimitArgs, report: &mut LoadReport) -> Result<(), Failure> {
    let valid = report.verdict.valid;
    let figures = |latency: &'_ Distribution, errors| {
        let figures = Figures {
            latency,
            before: None,
            errors,
            valid,
        };
        held(&args.limits, &figures)
    };
    let closed = report.generator().closed_loop.as_ref();
    report.assertions = match (&report.load, closed) {
        (Some(load), _) => {
            let errors = (load.errors.failed_requests(), load.requests);
            figures(&load.response_time, errors)
        }
        (None, Some(closed)) => {
            let errors = (closed.errors.failed_requests(), closed.requests);
            figures(&closed.service_time, errors)
        }
        // a sweep, for which the command line admits no limit
        (None, None) => Vec::new(),
    };
    write(args, report)
}

fn held(limits: &[Threshold], figures: &Figures<'_>) -> Vec<Assertion> {
    limits.iter().map(|limit| limit.hold(figures)).collect()
}

/// Writes the file with the rights of the user who asked, never along a link that somebody else has
/// put there.
fn write<Server>(args: &LimitArgs, report: &Report<Server>) -> Result<(), Failure> {
    let Some(path) = &args.junit else {
        return Ok(());
    };
    let open = || {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
    };
    let file = Invoker::find(&Roots::default()).act(open);
    file.and_then(|file| file)
        .and_then(|mut file| file.write_all(&junit(report)))
        .map_err(|error| {
            let message = format!(
                "cannot write {}: {error}; name a file in a directory of yours",
                path.display()
            );
            Failure::new(Exit::Failed, message)
        })
}

/// How the command ends by these: a limit that is broken first, then one that is not decided.
pub fn exit(assertions: &[Assertion]) -> Exit {
    let any = |held| assertions.iter().any(|of| of.outcome == held);
    if any(Held::Fail) {
        Exit::Missed
    } else if any(Held::Undecided) {
        Exit::Invalid
    } else {
        Exit::Ok
    }
}
