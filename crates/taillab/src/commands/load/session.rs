//! The client with its connections, and what is measured with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use taillab_analysis::load::{LoadAnalysis, LoadedRequest};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::messages::Messages;
use taillab_console::progress::{Phase, Progress};
use taillab_experiment::capacity::{self, BLOCKS, CapacityBlocks};
use taillab_experiment::pipeline::{loaded_requests, summarise_load};
use taillab_host::{Interrupt, clock};
use taillab_load::fleet::PrepareError;
use taillab_load::{
    AnyClient, ClosedFleet, Endpoint, Fleet, FleetProgress, FleetRun, NoHooks, OpenFleet, PingPong,
    SHORTEST_WINDOW, Saturation, StopReason, WrongAnswer, arrivals_verdict, schedule_verdict,
};
use taillab_model::interval::median;
use taillab_model::load_result::Capacity;
use taillab_model::summary::Connect;
use taillab_model::{Monotonic, Nanos};
use taillab_report::rate;

use super::plan::ClientPlan;
use super::requests::Requests;
use super::schedule::{Schedule, Shape};
use super::watch;
use taillab_analysis::cut::Spans;

/// A connected client and what watches it.
pub struct Session<'a> {
    fleet: Fleet,
    endpoint: Endpoint,
    client: &'a ClientPlan,
    interrupt: &'a Interrupt,
    messages: Messages,
}

/// What is sent in one measurement.
pub struct Sending<'a> {
    pub schedule: Schedule,
    pub shape: &'a Shape,
    /// The rate as a share of the capacity, where this is known.
    pub utilization: Option<f64>,
    pub seed: u64,
    /// When it begins; `None`: at once.
    pub start: Option<Monotonic>,
}

/// The record of one measurement and its analysis.
pub struct LoadMeasurement {
    pub run: FleetRun,
    pub analysis: LoadAnalysis,
    pub started_unix_s: u64,
    /// The answers came on a stream.
    pub on_stream: bool,
}

impl LoadMeasurement {
    /// Whether it ended early.
    pub fn is_partial(&self) -> bool {
        self.run.stopped.is_some()
    }

    /// The requests of the measurement in order of the intended time.
    pub fn requests(&self) -> impl Iterator<Item = LoadedRequest> {
        loaded_requests(&self.run)
    }
}

impl<'a> Session<'a> {
    /// Connects every thread's client, each on its CPU.
    pub fn connect(
        endpoint: Endpoint,
        requests: &Requests,
        client: &'a ClientPlan,
        interrupt: &'a Interrupt,
        messages: Messages,
    ) -> Result<Self, Failure> {
        let placing = client.placing.clone();
        let pin = move |i| placing.pin(i).map_err(PrepareError::from);
        let connect = |i| {
            let (connections, codec) = (client.connections_of(i), requests.codec()?);
            let stamps = client.stamps;
            if client.habits.connect == Connect::Each {
                let rate = client.rate_per_s;
                return AnyClient::connect_each(&endpoint, connections, codec, stamps, rate);
            }
            let connected = AnyClient::connect(&endpoint, connections, codec, stamps)?;
            Ok(connected.with(client.habits))
        };
        let work = || Fleet::connect(client.threads(), pin, connect);
        let fleet = Progress::new(messages.quiet).during(&[], || 0, work)?;
        Ok(Self {
            fleet,
            endpoint,
            client,
            interrupt,
            messages,
        })
    }

    /// A client like this one, connected to another server.
    pub fn with_server(&self, endpoint: Endpoint, requests: &Requests) -> Result<Self, Failure> {
        Self::connect(
            endpoint,
            requests,
            self.client,
            self.interrupt,
            self.messages,
        )
    }

    /// Where the server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The server's first wrong answer.
    pub fn wrong_answer(&self) -> Option<&WrongAnswer> {
        let mut clients = self.fleet.clients().iter();
        clients.find_map(taillab_load::Client::wrong_answer)
    }

    /// Whether the user has interrupted the load.
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_raised()
    }

    /// Stores every key that the protocol asks for.
    pub fn prefill(&mut self) -> Result<(), Failure> {
        let (fleet, endpoint) = (&mut self.fleet, &self.endpoint);
        let keys = taillab_load::Client::planner(&fleet.clients()[0])
            .to_store()
            .len() as u64;
        if keys == 0 {
            return Ok(());
        }
        let phases = [Phase {
            name: "storing the keys",
            total: keys,
        }];
        let progress = fleet.progress();
        let stop = self.interrupt.flag();
        let done = || progress.received();
        let work = || fleet.prefill(endpoint, stop);
        let stored = Progress::new(self.messages.quiet).during(&phases, done, work)?;
        if stored.interrupted {
            return Err(interrupted("while the keys were stored"));
        }
        Ok(())
    }

    /// Finds the server's peak with this many requests in flight.
    pub fn calibrate(&mut self, outstanding: usize, seed: u64) -> Result<Capacity, Failure> {
        let phases = [Phase {
            name: "finding the capacity",
            total: u64::from(BLOCKS),
        }];
        let (fleet, stop) = (&mut self.fleet, self.interrupt.flag());
        let (watched, done) = (fleet.progress(), AtomicU64::new(0));
        let timeout = self.client.timeout;
        let mut blocks = CapacityBlocks::new(|| watched.received(), timeout, &done);
        let load = ClosedFleet {
            outstanding,
            // the blocks end it
            length: Nanos::MAX,
            warm_up: Nanos::ZERO,
            seed,
            timeout,
            stop,
        };
        let work = || fleet.saturate(&load, &mut blocks);
        let found =
            Progress::new(self.messages.quiet).during(&phases, || done.load(Relaxed), work)?;
        if found.stopped == Some(StopReason::Interrupted) {
            return Err(interrupted("while the capacity was measured"));
        }
        let rates = blocks.rates_per_s();
        let peak = rates.and_then(|rates| median(&rates));
        let peak = peak.ok_or_else(|| self.silent(timeout))?;
        capacity::let_finish(outstanding, peak.value, || self.interrupted());
        Ok(Capacity {
            peak_per_s: peak.value,
            peak_lo_per_s: Some(peak.lo),
            peak_hi_per_s: Some(peak.hi),
            blocks: BLOCKS,
        })
    }

    /// The failure to report when no answer came in time.
    fn silent(&self, timeout: Nanos) -> Failure {
        Failure::failed(format!(
            "the server at {} gave no answer for {timeout} while its capacity was measured: see whether it still \
             runs; if it is so slow, wait longer (--timeout)",
            self.endpoint
        ))
    }

    /// Sends a schedule and summarises the answers.
    pub fn open_loop(
        &mut self,
        what: &str,
        sending: Sending<'_>,
    ) -> Result<LoadMeasurement, Failure> {
        let Sending {
            schedule,
            shape,
            utilization,
            seed,
            start,
        } = sending;
        if schedule.measured_requests() == 0 {
            return Err(Failure::usage(format!(
                "{what}: at {} requests per second none is due within {}; use a higher rate or \
                     a longer duration",
                rate(schedule.rate_per_s),
                schedule.duration()
            )));
        }
        let rate_per_s = schedule.rate_per_s;
        let length = schedule.length;
        let (fleet, stop) = (&mut self.fleet, self.interrupt.flag());
        let progress: Arc<FleetProgress> = fleet.progress();
        let load = OpenFleet {
            schedules: schedule.by_thread,
            warm_up: schedule.measure_from,
            seed,
            timeout: self.client.timeout,
            waiting: self.client.waiting,
            start,
            stop,
        };
        let started_unix_s = clock::unix_s();
        let run = watch::load(self.messages, what, length, &progress, || {
            fleet.open_loop(load, &mut NoHooks)
        })?;
        let is_measured = run.iter_measured().next().is_some();
        match (unsent(&run, length), is_measured) {
            (Some(unsent), false) => return Err(Failure::failed(unsent)),
            (None, false) => return Err(self.nothing_measured(run.stopped)),
            (Some(unsent), true) => self.messages.note(&format_args!("warning: {unsent}")),
            (None, true) => {}
        }
        let arrivals = if shape.is_poisson() {
            arrivals_verdict(run.measured_turns(), rate_per_s, SHORTEST_WINDOW)
                .or_exit(Exit::Failed)?
        } else {
            let intended = run.iter_measured().map(|entry| entry.times.intended);
            schedule_verdict(&shape.name(), intended, run.measured_turns())
        };
        let analysis = summarise_load(&run, (rate_per_s, utilization), arrivals, &Spans::default());
        Ok(LoadMeasurement {
            run,
            analysis,
            started_unix_s,
            on_stream: !matches!(self.endpoint, Endpoint::Udp(_)),
        })
    }

    /// Keeps this many requests in flight.
    pub fn closed_loop(
        &mut self,
        outstanding: usize,
        warm_up: Nanos,
        length: Nanos,
        seed: u64,
    ) -> Result<(Saturation, u64), Failure> {
        let (fleet, stop) = (&mut self.fleet, self.interrupt.flag());
        let progress = fleet.progress();
        let load = ClosedFleet {
            outstanding,
            length,
            warm_up,
            seed,
            timeout: self.client.timeout,
            stop,
        };
        let started = clock::unix_s();
        let whole = length + warm_up;
        let found = watch::load(self.messages, "closed loop", whole, &progress, || {
            fleet.saturate(&load, &mut NoHooks)
        })?;
        if found.responses == 0 && found.stopped.is_some() {
            return Err(self.nothing_measured(found.stopped));
        }
        Ok((found, started))
    }

    /// Keeps one request in flight on each connection.
    pub fn ping_pong(
        &mut self,
        warm_up: Nanos,
        length: Nanos,
        seed: u64,
    ) -> Result<(FleetRun, u64), Failure> {
        let (fleet, stop) = (&mut self.fleet, self.interrupt.flag());
        let progress = fleet.progress();
        let load = PingPong {
            warm_up,
            length,
            gap: Nanos::ZERO,
            most: most_ping_pongs(length + warm_up, self.client.threads()),
            seed,
            timeout: self.client.timeout,
            waiting: self.client.waiting,
            stop,
            // not used: a fleet has its own
            progress: &taillab_load::Progress::new(),
        };
        let started = clock::unix_s();
        let whole = length + warm_up;
        let run = watch::load(self.messages, "ping-pong", whole, &progress, || {
            fleet.ping_pong(&load, &mut NoHooks)
        })?;
        if run.iter_measured().next().is_none() {
            return Err(self.nothing_measured(run.stopped));
        }
        Ok((run, started))
    }

    /// Why the measurement ended before it had a request.
    fn nothing_measured(&self, stopped: Option<StopReason>) -> Failure {
        match stopped {
            Some(StopReason::Interrupted) => interrupted("before anything was measured"),
            _ => self.gone("before anything was measured"),
        }
    }

    /// The failure to report when the server has gone.
    pub fn gone(&self, when: &str) -> Failure {
        Failure::failed(format!(
            "the server at {} stopped answering {when}: see whether it still runs, and what it \
                 last said",
            self.endpoint
        ))
    }
}

/// What was due and not sent in this time, warm-up included, with the remedy; `None` if all was.
fn unsent(run: &FleetRun, length: Nanos) -> Option<String> {
    let unsent = run.unsent();
    let sent: usize = run.runs.iter().map(|run| run.record.iter().len()).sum();
    (unsent > 0).then(|| {
        format!(
            "when its time was up, the client had not sent {unsent} of {} requests: it can send about {} per \
             second; lower the rate, or give it more threads and CPUs (-t)",
            unsent + sent,
            rate(sent as f64 / length.as_secs_f64())
        )
    })
}

/// Room in the record for a ping-pong of this length: more requests than it can make, up to a limit at
/// which a very long one ends early.
fn most_ping_pongs(length: Nanos, threads: usize) -> usize {
    const PER_S: f64 = 200_000.0;
    const MOST: f64 = 20e6;
    (length.as_secs_f64() * PER_S * threads as f64).clamp(1e3, MOST) as usize
}

fn interrupted(when: &str) -> Failure {
    Failure::new(Exit::Interrupted, format!("interrupted {when}"))
}
