//! `taillab bench`: taillab itself against truths that are known.

mod kept;
mod setup;
mod show;
mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use taillab_host::keep_awake::KeepAwake;
use taillab_host::{Interrupt, Invoker, Roots};
use taillab_load::StopReason;
use taillab_model::Nanos;
use taillab_model::summary::Reason;
use taillab_testkit::causes::{
    ATTEMPTS, Account, BaseServer, BenchOptions, BenchResult, CauseKind, FixCheck, KindResult,
    Measured, Pairs, ReasonKey, Setup, explained,
};

use crate::cli::{BenchArgs, BenchCommand, CausesArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::fail::host;
use crate::pipeline::{RunDir, print, recover};
use crate::progress::Progress;
use crate::say::Say;
use crate::testbed::Calibrated;

/// The median of fewer pairs has no interval.
const MIN_PAIRS: u32 = 6;

/// Pairs that the machine contaminated, or that gave no forecast, are measured again: at most
/// this multiple of the pairs asked for.
const MOST_PAIRS: u32 = 2;

/// Runs the benchmark asked for.
pub fn run(args: BenchArgs) -> Result<Exit, Failure> {
    match args.command {
        BenchCommand::Causes(args) => causes(&args),
    }
}

fn causes(args: &CausesArgs) -> Result<Exit, Failure> {
    let bench = Bench::new(args)?;
    if args.again.is_none() {
        recover(&Roots::default(), bench.say)?;
    }
    let kinds = match args.kinds.is_empty() {
        true => CauseKind::ALL.to_vec(),
        false => args.kinds.clone(),
    };
    let mut capacities = BTreeMap::new();
    let mut results = Vec::new();
    let mut interrupted = false;
    for kind in kinds {
        match bench.kind(kind, &mut capacities) {
            Ok(result) => results.push(result),
            Err(failure) if failure.exit == Exit::Interrupted => {
                interrupted = true;
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    let result = BenchResult::new(results, interrupted);
    let json = serde_json::to_vec_pretty(&result).or_exit(Exit::Failed)?;
    if let Some(folder) = &args.output {
        let mut dir = RunDir::create(folder.clone(), 0)?;
        dir.put("causes.json", &json)?;
    }
    let shown = match args.common.json {
        true => String::from_utf8_lossy(&json).into_owned() + "\n",
        false => show::text(&result),
    };
    print(shown.as_bytes())?;
    Ok(match &result {
        _ if interrupted => Exit::Interrupted,
        result if result.ran == 0 => Exit::Unsupported,
        result if result.found < result.ran => Exit::Missed,
        _ => Exit::Ok,
    })
}

/// What all kinds share.
struct Bench<'a> {
    args: &'a CausesArgs,
    asked: BenchOptions,
    say: Say,
    progress: Progress,
    interrupt: Interrupt,
}

impl<'a> Bench<'a> {
    fn new(args: &'a CausesArgs) -> Result<Self, Failure> {
        if !(0.05..=0.9).contains(&args.utilization) {
            return Err(Failure::new(
                Exit::Usage,
                "the utilisation must be between 5 % and 90 %: above, a queue never ends; below, \
                 few requests meet what is injected",
            ));
        }
        if args.pairs < MIN_PAIRS {
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "at least {MIN_PAIRS} pairs are needed: the median of fewer has no interval"
                ),
            ));
        }
        if args.duration < Nanos::from_millis(500) {
            return Err(Failure::new(
                Exit::Usage,
                "a measurement must last 500 ms at least, for enough of what is injected",
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
            say: Say::of(args.common),
            progress: Progress::new(args.common.quiet || args.common.json),
            interrupt: Interrupt::register().map_err(host)?,
        })
    }

    /// One kind, or why it is not possible here.
    fn kind(
        &self,
        kind: CauseKind,
        capacities: &mut BTreeMap<BaseServer, Calibrated>,
    ) -> Result<KindResult, Failure> {
        let setup = match self.args.fix_check {
            true => Setup::to_be_fixed(kind),
            false => Setup::of(kind),
        };
        let not_run = |why: Reason| KindResult {
            kind: kind.name().to_owned(),
            not_run: Some(why),
            measured: None,
        };
        if let Some(folder) = &self.args.again {
            let Some(kept) = kept::read(&folder.join(kind.name()))? else {
                let why = format!("{} has no recording of it", folder.display());
                return Ok(not_run(ReasonKey::NoRecording.because(why)));
            };
            let (with, measured) =
                explained(&setup, kept.recording, &kept.truth).or_exit(Exit::Failed)?;
            let fix = kept_pairs(&setup, &folder.join(kind.name()), with)?;
            return Ok(KindResult {
                kind: kind.name().to_owned(),
                not_run: None,
                measured: Some(measured.with_fix(fix)),
            });
        }
        if let Some(why) = impossible(kind) {
            return Ok(not_run(why));
        }
        // what an idle CPU takes to wake would mix with all that makes the server sleep
        let _awake = match KeepAwake::hold() {
            Ok(awake) => awake,
            Err(error) => {
                return Ok(not_run(ReasonKey::NotKeptAwake.because(error.to_string())));
            }
        };
        let calibrated = match capacities.get(&setup.server) {
            Some(known) => known.clone(),
            None => {
                self.say.step(&format!("{}: calibrating", kind.name()));
                let found = apart(|| {
                    trial::calibrate(&setup, &self.asked, self.progress, &self.interrupt)
                })?;
                capacities.insert(setup.server, found.clone());
                found
            }
        };
        self.say.step(&format!("{}: measuring", kind.name()));
        match self.measure(&setup, &calibrated) {
            Ok(measured) => Ok(KindResult {
                kind: kind.name().to_owned(),
                not_run: None,
                measured: Some(measured),
            }),
            Err(Stop::NotHere(why)) => Ok(not_run(why)),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }

    fn measure(&self, setup: &Setup, calibrated: &Calibrated) -> Result<Measured, Stop> {
        let name = setup.kind.name();
        let (mut with, measured) = self.uncontaminated(setup, calibrated, name)?;
        let Some(fix) = setup.fix().filter(|_| self.args.fix_check) else {
            return Ok(measured);
        };
        let mut pairs = Pairs::default();
        for pair in 0..self.args.pairs * MOST_PAIRS {
            if pairs.predicted() >= self.args.pairs {
                break;
            }
            // each pair has arrivals of its own, and both of it the same
            let asked = BenchOptions {
                seed: self.asked.seed + i64::from(pair),
                ..self.asked.clone()
            };
            let again = |setup, what| {
                let place = format!("{name}/{}", pair_name(pair + 1, what));
                Ok::<_, Stop>(self.once(setup, calibrated, &asked, &place)?.0)
            };
            let without = match pair {
                0 => again(&fix.setup, "without")?,
                pair if pair % 2 == 0 => {
                    with = again(setup, "with")?;
                    again(&fix.setup, "without")?
                }
                _ => {
                    let without = again(&fix.setup, "without")?;
                    with = again(setup, "with")?;
                    without
                }
            };
            pairs.add(&with, &without, with.forecast(&fix.promise).as_deref());
        }
        Ok(measured.with_fix(Some(pairs.check(fix.done))))
    }

    /// One measurement that the machine did not contaminate, or the last of several that it did.
    fn uncontaminated(
        &self,
        setup: &Setup,
        calibrated: &Calibrated,
        name: &str,
    ) -> Result<(Account, Measured), Stop> {
        let mut pass = 1;
        loop {
            let (account, measured) = self.once(setup, calibrated, &self.asked, name)?;
            let why = match &measured.contaminated {
                Some(why) if pass < ATTEMPTS => why,
                _ => {
                    return Ok((
                        account,
                        Measured {
                            passes: pass,
                            ..measured
                        },
                    ));
                }
            };
            self.say
                .step(&format!("{name}: measuring again, since {}", why.text));
            if let Some(folder) = &self.args.output {
                let aside = folder.join(format!("{name}-contaminated-{pass}"));
                Invoker::find(&Roots::default())
                    .act(|| fs::rename(folder.join(name), aside))
                    .and_then(|renamed| renamed)
                    .or_exit(Exit::Failed)
                    .map_err(Stop::Failed)?;
            }
            pass += 1;
        }
    }

    /// One measurement, kept under `place` where asked for.
    fn once(
        &self,
        setup: &Setup,
        calibrated: &Calibrated,
        asked: &BenchOptions,
        place: &str,
    ) -> Result<(Account, Measured), Stop> {
        let trial =
            apart(|| trial::measure(setup, asked, calibrated, self.progress, &self.interrupt))
                .map_err(|failure| match failure.exit {
                    // the rig itself stood, for t was found in it
                    Exit::Unsupported => {
                        Stop::NotHere(ReasonKey::Unsupported.because(failure.message))
                    }
                    _ => Stop::Failed(failure),
                })?;
        if trial.recorded.load.stopped == Some(StopReason::Interrupted) {
            return Err(Stop::Failed(Failure::new(Exit::Interrupted, "interrupted")));
        }
        if let Some(folder) = &self.args.output {
            kept::write(&folder.join(place), &trial).map_err(Stop::Failed)?;
        }
        if setup.disturbs() && trial.truth.intervals.is_empty() {
            let why = "the injection had no effect on this machine: it held nothing back";
            return Err(Stop::NotHere(ReasonKey::NoEffect.because(why)));
        }
        explained(setup, trial.recorded.events, &trial.truth)
            .or_exit(Exit::Failed)
            .map_err(Stop::Failed)
    }
}

/// Runs `work` on a thread of its own, which may leave the server's CPU for good.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Why a kind has no result.
enum Stop {
    NotHere(Reason),
    Failed(Failure),
}

/// What is known to be impossible before anything is tried.
fn impossible(kind: CauseKind) -> Option<Reason> {
    (kind == CauseKind::Idle).then(|| {
        ReasonKey::NoGroundTruth.because(
            "nothing says what leaving an idle state cost each request: the CPU reports only that it \
             slept; measure with and without `taillab load --keep-awake`",
        )
    })
}

/// The pairs of an earlier fix-check that were kept in `folder`, explained again.
fn kept_pairs(
    setup: &Setup,
    folder: &Path,
    mut with: Account,
) -> Result<Option<FixCheck>, Failure> {
    let Some(fix) = setup.fix() else {
        return Ok(None);
    };
    let again = |setup: &Setup, pair: u32, what: &str| {
        let Some(kept) = kept::read(&folder.join(pair_name(pair, what)))? else {
            return Ok(None);
        };
        let (account, _) = explained(setup, kept.recording, &kept.truth).or_exit(Exit::Failed)?;
        Ok::<_, Failure>(Some(account))
    };
    let mut pairs = Pairs::default();
    for pair in 1.. {
        let Some(without) = again(&fix.setup, pair, "without")? else {
            break;
        };
        // the first measurement with it is that of the kind
        if let Some(found) = again(setup, pair, "with")? {
            with = found;
        } else if pair > 1 {
            break;
        }
        pairs.add(&with, &without, with.forecast(&fix.promise).as_deref());
    }
    let any = pairs.counted() + pairs.contaminated() > 0;
    Ok(any.then(|| pairs.check(fix.done)))
}

/// The directory of one measurement of a pair.
fn pair_name(pair: u32, what: &str) -> String {
    format!("pair-{pair}-{what}")
}
