//! `taillab rtt`: round trips of single messages over network protocols.

mod outputs;
mod plan;
mod serve;

use taillab_analysis::rtt::elimination;
use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::rundir::with_files;
use taillab_experiment::round_trips::Measurement;
use taillab_host::{Interrupt, clock};

use self::outputs::Outputs;
use crate::args::RttArgs;
use crate::result::{COMMAND, RttResult, SCHEMA_VERSION};

/// Measures every combination; the result is printed and saved.
pub fn run(args: RttArgs) -> Result<Exit, Failure> {
    if let Some(address) = args.serve {
        return serve::run(address, &args);
    }
    let messages = Messages::of(args.common);
    let plan = plan::plan(&args)?;
    if !plan.left_out.is_empty() {
        messages.note(&format_args!("left out: {}", plan.left_out.join("; ")));
    }
    let interrupt = Interrupt::register().map_err(host)?;
    let mut wanted = Outputs::new(args.output, args.common, &plan)?;
    let started_unix_s = clock::unix_s();
    let measured = Measurement::new(&plan, &interrupt, messages)?.rows(|row| {
        wanted.row(row);
        Ok(())
    })?;
    let rows = measured.rows;
    let result = RttResult {
        schema_version: SCHEMA_VERSION,
        command: COMMAND.to_owned(),
        started_unix_s,
        partial: rows.len() < plan.rows.len() || rows.iter().any(|row| row.partial),
        link: plan.link,
        server: plan.server.clone(),
        client_cpus: plan.client_cpus.clone(),
        server_cpus: plan.server_cpus.clone(),
        count: plan.count,
        runs: plan.runs,
        elimination: elimination(&rows),
        rows,
    };
    let nothing = result.rows.iter().all(|row| row.counts.answered == 0);
    match measured.failure {
        // there is nothing to show but the failure
        Some(failure) if nothing => return Err(failure),
        None if nothing && interrupt.is_raised() => {
            return Err(Failure::new(
                Exit::Interrupted,
                format!(
                    "interrupted before a round trip was measured: each connection makes {} of them first \
                     (--warmup)",
                    args.warmup
                ),
            ));
        }
        _ => wanted.result(&result, &measured.curves)?,
    }
    let ended = match (measured.failure, interrupt.is_raised()) {
        (_, true) => Ok(Exit::Interrupted),
        (Some(failure), false) => Err(failure),
        (None, false) if !is_valid(&result) => Ok(Exit::Invalid),
        (None, false) => Ok(Exit::Ok),
    };
    with_files(ended, wanted.outcome())
}

/// Whether all open loops are valid.
fn is_valid(result: &RttResult) -> bool {
    let mut loads = result.rows.iter().filter_map(|row| row.open_loop.as_ref());
    loads.all(|load| load.verdict.valid)
}
