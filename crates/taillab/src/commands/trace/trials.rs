//! `trace … --fix`: tries mitigations on the live server under its own traffic.

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::rights::{Remaining, give_up_root};
use taillab_experiment::fix::{self, Consent, FixRequest, LiveServer, TrialResults};
use taillab_host::target;
use taillab_host::tune::Scope;
use taillab_host::{CpuSet, Interrupt, Roots};
use taillab_model::RecordingContext;
use taillab_model::summary::Report;

use super::find::FoundServer;
use super::{probing, unpin};
use crate::cli::TraceArgs;

/// Seed of the order of the blocks.
const SEED: u64 = 1;

/// Whether and how fixes are to be tried.
///
/// # Errors
/// There is no terminal to ask on, and `--yes` is not given.
pub fn asked(args: &TraceArgs) -> Result<Option<FixRequest>, Failure> {
    if !args.fix.fix {
        return Ok(None);
    }
    fix::ensure_followed(&args.fix, args.recording.stamps)?;
    let consent = Consent::of(args.consent.yes)?;
    FixRequest::of(&args.fix, &[], consent).map(Some)
}

/// Checks, before anything is recorded and if fixes are to be tried, that all processes that are watched are one server:
/// the rest of it would be taken for other programs, and moved or held back.
///
/// # Errors
/// They are several; then one that we started is ended.
pub fn ensure_one_server(
    mut found: FoundServer,
    asked: Option<&FixRequest>,
    roots: &Roots,
) -> Result<FoundServer, Failure> {
    if asked.is_none() {
        return Ok(found);
    }
    let server = &mut found.server;
    // those that share its port are a part of what is changed
    server.processes.append(&mut server.others);
    server.processes.sort_unstable();
    match target::ensure_one_server(roots, server.pid, &server.processes) {
        Ok(()) => Ok(found),
        Err(error) => found.end().and(Err(host(error))),
    }
}

/// The server and what is to be tried on it.
pub struct Trials<'a> {
    pub asked: FixRequest,
    pub args: &'a TraceArgs,
    pub found: FoundServer,
    pub watched: CpuSet,
    pub interrupt: Interrupt,
    /// Where this thread may run afterwards.
    pub back: Option<CpuSet>,
    pub messages: Messages,
}

impl Trials<'_> {
    /// Tries the fixes that this forecast names (`None`: tries nothing), ends a server that we started, and
    /// gives up root.
    pub fn run(
        mut self,
        forecast: Result<Option<Report>, Failure>,
        context: &RecordingContext,
    ) -> Result<Option<TrialResults>, Failure> {
        let tried = forecast.and_then(|report| {
            let tried = report.map(|report| self.all(&report, context));
            tried.transpose()
        });
        unpin(self.back.as_ref())?;
        self.found.end()?;
        give_up_root(&Roots::default(), Remaining::Files)?;
        tried
    }

    fn all(
        &mut self,
        report: &Report,
        context: &RecordingContext,
    ) -> Result<TrialResults, Failure> {
        let probe = probing::load(self.args, &self.found, &self.watched)?;
        let setting = fix::Setting {
            report,
            context,
            seed: SEED,
            interrupt: self.interrupt.clone(),
            messages: self.messages,
        };
        let processes = self.found.server.processes.clone();
        let server = LiveServer {
            scope: Scope {
                pid: Some(self.found.server.pid),
                device: None,
                cpus: Some(self.watched.clone()),
            },
            processes,
            cpus: self.watched.clone(),
            rate_per_s: report.arrival_rate_per_s,
            context: RecordingContext {
                threads: Vec::new(),
                workers: Some(report.server.ideal.workers),
                service_time_ns: Some(report.server.service_time_ns),
                service_time_source: Some(report.server.service_time_source),
                ..context.clone()
            },
            ended: Box::new(|| self.found.ended()),
        };
        Ok(fix::on_live_server(&self.asked, &setting, server, probe))
    }
}
