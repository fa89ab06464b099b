//! `taillab trace`: watches a running server.
//!
//! The server is found, the probe loaded, the recording made, analysed, judged, saved and shown, in this order. What
//! comes more than once:
//! - the directory of the result, first and last: nothing is recorded that could not be saved;
//! - with `--fix`, the analysis. Which fixes are tried follows from its forecasts, and trying them needs root. So the
//!   first analysis runs in a process without root, which cannot write files of the result and hands back only its
//!   report. The second follows when this process has given up root, and writes the files while it reads;
//! - with `--fix`, the probe: that of the recording has ended with it.

mod end;
mod find;
mod framing;
mod live;
mod probing;
mod record;
mod recorder;
mod totals;
mod trials;

use std::num::NonZeroU32;
use std::time::Duration;

use taillab_console::args::AnalysisArgs;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::rights::{recover, without_root};
use taillab_console::rundir::{RECORDING, RunDir, with_files};
use taillab_experiment::pipeline::{
    self, Attachments, MeasurementFacts, Presentation, Source, Spool, limits, next_steps,
};
use taillab_host::environment::{CaptureSpec, Environment};
use taillab_host::target::ensure_first_pid_namespace;
use taillab_host::{CpuSet, Interrupt, Placement, Roots, cpus};
use taillab_model::summary::Report;

use self::end::End;
use self::find::FoundServer;
use self::record::Recorded;
use self::trials::Trials;
use crate::cli::TraceArgs;

/// Disk space without which a recording is not begun.
const LEAST_SPACE: u64 = 64 << 20;

/// Records, analyses, prints and saves.
pub fn run(args: TraceArgs) -> Result<Exit, Failure> {
    // what only serves figures needs no terminal
    if args.result.live && args.result.metrics.is_none() {
        live::ensure_there()?;
    }
    let asked = trials::asked(&args)?;
    let roots = Roots::default();
    let messages = Messages::of(args.common);
    recover(&roots, messages)?;
    ensure_first_pid_namespace(&roots).map_err(host)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let found = FoundServer::by(&args, &roots, &interrupt)?;
    let mut found = trials::ensure_one_server(found, asked.as_ref(), &roots)?;
    let watched = args
        .server
        .cpus
        .clone()
        .unwrap_or_else(|| found.server.cpus.clone());
    let processes = match found.server.processes.len() {
        1 => "1 process".to_owned(),
        n => format!("{n} processes"),
    };
    let server = &found.server;
    messages.step(&format!(
        "watching {server} ({processes}) on CPUs {watched}"
    ));
    let environment = capture_environment(&roots, &watched);

    // from here on we stay off the server's CPUs where we can
    let before = cpus::allowed().map_err(host)?;
    let own_cpus = cpus::others(&before, &watched, |cpu| cpus::siblings(&roots, cpu));
    let shares_cpus = own_cpus.is_empty();
    if !shares_cpus {
        cpus::pin_current_thread(&own_cpus).map_err(host)?;
    }
    messages.step("loading the probe");
    let probe = probing::load(&args, &found, &watched)?;
    let mut dir = directory(&args, &found)?;
    let folder = dir.as_ref().map(|dir| dir.path().to_owned());
    messages.step("recording");
    let recorded = record::record(record::Work {
        args: &args,
        found: &mut found,
        watched: &watched,
        own_cpus: &own_cpus,
        probe,
        spool: spool(dir.as_mut())?,
        roots: &roots,
        interrupt: &interrupt,
        environment: &environment,
        place: folder.as_deref(),
    });
    let finish = Finish {
        args: &args,
        dir,
        shares_cpus,
        target: found.server.to_string(),
        environment: &environment,
        messages,
    };
    let back = if shares_cpus { None } else { Some(before) };
    if let (Ok(_), Some(asked)) = (&recorded, asked) {
        // trials need root's rights, which the analysis does not
        let trials = Trials {
            asked,
            args: &args,
            found,
            watched,
            interrupt,
            back,
            messages,
        };
        return finish.report(recorded?, Some(trials));
    }
    unpin(back.as_ref())?;
    // end a server that we started before we report anything
    found.end()?;
    let recorded = recorded?;
    finish.report(recorded, None)
}

/// Lets the calling thread run where it could before.
fn unpin(back: Option<&CpuSet>) -> Result<(), Failure> {
    back.map_or(Ok(()), |cpus| cpus::pin_current_thread(cpus).map_err(host))
}

/// What is needed to conclude, besides the recording.
struct Finish<'a> {
    args: &'a TraceArgs,
    /// Where the result is saved, if it is.
    dir: Option<RunDir>,
    shares_cpus: bool,
    target: String,
    environment: &'a Environment,
    messages: Messages,
}

impl Finish<'_> {
    /// Tries fixes if they were asked for, analyses the recording, shows and saves the result, and says
    /// how the command ends. The trials need root's rights, so the forecasts that choose them are analysed
    /// in a separate process without these rights.
    fn report(self, recorded: Recorded, trials: Option<Trials<'_>>) -> Result<Exit, Failure> {
        let Self { args, mut dir, .. } = self;
        let Recorded {
            mut spool,
            end,
            cost,
            server_cpus,
            context,
        } = recorded;
        self.messages.step("analysing");
        let facts = || MeasurementFacts {
            command: "trace",
            target: Some(self.target.clone()),
            // a server of our own has ended
            process: args.server.pid.map(NonZeroU32::get),
            partial: !matches!(end, End::TimeUp),
            shares_cpus: self.shares_cpus,
            server_cpus,
            cost: Some(cost),
            limits: args.limits.limits.clone(),
            ..MeasurementFacts::default()
        };
        let tried = trials.map(|trials| {
            let forecast = match end {
                End::TimeUp => forecast(&mut spool, &args.analysis, facts()),
                _ => Ok(None),
            };
            trials.run(forecast, &context)
        });
        let analysed = pipeline::analyse(
            Source::of(&mut spool),
            &args.analysis,
            facts(),
            dir.as_mut(),
        );
        let mut analysed = match analysed {
            Ok(analysed) => analysed,
            Err(failure) => return Err(end.failure().unwrap_or(failure)),
        };
        let junit = limits::write(&args.limits, &analysed.report);
        let fixed = match tried.transpose() {
            Ok(Some(Some(tried))) => tried.tell(&mut analysed.report, &args.fix, self.messages),
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        };
        let attachments = Attachments {
            environment: Some(serde_json::to_value(self.environment).or_exit(Exit::Failed)?),
            ..Attachments::default()
        };
        if let Some(dir) = &mut dir {
            pipeline::save(dir, &analysed, &attachments);
        }
        let shown = Presentation {
            saved: dir.as_ref().and_then(RunDir::whole),
            common: args.common,
            slowest: args.analysis.slowest.is_some(),
            next: (dir.as_ref().and_then(RunDir::whole))
                .map(|folder| next_steps::of_recording(folder, &analysed))
                .unwrap_or_default(),
        };
        pipeline::show(&analysed, &attachments, &shown)?;
        let ended = match end {
            End::Interrupted => Ok(Exit::Interrupted),
            End::TimeUp => fixed.map(|()| analysed.exit()),
            other => Err(other
                .failure()
                .unwrap_or_else(|| Failure::failed("the trace ended early"))),
        };
        let written = dir.map_or(Ok(()), RunDir::outcome).and(junit);
        with_files(ended, written)
    }
}

/// The report with the forecasts for the fixes, made by a process that has given up root. `None` where
/// the recording has no requests: the analysis that follows reports that.
fn forecast(
    spool: &mut Spool,
    args: &AnalysisArgs,
    facts: MeasurementFacts,
) -> Result<Option<Report>, Failure> {
    without_root(&Roots::default(), || {
        let analysed = pipeline::analyse(Source::of(spool), args, facts, None).ok()?;
        Some(analysed.report)
    })
}

/// The directory for the recording and the result, where they are saved.
fn directory(args: &TraceArgs, found: &FoundServer) -> Result<Option<RunDir>, Failure> {
    if !args.result.saves() {
        return Ok(None);
    }
    // a thread may be called anything
    let name: String = (found.server.comm.chars())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    RunDir::create_or_name(args.result.output.clone(), &name, LEAST_SPACE).map(Some)
}

/// Where the recording goes: to a file in this directory, or it is not kept.
fn spool(dir: Option<&mut RunDir>) -> Result<Spool, Failure> {
    match dir {
        Some(dir) => Ok(Spool::in_file(dir.stream(RECORDING)?)),
        None => Ok(Spool::of_live_server()),
    }
}

fn capture_environment(roots: &Roots, watched: &CpuSet) -> Environment {
    taillab_host::capture_environment(&CaptureSpec {
        roots,
        placement: &Placement {
            server: watched.clone(),
            client: CpuSet::default(),
        },
        command_line: std::env::args().collect(),
        taillab_version: env!("CARGO_PKG_VERSION").to_owned(),
        server: None,
        loopback: false,
        // watching would find the server's own load
        observe: Duration::ZERO,
    })
}
