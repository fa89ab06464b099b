//! The command line. Arguments become plain data here; clap goes no further.

mod bench;
mod budget;
mod doctor;
mod explain;
mod load;
mod noise;
mod rtt;
mod run;
mod serve;
mod shared;
mod sim;
mod trace;
mod tune;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};

pub use self::bench::{BenchArgs, BenchCommand, CausesArgs};
pub use self::budget::BudgetArgs;
pub use self::doctor::DoctorArgs;
pub use self::explain::ExplainArgs;
pub use self::load::{
    Amounts, ClientArgs, Floor, LoadArgs, RequestArgs, ScheduleArgs, StampKind, WaitKind,
};
pub use self::noise::{LoopName, NoiseArgs, StyleName};
pub use self::rtt::{DeconstructingArgs, LinkKind, RoundTripFigure, RttArgs, XdpKind};
pub use self::run::RunArgs;
pub use self::serve::ServeArgs;
pub use self::shared::{AnalysisArgs, LimitArgs, Output};
pub use self::sim::{FigureName, Paper, ReproduceArgs, SimArgs, Sweep, TalesArgs};
pub use self::trace::{Told, TraceArgs};
pub use self::tune::{ApplyArgs, PlanArgs, TuneArgs, TuneCommand};

/// A tail-latency laboratory for Linux servers.
///
/// Says how far a server's latency is from the best that queueing theory allows.
#[derive(Debug, Parser)]
#[command(name = "taillab", version, propagate_version = true, after_help = run::EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    // These take their help from their arguments: it is longer than a line.
    Run(Box<RunArgs>),
    Trace(Box<TraceArgs>),
    Explain(ExplainArgs),
    Serve(Box<ServeArgs>),
    Load(Box<LoadArgs>),
    Noise(Box<NoiseArgs>),
    Budget(BudgetArgs),
    Rtt(Box<RttArgs>),
    Sim(Box<SimArgs>),
    Reproduce(ReproduceArgs),
    Tune(TuneArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// What is wrong with a command line, and what helps, without the usage that clap adds.
pub fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told =
        |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut said = String::new();
    for line in text.lines().take_while(told).map(str::trim) {
        if !said.is_empty() && !line.is_empty() {
            let follows = said.ends_with(':') || line.starts_with('[');
            said.push_str(if follows { " " } else { "; " });
        }
        said.push_str(line.trim_start_matches("error: "));
    }
    said + "; see --help"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_one_line_with_its_remedy() {
        for (words, parts) in [
            (&["trace", "-p", "x"][..], &["`pgrep", "--help"][..]),
            (&["trace", "-p", "0"], &["from 1 on"]),
            (&["trace", "--port", "70000"], &["from 1 to 65535"]),
            (
                &["trace", "--sloest", "3"],
                &["--sloest", "tip: ", "--slowest"],
            ),
            (&["trace"], &["--pid <PID>"]),
            (
                &["bench", "causes", "earthquake"],
                &["earthquake", "background"],
            ),
            (&["explain"], &["FILE|DIR"]),
        ] {
            let error = Cli::try_parse_from(["taillab"].iter().chain(words)).unwrap_err();
            let line = in_one_line(&error);
            assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
            for part in parts {
                assert!(line.contains(part), "{words:?}: {line}");
            }
        }
    }
}
