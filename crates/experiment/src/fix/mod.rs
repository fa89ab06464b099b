//! Tries the mitigations with a good forecast on the server itself: `run … --fix` and `trace … --fix`.
//!
//! Each mitigation is applied and taken back in pairs of neighbouring blocks of load, in random order, so
//! that a drift of the machine's speed affects both alike. The first trial changes nothing: if that
//! "improves" the latency, no mitigation is tried. Every change is written to the journal of `taillab tune`
//! first, so that `taillab tune revert` undoes it after a crash.

mod args;
mod candidates;
mod consent;
mod decide;
pub mod export;
mod factorial;
mod generated;
mod kept;
mod level;
mod live;
mod load;
pub mod rounds;
mod session;
mod trial;

use std::time::{Duration, Instant};

use taillab_analysis::paired::MIN_PAIRS;
use taillab_console::exit::Failure;
use taillab_console::messages::Messages;
use taillab_console::progress::Progress;
use taillab_host::Interrupt;
use taillab_host::tune::Mitigation;
use taillab_load::ClosedLoop;
use taillab_model::fix::{Factorial, Fix};
use taillab_model::summary::{Reason, Report};
use taillab_model::{MiddleStamps, Nanos, RecordingContext};
use taillab_probe::Probe;

pub use self::args::{ConsentArgs, FactorialArgs, FixArgs};
pub use self::consent::Consent;
use self::generated::{BlockLoad, GeneratedLoad};
use self::live::LiveLoad;
pub use self::live::LiveServer;
use self::load::Load;
use self::session::Session;
use self::trial::Bench;
use crate::changes::Changes;
use crate::definition::Experiment;
use crate::testbed::{BackgroundLoad, Rig};

/// How the fixes are tried.
#[derive(Clone, Debug)]
pub struct FixRequest {
    /// Whether the winners stay applied (`--keep`).
    pub keep: bool,
    /// The time for all trials together.
    pub budget: Duration,
    /// Try these in all combinations, instead of one after the other.
    pub factorial: Vec<&'static Mitigation>,
    /// Whether to ask before each change.
    pub consent: Consent,
}

impl FixRequest {
    /// What the command line asks for.
    ///
    /// # Errors
    /// [`Exit::Usage`](taillab_console::exit::Exit::Usage): an invalid list of mitigations.
    pub fn of(args: &FixArgs, factorial: &[String], consent: Consent) -> Result<Self, Failure> {
        Ok(Self {
            keep: args.keep,
            budget: Duration::from_nanos(args.fix_budget.get()),
            factorial: match factorial {
                [] => Vec::new(),
                names => factorial::named(names)?,
            },
            consent,
        })
    }

    /// How long a block is at this rate, so that the budget has room for the fewest rounds of all
    /// combinations, or for the shortest control and one trial.
    fn block_length(&self, rate_per_s: f64) -> Nanos {
        let fewest = match self.factorial.len() {
            0 => 2 * 2 * decide::FEWEST_PAIRS,
            factors => MIN_PAIRS << factors,
        };
        load::block_length(rate_per_s, self.budget, fewest as u32)
    }
}

/// Ensures that requests are followed if fixes are to be tried: the forecasts need it.
///
/// # Errors
/// [`Exit::Usage`](taillab_console::exit::Exit::Usage): only T1 and T6 are to be recorded.
pub fn ensure_followed(args: &FixArgs, stamps: MiddleStamps) -> Result<(), Failure> {
    match stamps {
        MiddleStamps::Ends if args.fix => Err(Failure::usage(
            "--fix chooses mitigations by what delays requests, and --stamps ends follows no request: leave \
             one of them out, or give --stamps sampled:1/16",
        )),
        _ => Ok(()),
    }
}

/// The input of the trials.
pub struct Setting<'a> {
    /// The measurement with its forecasts.
    pub report: &'a Report,
    /// The context of its recording.
    pub context: &'a RecordingContext,
    /// The seed of the arrivals and of the order of the blocks.
    pub seed: u64,
    /// The flag that Ctrl-C raises.
    pub interrupt: Interrupt,
    /// How much to print.
    pub messages: Messages,
}

/// The results of the trials.
pub struct TrialResults {
    /// Each mitigation in the order of the trials, including those before a failure.
    fixes: Vec<Fix>,
    /// All combinations, if they were asked for and a round was finished.
    factorial: Option<Factorial>,
    /// What the winners changed.
    winners: Vec<export::Winner>,
    /// The winners that stay applied.
    left: Vec<kept::KeptMitigation>,
    /// The failure that ended the trials early, or what could not be put back.
    ended: Result<(), Failure>,
}

/// Tries the mitigations on a fresh server, the best forecast first. At the end everything is put back,
/// except for winners that are to be kept. A mitigation that cannot be applied here gets a row in the result
/// too.
pub fn on_own_server(
    asked: &FixRequest,
    setting: &Setting<'_>,
    experiment: &Experiment,
    rate_per_s: f64,
) -> TrialResults {
    let progress = Progress::new(setting.messages.quiet);
    let rig = Rig::start(experiment, progress, setting.interrupt.clone());
    let mut rig = match rig {
        Ok(rig) => rig,
        Err(failure) => return TrialResults::nothing(failure),
    };
    let tried = on_rig(&mut rig, asked, setting, (experiment, rate_per_s));
    let tried = tried.unwrap_or_else(TrialResults::nothing);
    let server_failure = rig.server_failure();
    let torn_down = rig.take_down();
    let (mut fixes, mut left) = (tried.fixes, tried.left);
    // settings of the server's threads are gone with the server
    let looked = kept::look_again(&mut fixes, &mut left, &tried.winners);
    let ended = server_failure.map_or(tried.ended, Err);
    TrialResults {
        fixes,
        left,
        ended: ended.and(torn_down).and(looked),
        ..tried
    }
}

fn on_rig(
    rig: &mut Rig,
    asked: &FixRequest,
    setting: &Setting<'_>,
    (experiment, rate_per_s): (&Experiment, f64),
) -> Result<TrialResults, Failure> {
    rig.step_aside()?;
    let client = rig.connect(experiment)?;
    let server = rig.placement().server.clone();
    let _background = BackgroundLoad::start(experiment, &server)?;
    let calibration = setting.report.calibration.as_ref();
    let blocks = BlockLoad {
        rate_per_s,
        length: asked.block_length(rate_per_s),
        outstanding: calibration
            .map_or(ClosedLoop::OUTSTANDING, |found| found.outstanding as usize),
    };
    let load = GeneratedLoad::new(rig, client, experiment, blocks, setting.context)?;
    Ok(with(Box::new(load), asked, setting))
}

/// Like [`on_own_server`], but with the traffic of a live server; `probe` is already loaded for it.
pub fn on_live_server(
    asked: &FixRequest,
    setting: &Setting<'_>,
    server: LiveServer<'_>,
    probe: Probe,
) -> TrialResults {
    let length = asked.block_length(server.rate_per_s);
    let load = LiveLoad::new(server, probe, length, setting.interrupt.clone());
    with(Box::new(load), asked, setting)
}

fn with(load: Box<dyn Load + '_>, asked: &FixRequest, setting: &Setting<'_>) -> TrialResults {
    let changes = match Changes::of(load.scope()) {
        Ok(changes) => changes,
        Err(failure) => return TrialResults::nothing(failure),
    };
    let mut bench = Bench {
        load,
        changes,
        service_time: setting.report.server.service_time_ns,
        seed: setting.seed,
        shows: !setting.messages.quiet,
        ends: Instant::now() + asked.budget,
    };
    if !asked.factorial.is_empty() {
        let (factorial, ended) = factorial::run(&mut bench, &asked.factorial);
        return TrialResults {
            factorial,
            ..TrialResults::ended(ended)
        };
    }
    let mut session = Session::new(bench, asked, setting);
    let tried = session.try_all();
    // put everything back before reporting what went wrong
    let put_back = session.end();
    let (fixes, winners, left) = session.into_results();
    TrialResults {
        fixes,
        winners,
        left,
        ..TrialResults::ended(put_back.and(tried))
    }
}

/// A warning for a report whose trials are not complete.
fn ended_early(failure: &Failure) -> Reason {
    let text = format!(
        "the trials of --fix ended early ({failure}): what was finished before is shown; run it again \
         to try the rest"
    );
    Reason::new("fix_partial", text)
}

impl TrialResults {
    const fn ended(ended: Result<(), Failure>) -> Self {
        Self {
            fixes: Vec::new(),
            factorial: None,
            winners: Vec::new(),
            left: Vec::new(),
            ended,
        }
    }

    const fn nothing(failure: Failure) -> Self {
        Self::ended(Err(failure))
    }

    /// Adds the results to the report, and writes the winners into files if asked to.
    ///
    /// # Errors
    /// The failure that ended the trials, once the report has the trials before it; or a file that cannot
    /// be written.
    pub fn tell(
        self,
        report: &mut Report,
        args: &FixArgs,
        messages: Messages,
    ) -> Result<(), Failure> {
        report.fixes = self.fixes;
        report.factorial = self.factorial;
        if let Err(failure) = &self.ended {
            report.verdict.warnings.push(ended_early(failure));
        }
        // trials that ended early may have left winners applied too
        if let Some(kept) = kept::sentence(&self.left) {
            messages.note(&kept);
        }
        self.ended?;
        let Some(folder) = &args.export else {
            return Ok(());
        };
        messages.note(&match export::write(folder, &self.winners)?.as_slice() {
            [] => format!(
                "nothing to export to {}: nothing was kept",
                folder.display()
            ),
            names => format!("wrote {} to {}", names.join(", "), folder.display()),
        });
        let held = export::held(&self.winners);
        if !held.is_empty() {
            messages.note(&format_args!(
                "taillab-fix.sh runs until Ctrl-C: {} ends with the process that holds it",
                held.join(" and ")
            ));
        }
        Ok(())
    }
}
