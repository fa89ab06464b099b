//! `taillab-testkit causes`: checks taillab against known truths.

mod saved;
mod setup;
mod show;
mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use taillab_analysis::paired::{MIN_PAIRS, changed_first};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::print::print_result;
use taillab_console::progress::Progress;
use taillab_console::rights::{Remaining, give_up_root, recover, without_root};
use taillab_console::rundir::{RunDir, with_files};
use taillab_experiment::testbed::Calibrated;
use taillab_host::keep_awake::KeepAwake;
use taillab_host::{Interrupt, Roots, clock, cpus};
use taillab_load::StopReason;
use taillab_model::Nanos;
use taillab_model::interval::FEWEST_FOR_MEDIAN;
use taillab_report::json;
use taillab_testkit::causes::{
    BaseServer, BenchOptions, BenchResult, Block, CauseKind, KindResult, Measured, Pair, Setup,
    Verdict, look_after,
};

use crate::args::CausesArgs;

/// Injects the causes, measures, judges, and prints.
pub fn causes(args: &CausesArgs) -> Result<Exit, Failure> {
    let bench = Bench::new(args)?;
    // a directory with a result is refused before anything is measured
    let mut dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    let roots = Roots::default();
    match &args.again {
        None => recover(&roots, bench.messages)?,
        // others may have written what is read
        Some(_) => give_up_root(&roots, Remaining::Files)?,
    }
    let kinds = match args.kinds.is_empty() {
        true => CauseKind::value_variants().to_vec(),
        false => args.kinds.clone(),
    };
    let mut capacities = BTreeMap::new();
    let mut results = Vec::new();
    let mut stopped = None;
    for kind in kinds {
        // also with --again, which measures nothing that would notice it
        let found = match bench.interrupt.is_raised() {
            true => Err(Failure::new(Exit::Interrupted, "interrupted")),
            false => bench.kind(kind, &mut capacities),
        };
        match found {
            Ok(result) => results.push(result),
            Err(failure) => {
                stopped = Some(failure);
                break;
            }
        }
    }
    // what was measured before a failure is shown, too: it may have taken an hour
    let partial = stopped.is_some();
    let failed = stopped.filter(|failure| failure.exit != Exit::Interrupted);
    if results.is_empty()
        && let Some(failure) = failed
    {
        return Err(failure);
    }
    let result = BenchResult::new(results, partial);
    if let Some(dir) = &mut dir {
        let json = json::of(&result).or_exit(Exit::Failed)?;
        let written = dir.put("causes.json", &json);
        dir.note(written);
    }
    print_result(args.common, &result, || show::text(&result))?;
    let ended = failed.map_or_else(|| Ok(exit(&result)), Err);
    with_files(ended, dir.map_or(Ok(()), RunDir::outcome))
}

/// A success only if all kinds that ran have passed.
fn exit(result: &BenchResult) -> Exit {
    match result {
        _ if result.partial => Exit::Interrupted,
        _ if result.ran == 0 => Exit::Unsupported,
        _ if result.failed > 0 => Exit::Missed,
        _ if result.passed < result.ran => Exit::Invalid,
        _ => Exit::Ok,
    }
}

/// What all kinds share.
struct Bench<'a> {
    args: &'a CausesArgs,
    asked: BenchOptions,
    /// The seed of the order of the blocks.
    order: u64,
    messages: Messages,
    progress: Progress,
    interrupt: Interrupt,
}

impl<'a> Bench<'a> {
    fn new(args: &'a CausesArgs) -> Result<Self, Failure> {
        if !(0.05..=0.9).contains(&args.utilization) {
            return Err(Failure::usage(
                "the utilisation must be between 5 % and 90 %: above, queues hardly drain; below, \
                 the injection delays few requests",
            ));
        }
        if (args.pairs as usize) < MIN_PAIRS {
            return Err(Failure::usage(format!(
                "at least {MIN_PAIRS} pairs are needed: fewer give no interval"
            )));
        }
        if args.most_pairs.is_some_and(|most| most < args.pairs) {
            return Err(Failure::usage(format!(
                "--most-pairs must be at least --pairs, which is {}",
                args.pairs
            )));
        }
        // a forecast is judged by the median of its pairs
        let is_forecast = args.fix_check && args.again.is_none();
        if is_forecast && (args.pairs as usize) < FEWEST_FOR_MEDIAN {
            return Err(Failure::usage(format!(
                "--fix-check needs at least {FEWEST_FOR_MEDIAN} pairs: fewer give no interval"
            )));
        }
        if let Some(folder) = args.again.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Failure::usage(format!(
                "there is no directory {}: name one that `taillab-testkit causes -o` has written",
                folder.display()
            )));
        }
        if args.duration < Nanos::from_millis(500) {
            return Err(Failure::usage(
                "a block must last at least 500 ms: otherwise too little is injected",
            ));
        }
        Ok(Self {
            args,
            asked: BenchOptions {
                duration: args.duration,
                utilization: args.utilization,
                server_cpu: args.server_cpu,
                client_cpu: args.client_cpu,
                seed: 1,
            },
            messages: Messages::of(args.common),
            order: clock::unix_s(),
            progress: Progress::new(args.common.quiet || args.common.json),
            interrupt: Interrupt::register().map_err(host)?,
        })
    }

    /// One kind, or why it is impossible here.
    fn kind(
        &self,
        kind: CauseKind,
        capacities: &mut BTreeMap<BaseServer, Calibrated>,
    ) -> Result<KindResult, Failure> {
        let setup = Setup::of(kind);
        let result = |measured: Result<&[Pair], String>| KindResult {
            kind: kind.name(),
            not_run: measured.as_ref().err().cloned(),
            measured: measured.ok().map(|pairs| {
                let fix = setup.fix().filter(|_| self.args.fix_check);
                Measured::judge(&setup, pairs, fix.as_ref())
            }),
        };
        if let Some(folder) = &self.args.again {
            let pairs = kept_pairs(&setup, folder)?;
            return Ok(result(match pairs.is_empty() {
                true => Err(format!("{} has no recording of it", folder.display())),
                false => Ok(&pairs),
            }));
        }
        if kind == CauseKind::Idle {
            return Ok(result(Err(NO_POWER_STATES.to_owned())));
        }
        let cpus = cpus::online(&Roots::default()).map_or(u32::MAX, |cpus| cpus.len() as u32);
        if setup.needs_cpus() > cpus {
            let needed = setup.needs_cpus();
            return Ok(result(Err(format!("not tried: it needs {needed} CPUs"))));
        }
        // leaving an idle state would add to the delay of everything that makes the server sleep
        let _awake = match KeepAwake::hold() {
            Ok(awake) => awake,
            Err(error) => return Ok(result(Err(error.to_string()))),
        };
        let calibrated = match capacities.get(&setup.server) {
            Some(known) => known.clone(),
            None => {
                self.messages.step(&format!("{}: calibrating", kind.name()));
                let found = apart(|| {
                    trial::calibrate(&setup, &self.asked, self.progress, &self.interrupt)
                })?;
                capacities.insert(setup.server, found.clone());
                found
            }
        };
        self.messages.step(&format!("{}: measuring", kind.name()));
        match self.measure(&setup, &calibrated) {
            Ok(pairs) => Ok(result(Ok(&pairs))),
            // the rig itself works: it was used to find t
            Err(failure) if failure.exit == Exit::Unsupported => Ok(result(Err(failure.message))),
            Err(failure) => Err(failure),
        }
    }

    /// All pairs of a kind, until they decide what it is charged, or there are as many as asked for;
    /// [`Exit::Unsupported`] where it is impossible here.
    fn measure(&self, setup: &Setup, calibrated: &Calibrated) -> Result<Vec<Pair>, Failure> {
        let first = self.args.pairs as usize;
        let most = self.args.most_pairs.unwrap_or(4 * self.args.pairs) as usize;
        let mut pairs = Vec::new();
        loop {
            let wanted = look_after(first, pairs.len(), most);
            if wanted == pairs.len() {
                return Ok(pairs);
            }
            while pairs.len() < wanted {
                let pair = self.pair(setup, calibrated, pairs.len() as u32)?;
                // in a later pair, this is chance: it counts like the others
                let nothing = pair.with.truth.injected.intervals.is_empty();
                if pairs.is_empty() && setup.disturbs() && nothing {
                    let why = "the injection had no effect on this machine: it held nothing back";
                    return Err(Failure::new(Exit::Unsupported, why));
                }
                pairs.push(pair);
            }
            // forecasts of far percentiles would always need more
            if Measured::judge(setup, &pairs, None).verdict != Verdict::Inconclusive {
                return Ok(pairs);
            }
        }
    }

    /// The pair with this number, which has its own arrivals.
    fn pair(&self, setup: &Setup, calibrated: &Calibrated, pair: u32) -> Result<Pair, Failure> {
        let without = setup.without();
        let asked = BenchOptions {
            seed: self.asked.seed + i64::from(pair),
            ..self.asked.clone()
        };
        let block = |setup, name: &str| {
            let place = block_name(setup, pair, name);
            self.block(setup, calibrated, &asked, &place)
        };
        if changed_first(self.order, u64::from(pair)) {
            let with = block(setup, "with")?;
            let without = block(&without, "without")?;
            return Ok(Pair { with, without });
        }
        let without = block(&without, "without")?;
        let with = block(setup, "with")?;
        Ok(Pair { with, without })
    }

    /// One block, saved under `place` if asked to.
    fn block(
        &self,
        setup: &Setup,
        calibrated: &Calibrated,
        asked: &BenchOptions,
        place: &Path,
    ) -> Result<Block, Failure> {
        let trial =
            apart(|| trial::measure(setup, asked, calibrated, self.progress, &self.interrupt))?;
        if trial.recorded.load.stopped == Some(StopReason::Interrupted) {
            return Err(Failure::new(Exit::Interrupted, "interrupted"));
        }
        if let Some(folder) = &self.args.output {
            saved::write(&folder.join(place), &trial)?;
        }
        // the other blocks need root; what one has recorded is read without
        let explain = || {
            let recording = trial.recording().map_err(|failure| failure.message)?;
            Block::explained(setup, recording, trial.truth).map_err(|error| error.to_string())
        };
        without_root(&Roots::default(), explain)?.map_err(|why: String| Failure::failed(why))
    }
}

/// Why the kind `idle` does not run.
const NO_POWER_STATES: &str = "no injector puts a CPU into an idle state yet; measure with \
     and without `taillab load --keep-awake`";

/// Runs `work` on a thread of its own, which may leave the server's CPU for good. That thread, and with it
/// server, generator and disturbers, gets priority over all other programs, so that they hardly disturb it.
/// Our own threads keep their order among themselves.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let first = || {
        // if this is not allowed, others disturb more
        let _ = rustix::process::setpriority_process(None, -20);
        work()
    };
    std::thread::scope(|scope| match scope.spawn(first).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The pairs that were kept in `folder`, explained again.
fn kept_pairs(setup: &Setup, folder: &Path) -> Result<Vec<Pair>, Failure> {
    let without = setup.without();
    let again = |setup: &Setup, pair: u32, name: &str| {
        let place = block_name(setup, pair, name);
        let Some(kept) = saved::read(&folder.join(place))? else {
            return Ok(None);
        };
        let block = Block::explained(setup, kept.recording, kept.truth).or_exit(Exit::Failed)?;
        Ok::<_, Failure>(Some(block))
    };
    let mut pairs = Vec::new();
    for pair in 0.. {
        let both = (
            again(setup, pair, "with")?,
            again(&without, pair, "without")?,
        );
        let (Some(with), Some(without)) = both else {
            break;
        };
        pairs.push(Pair { with, without });
    }
    Ok(pairs)
}

/// The directory of one block: `background/pair-1-with`.
fn block_name(setup: &Setup, pair: u32, name: &str) -> PathBuf {
    Path::new(&setup.kind.name()).join(format!("pair-{}-{name}", pair + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pass_of_all_is_a_success() {
        let of = |ran: u32, passed: u32, failed: u32, partial: bool| {
            let mut result = BenchResult::new(Vec::new(), partial);
            (result.ran, result.passed, result.failed) = (ran, passed, failed);
            exit(&result)
        };
        assert_eq!(of(16, 16, 0, false), Exit::Ok);
        assert_eq!(of(16, 15, 0, false), Exit::Invalid);
        assert_eq!(of(16, 14, 1, false), Exit::Missed);
        assert_eq!(of(0, 0, 0, false), Exit::Unsupported);
        assert_eq!(of(3, 3, 0, true), Exit::Interrupted);
    }
}
