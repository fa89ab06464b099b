//! `taillab reproduce all`: every figure of the papers that this machine can show, on one page.

use std::num::{NonZeroU32, NonZeroU64};

use taillab_console::args::Count;
use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::rights::recover;
use taillab_console::rundir::RunDir;
use taillab_experiment::args::TraceFileArgs;
use taillab_host::{Interrupt, Roots};

use super::deconstructing::{self, Specification};
use super::tales::{self, Item};
use super::{Made, PaperPage};
use crate::args::{AllArgs, DeconstructingArgs, FigureName, RoundTripFigure, TalesArgs};

const PAPERS: &str = "Tales of the Tail (2014), slides and a thread about it, and Deconstructing the Tail at Scale \
    Effect (2016)";

/// A part of the page.
enum PagePart {
    /// Of *Tales of the Tail*, or about it.
    Tales(Item),
    /// Of *Deconstructing the Tail at Scale Effect*.
    RoundTrips(Specification),
}

/// Reproduces everything, writes and prints it.
pub fn run(args: AllArgs) -> Result<Exit, Failure> {
    recover(&Roots::default(), Messages::of(args.common))?;
    let dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let (of_tales, of_round_trips) = (tales_args(&args), round_trip_args(&args));
    let tales = tales::wanted(|_, _| true)?.into_iter().map(PagePart::Tales);
    let round_trips = deconstructing::wanted(&[RoundTripFigure::All]);
    let parts: Vec<PagePart> = tales
        .chain(round_trips.into_iter().map(PagePart::RoundTrips))
        .collect();
    let mut failed = false;
    let reproduction = super::reproduce(
        PaperPage {
            name: "all",
            paper: PAPERS,
        },
        parts,
        (dir, args.common),
        &interrupt,
        |part| {
            let (name, made) = match part {
                PagePart::Tales(item) => (item.name(), item.make(&of_tales, None, &interrupt)),
                PagePart::RoundTrips(figure) => (
                    format!("deconstructing {}", figure.name),
                    deconstructing::figure(figure, &of_round_trips, &interrupt).map(named),
                ),
            };
            failed |= matches!(&made, Err(failure) if failure.exit == Exit::Failed);
            or_left_out(&name, made)
        },
    )?;
    Ok(match (reproduction.partial, failed) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Failed,
        (false, false) => Exit::Ok,
    })
}

/// A figure of the second paper, which has figures of the same numbers as the first one.
fn named(made: Made) -> Made {
    match made {
        Made::Figure(mut figure, partial) => {
            let number = figure.figure.trim_start_matches("fig");
            figure.title = format!("Deconstructing, figure {number}, {}", figure.title);
            figure.figure = format!("deconstructing-{}", figure.figure);
            Made::Figure(figure, partial)
        }
        left_out => left_out,
    }
}

/// What this machine does not allow, or what fails, is left out, and the rest goes on.
fn or_left_out(name: &str, made: Result<Made, Failure>) -> Result<Made, Failure> {
    match made {
        Err(failure) if failure.exit != Exit::Interrupted => {
            Ok(Made::Omitted(format!("{name}: {}", failure.message)))
        }
        made => made,
    }
}

fn tales_args(args: &AllArgs) -> TalesArgs {
    TalesArgs {
        figures: vec![FigureName::All],
        requests: Count(if args.quick { 1_800_000 } else { 9_000_000 }),
        seed: args.seed,
        quick: args.quick,
        threads: None,
        recorded: TraceFileArgs::default(),
        output: None,
        common: args.common,
    }
}

fn round_trip_args(args: &AllArgs) -> DeconstructingArgs {
    let (count, runs) = if args.quick { (4_000, 3) } else { (20_000, 5) };
    DeconstructingArgs {
        figures: vec![RoundTripFigure::All],
        count: NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN),
        runs: NonZeroU32::new(runs).unwrap_or(NonZeroU32::MIN),
        client_cpus: None,
        server_cpus: None,
        output: None,
        common: args.common,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_left_out_and_an_interrupt_ends_everything() {
        let failed = |exit| or_left_out("fig8", Err(Failure::new(exit, "no third CPU")));
        match failed(Exit::Unsupported) {
            Ok(Made::Omitted(what)) => assert_eq!(what, "fig8: no third CPU"),
            _ => panic!("it is not left out"),
        }
        assert!(matches!(failed(Exit::Failed), Ok(Made::Omitted(_))));
        assert!(failed(Exit::Interrupted).is_err());
    }
}
