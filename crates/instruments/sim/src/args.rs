//! The command line of `taillab sim`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};
use taillab_console::args::{Count, Output, numbers, share, wrapped};
use taillab_experiment::args::{TraceFileArgs, load_share};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::discipline::Discipline;
use taillab_queueing::service::Service;
use taillab_simulator::simulation::Precision;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed\n  \
    2    wrong command line or trace\n  130  interrupted; what was simulated is printed (with --trace, nothing)";

/// Notation and examples, below the options.
fn sim_help() -> String {
    format!(
        "Notation (times need a unit: ns, us, ms, s):\n  arrivals     {}\n  service      {},\n               \
         empirical:FILE\n  disciplines  {}\n\nExamples:\n  \
         taillab sim --service deterministic:50us --workers 4 --utilization 0.8 --plot -\n  \
         taillab sim --workers 4 --discipline fifo,lifo,random-request,random-worker --plot order.svg\n  \
         taillab sim --service exponential:1ms --precision p99.9=1% --exact\n  \
         taillab sim --sweep utilization=0.5..0.95:0.05 --parquet sweep.parquet --plot sweep.svg\n  \
         taillab sim --trace arrivals.csv --trace-column time_us --utilization 70%\n\n{EXIT_CODES}",
        wrapped(ArrivalProcess::NOTATION, 15),
        wrapped(Service::NOTATION, 15),
        wrapped(Discipline::NOTATION, 15)
    )
}

/// Simulate a queue: the latency distribution for arrivals, service times, workers and a discipline.
///
/// Requests arrive, wait for one of the workers and are served. The defaults are Poisson arrivals, 50 µs
/// for each request, one worker, 80 % utilisation, and first come, first served. The same seed gives the
/// same result with any number of threads; several disciplines in one call have the same arrivals and
/// service times.
#[derive(Debug, Args)]
#[command(after_help = sim_help())]
pub struct SimArgs {
    #[command(flatten)]
    pub common: Output,
    #[command(flatten, next_help_heading = "System")]
    pub system: SystemArgs,
    #[command(flatten, next_help_heading = "Recorded arrivals")]
    pub recorded: RecordedArgs,
    #[command(flatten, next_help_heading = "Sample")]
    pub sample: SampleArgs,
    #[command(flatten, next_help_heading = "Result")]
    pub result: ResultArgs,
}

/// The queue.
#[derive(Debug, Args)]
pub struct SystemArgs {
    /// The arrival process
    #[arg(
        long,
        value_name = "PROCESS",
        default_value = "poisson",
        conflicts_with = "trace"
    )]
    pub arrivals: ArrivalProcess,
    /// The service times
    #[arg(long, value_name = "DIST", default_value = "deterministic:50us")]
    pub service: String,
    /// The number of workers
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = workers, allow_hyphen_values = true)]
    pub workers: NonZeroU32,
    /// Utilisation of the workers, e.g. 0.8 or 80% [default: 80%; a trace keeps its recorded gaps]
    #[arg(short, long, value_name = "SHARE", value_parser = load_share, allow_hyphen_values = true)]
    pub utilization: Option<f64>,
    /// The queueing discipline; several, with commas, are compared
    #[arg(long, value_name = "NAME,...", default_value = "fifo")]
    pub discipline: Disciplines,
    /// Also show the slowest of N parts: the latency of a request that goes to N servers
    #[arg(long, value_name = "N", value_parser = workers)]
    pub fanout: Option<NonZeroU32>,
    /// Also simulate the parts of --fanout, with their common arrivals (fork-join)
    #[arg(hide_short_help = true, long, requires = "fanout", conflicts_with_all = ["trace", "sweep"])]
    pub fork_join: bool,
}

/// Arrivals from a file.
#[derive(Debug, Args)]
pub struct RecordedArgs {
    #[command(flatten)]
    pub file: TraceFileArgs,
    /// Run a trace even if its load exceeds the capacity
    #[arg(hide_short_help = true, long)]
    pub allow_overload: bool,
}

/// The size of the sample.
#[derive(Debug, Args)]
pub struct SampleArgs {
    /// The number of requests, e.g. 20M, 1e9, 1.2G [default: 20M]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        allow_hyphen_values = true,
        conflicts_with = "trace"
    )]
    pub requests: Option<Count>,
    /// Simulate until a quantile has this precision, e.g. p99.9=1%; --requests is the limit
    #[arg(long, value_name = "TARGET", conflicts_with = "trace")]
    pub precision: Option<Precision>,
    /// The seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Threads; the result does not depend on them [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Vary one parameter: utilization=0.5..0.95:0.05, workers=1,2,4,8 or discipline=fifo,lifo; may be
    /// repeated
    #[arg(long, value_name = "WHAT=VALUES")]
    pub sweep: Vec<Sweep>,
}

/// The output.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Show exact results next to the simulated ones, with z-scores
    #[arg(long, conflicts_with = "trace")]
    pub exact: bool,
    /// Draw the result: FILE.svg or .html, or - for the terminal; may be repeated
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, allow_hyphen_values = true)]
    pub plot: Vec<PathBuf>,
    /// Write a table with one row for each system
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub parquet: Option<PathBuf>,
    /// Save the result in this new directory: sim.json, sim.parquet, sim.svg and sim.html
    /// [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
}

/// Disciplines separated by commas; their parameters have commas too.
#[derive(Clone, Debug, PartialEq)]
pub struct Disciplines(pub Vec<Discipline>);

impl FromStr for Disciplines {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut names: Vec<String> = Vec::new();
        for part in text.split(',') {
            // `key=value` belongs to the discipline before it
            let parameter = part
                .find(['=', ':'])
                .is_some_and(|at| part[at..].starts_with('='));
            match names.last_mut() {
                Some(name) if parameter => {
                    name.push(',');
                    name.push_str(part);
                }
                _ => names.push(part.to_owned()),
            }
        }
        let mut disciplines: Vec<Discipline> = Vec::new();
        for name in names {
            let discipline: Discipline = name
                .parse()
                .map_err(|error: taillab_queueing::notation::NotationError| error.to_string())?;
            if disciplines.contains(&discipline) {
                return Err(format!("`{}` is named twice", name.trim()));
            }
            disciplines.push(discipline);
        }
        Ok(Self(disciplines))
    }
}

/// The parameter that is varied, and its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Sweep {
    Utilization(Vec<f64>),
    Workers(Vec<NonZeroU32>),
    Discipline(Vec<Discipline>),
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HELP: &str =
            "write utilization=0.5..0.95:0.05, workers=1,2,4,8 or discipline=fifo,lifo";
        let (what, values) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not a sweep; {HELP}"))?;
        match what.trim() {
            "utilization" | "utilisation" => Ok(Self::Utilization(numbers(values, share)?)),
            "workers" => {
                let whole = |text: &str| workers(text).map(|n| f64::from(n.get()));
                numbers(values, whole)?
                    .into_iter()
                    .map(|n| workers(&n.to_string()))
                    .collect::<Result<_, _>>()
                    .map(Self::Workers)
            }
            "discipline" => values
                .parse()
                .map(|Disciplines(list)| Self::Discipline(list)),
            other => Err(format!("`{other}` cannot be swept; {HELP}")),
        }
    }
}

fn workers(text: &str) -> Result<NonZeroU32, String> {
    /// A limit, since memory grows with the number of workers.
    const MOST: u32 = 100_000;
    match text.trim().parse::<NonZeroU32>() {
        Ok(n) if n.get() <= MOST => Ok(n),
        _ => Err(format!("`{text}` must be a whole number from 1 to {MOST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_disciplines_but_not_their_parameters() {
        let list: Disciplines = "fifo,static:connections=64,assign=random,power-of-d:d=2"
            .parse()
            .unwrap();
        let names: Vec<String> = list.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "fifo",
                "static:connections=64,assign=random",
                "power-of-d:d=2"
            ]
        );
        let background = "priority:background=0.1,first=requests,service=lognormal:1ms,cv=2,lifo";
        assert_eq!(background.parse::<Disciplines>().unwrap().0.len(), 2);
        assert!("fifo,fifo".parse::<Disciplines>().is_err());
        assert!("fifo,".parse::<Disciplines>().is_err());
    }

    #[test]
    fn sweeps_are_lists_or_ranges() {
        let sweep: Sweep = "utilization=0.5..0.95:0.05".parse().unwrap();
        let Sweep::Utilization(values) = sweep else {
            panic!("not the utilisation")
        };
        assert_eq!(values.len(), 10);
        assert_eq!((values[4], values[9]), (0.7, 0.95));
        let four: Vec<NonZeroU32> = [1, 2, 4, 8]
            .into_iter()
            .filter_map(NonZeroU32::new)
            .collect();
        assert_eq!("workers=1,2,4,8".parse(), Ok(Sweep::Workers(four)));
        for wrong in [
            "utilization",
            "utilization=0.5..0.9",
            "utilization=0.9..0.5:0.1",
            "utilization=0.5..0.9:0",
            "utilization=0..1:0.0001",
            "workers=1.5",
            "load=1",
        ] {
            assert!(wrong.parse::<Sweep>().is_err(), "{wrong}");
        }
    }
}
