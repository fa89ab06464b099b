//! From a client's measurement to its report, where the server was not traced.

use std::path::Path;

use taillab_analysis::verdict::{
    ClientSide, Evidence, LoadEvidence, SentLoad, Supported, judge_client,
};
use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::print::{print_saved, style};
use taillab_host::Roots;
use taillab_host::environment::Virtualization;
use taillab_model::Nanos;
use taillab_model::load_result::{ClientOnly, Generator, LoadReport, Mode};
use taillab_model::summary::{LoadSummary, SCHEMA_VERSION, Verdict};
use taillab_model::threshold::Threshold;
use taillab_report::load::LoadDocument;
use taillab_report::{json, terminal};

use super::limits;

/// What the client measured.
pub struct ClientMeasured {
    /// The target, as it was given.
    pub target: String,
    /// Start of the measurement, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Whether it ended early.
    pub partial: bool,
    /// One load that was sent by a schedule; sweeps and closed loops are in `generator`.
    pub load: Option<LoadSummary>,
    /// The generator, and what else it measured.
    pub generator: Generator,
    /// The limits that the result must meet.
    pub limits: Vec<Threshold>,
}

impl ClientMeasured {
    /// The report of what is supported, with its verdict; `evidence` has what is not in the result of the load or
    /// closed loop.
    pub fn conclude(self, evidence: &LoadEvidence) -> (LoadReport, Supported) {
        let (duration_ns, requests) = self.extent();
        let (supported, verdict) = self.judged(evidence);
        let closed_loop = self.generator.closed_loop;
        let closed_loop = closed_loop.map(|all| supported.closed_loop(all));
        let load = self.load.map(|all| supported.load(all));
        let assertions =
            limits::of_client(&self.limits, load.as_ref(), closed_loop.as_ref(), &verdict);
        let report = LoadReport {
            schema_version: SCHEMA_VERSION,
            command: "load".to_owned(),
            target: self.target,
            started_unix_s: self.started_unix_s,
            partial: self.partial,
            duration_ns,
            arrival_rate_per_s: requests as f64 / duration_ns.as_secs_f64().max(1e-9),
            load,
            client_minus_server: None,
            calibration: None,
            scheduled: None,
            server: ClientOnly {
                generator: Generator {
                    closed_loop,
                    ..self.generator
                },
            },
            observer: None,
            fixes: Vec::new(),
            factorial: None,
            verdict,
            assertions,
        };
        (report, supported)
    }

    /// Total length and number of requests of everything that was measured.
    fn extent(&self) -> (Nanos, u64) {
        if let Some(closed) = &self.generator.closed_loop {
            return (closed.duration_ns, closed.requests);
        }
        let steps = self.generator.steps.iter().map(|step| &step.load);
        let loads = self.load.iter().chain(steps);
        loads.fold((Nanos::ZERO, 0), |(length, requests), load| {
            (length + load.duration_ns, requests + load.requests)
        })
    }

    fn judged(&self, evidence: &LoadEvidence) -> (Supported, Verdict) {
        let generator = &self.generator;
        let floor = generator.floor.as_ref();
        let closed_loop = generator.closed_loop.as_ref().map(|closed| ClientSide {
            requests: closed.requests,
            service_time: &closed.service_time,
            cost: closed.client,
            errors: &closed.errors,
            evidence: Some(evidence),
        });
        let several = matches!(generator.mode, Mode::Sweep | Mode::Search);
        let hypervisor = Virtualization::read(&Roots::default()).hypervisor();
        judge_client(&Evidence {
            partial: self.partial,
            hypervisor: hypervisor.as_deref(),
            load: self.load.as_ref().map(|summary| SentLoad {
                summary,
                evidence: Some(evidence),
                floor: floor.and_then(|floor| floor.load.as_ref()),
            }),
            closed_loop,
            on_stream: generator.transport != "udp",
            wrong_answer: generator.wrong_answer.as_deref(),
            sweep: several.then_some(generator.steps.as_slice()),
            ..Evidence::default()
        })
    }
}

/// Prints a report of a load on stdout.
pub fn show_load(
    document: &LoadDocument<'_>,
    saved: Option<&Path>,
    common: Output,
) -> Result<(), Failure> {
    if common.is_silent() {
        return Ok(());
    }
    let bytes = match common.json {
        true => json::of(document.report).or_exit(Exit::Failed)?,
        false => {
            let place = saved.map(|dir| dir.display().to_string());
            let render = match common.verbose {
                0 => terminal::load_screen,
                _ => terminal::render_load,
            };
            render(document, place.as_deref(), style()).into_bytes()
        }
    };
    print_saved(&bytes, saved)
}
