//! `taillab run`: one server, one load, measured against its ideal.

pub mod calibrate;
pub mod capacity;
pub mod client;
pub mod context;
pub mod measure;
mod outputs;
pub mod result;
pub mod rig;
pub mod rundir;
pub mod servers;

use std::time::Duration;

use taillab_host::environment::{CaptureSpec, Environment};
use taillab_host::{Interrupt, JournalFolder, Roots, capture_environment};
use taillab_load::{Asks, StopReason};
use taillab_model::doctor::FoundHazard;
use taillab_model::summary::{Hook, Reason};

use self::calibrate::Calibrated;
use self::measure::Recorded;
use self::result::Context;
use self::rig::Rig;
use self::rundir::RunDir;
use crate::cli::RunArgs;
use crate::exit::{Exit, Failure};
use crate::experiment::Experiment;
use crate::fail::host;
use crate::progress::Progress;

/// How long the machine is watched for other loads before the run.
const OBSERVE: Duration = Duration::from_millis(500);

/// Runs the experiment; the result is printed and saved.
pub fn run(args: RunArgs) -> Result<Exit, Failure> {
    let say = Say {
        quiet: args.common.quiet,
        verbose: args.common.verbose > 0,
    };
    let (common, save_capture) = (args.common, args.save_capture);
    let (file, output) = (args.experiment.clone(), args.output.clone());
    let (kind, settings) = args.into_request();
    let experiment = Experiment::resolve(kind, file.as_deref(), settings)?;
    let roots = Roots::default();
    for recovered in JournalFolder::of_this_user()
        .recover(&roots)
        .map_err(host)?
    {
        say.note(&recovered);
    }
    let interrupt = Interrupt::register().map_err(host)?;
    let name = experiment.server.name();
    let mut rundir = RunDir::create(output, &name, outputs::expected_bytes(&experiment))?;

    let progress = Progress::new(say.quiet);
    let mut rig = Rig::start(&experiment, progress, interrupt)?;
    let environment = capture_environment(&CaptureSpec {
        roots: &roots,
        placement: rig.placement(),
        command_line: std::env::args().collect(),
        taillab_version: env!("CARGO_PKG_VERSION").to_owned(),
        server: Some(servers::facts(&experiment)),
        loopback: rig.is_loopback(),
        observe: OBSERVE,
    });
    let session = take_measurements(&mut rig, &experiment, &environment, say);
    let server_failure = rig.server_failure();
    // The machine is put back before anything is said about what went wrong.
    let torn_down = rig.take_down();
    let Session {
        calibrated,
        hooks,
        recorded,
    } = session?;
    torn_down?;
    let stopped = recorded.load.stopped;

    let context = Context {
        experiment: &experiment,
        hooks,
        hypervisor: hypervisor(&environment),
        conditions: conditions(&environment),
        server_cpus: environment.cpu.server.len(),
        calibrated,
    };
    if save_capture {
        rundir.write("capture.tlc", |out| recorded.events.write(out))?;
    }
    say.step("analysing");
    let result = result::evaluate(recorded, context)?;
    outputs::save(&mut rundir, &result, &experiment, &environment)?;
    outputs::show(&rundir, &result, &experiment, &environment, common)?;
    match (stopped, server_failure) {
        (_, Some(failure)) => Err(failure),
        (Some(StopReason::Interrupted), None) => Ok(Exit::Interrupted),
        _ if !result.summary.verdict.valid => Ok(Exit::Invalid),
        _ => Ok(Exit::Ok),
    }
}

/// The hypervisor's name, where there is one.
pub fn hypervisor(environment: &Environment) -> Option<String> {
    let facts = &environment.virtualization;
    let name = facts
        .product
        .clone()
        .or_else(|| facts.hypervisor_type.clone());
    name.or_else(|| facts.hypervisor_flag?.then(|| "a hypervisor".to_owned()))
}

/// Conditions of the testbed and of the machine that affect this kind of run.
fn conditions(environment: &Environment) -> Vec<Reason> {
    let reason = |hazard: &FoundHazard| {
        let text = match &hazard.remedy {
            Some(remedy) => format!("{}; {remedy}", hazard.text),
            None => hazard.text.clone(),
        };
        Reason::new(&hazard.key, text)
    };
    environment.hazards.iter().map(reason).collect()
}

/// What was measured.
struct Session {
    calibrated: Calibrated,
    hooks: Vec<Hook>,
    recorded: Recorded,
}

/// Everything that needs the server: the keys, the peak, the load.
fn take_measurements(
    rig: &mut Rig,
    experiment: &Experiment,
    environment: &Environment,
    say: Say,
) -> Result<Session, Failure> {
    rig.step_aside()?;
    say.step("loading the probe");
    let mut probe = rig.load_probe(experiment)?;
    let hooks = probe.hooks();
    say.step(match experiment.server.protocol.asks {
        Asks::Store => "connecting and storing the keys",
        _ => "connecting",
    });
    let mut client = rig.connect(experiment)?;
    say.step("calibrating");
    let calibrated = calibrate::calibrate(rig, &mut client, &mut probe, experiment)?;
    let rate_per_s = measure::rate(experiment, &calibrated);
    say.step(&format!("measuring at {rate_per_s:.0} requests per second"));
    let mut context = context::before(rig, &probe, experiment, &calibrated);
    context.kernel = environment.kernel.release.clone().unwrap_or_default();
    context.hypervisor = hypervisor(environment);
    let recorded = measure::measure(rig, &mut client, probe, experiment, context, rate_per_s)?;
    Ok(Session {
        calibrated,
        hooks,
        recorded,
    })
}

/// Remarks on stderr.
#[derive(Clone, Copy)]
struct Say {
    quiet: bool,
    verbose: bool,
}

impl Say {
    fn note(self, text: &impl std::fmt::Display) {
        if !self.quiet {
            eprintln!("taillab: {text}");
        }
    }

    fn step(self, text: &str) {
        if self.verbose {
            eprintln!("taillab: {text}");
        }
    }
}
