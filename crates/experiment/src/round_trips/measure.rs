//! Measures row after row.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use taillab_analysis::rtt::summarise;
use taillab_analysis::verdict::{Evidence, Supported, judge};
use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::progress::{Phase, Progress};
use taillab_host::{CpuSet, Interrupt, Testbed, TestbedSpec, cpus};
use taillab_load::rtt::{Peer, PeerSpec, RoundTrips, RttError, RunSpec, XdpEnds, round_trips};
use taillab_model::Nanos;
use taillab_model::rtt::{
    Link, RoundTrip, RttCounts, RttCurves, RttExplanation, RttOpenLoop, RttRow, RttRun,
    XdpAttachment,
};

use super::failure::failure;
use super::plan::{RowPlan, RttPlan};

/// What is at hand for all rows.
pub struct Measurement<'a> {
    pub(super) plan: &'a RttPlan,
    pub(super) interrupt: &'a Interrupt,
    messages: Messages,
    pub(super) testbed: Testbed,
    pub(super) done: AtomicU64,
    /// The progress of the open loop that runs now.
    pub(super) sending: taillab_load::Progress,
}

/// All rows that were measured.
pub struct Measured {
    /// In the order of the plan.
    pub rows: Vec<RttRow>,
    /// Of each row.
    pub curves: Vec<RttCurves>,
    /// The first failure of a row.
    pub failure: Option<Failure>,
}

impl<'a> Measurement<'a> {
    /// Makes the testbed.
    pub fn new(
        plan: &'a RttPlan,
        interrupt: &'a Interrupt,
        messages: Messages,
    ) -> Result<Self, Failure> {
        let testbed = match plan.link {
            Link::Veth => Testbed::veth(&TestbedSpec {
                placement: plan.placement(),
            }),
            Link::Loopback | Link::Target => Testbed::loopback(),
        };
        let testbed = testbed.map_err(host)?;
        if let Some(mtu) = plan.mtu {
            testbed.set_mtu(mtu).map_err(host)?;
        }
        let new = Self {
            plan,
            interrupt,
            messages,
            testbed,
            done: AtomicU64::new(0),
            sending: taillab_load::Progress::new(),
        };
        if plan.explain {
            new.check_probe()?;
        }
        Ok(new)
    }

    /// Measures all rows, and passes each with its round trips to `finished` as soon as it is done.
    pub fn rows(
        &self,
        mut finished: impl FnMut(&Row) -> Result<(), Failure> + Send,
    ) -> Result<Measured, Failure> {
        let mut measured = Measured {
            rows: Vec::new(),
            curves: Vec::new(),
            failure: None,
        };
        let phase = Phase {
            name: "round trips",
            total: self.plan.round_trips(),
        };
        let result = Progress::new(self.messages.quiet).during(
            &[phase],
            || self.done.load(Relaxed) + self.sending.sent(),
            || {
                for plan in &self.plan.rows {
                    if self.interrupt.is_raised() {
                        break;
                    }
                    let row = match self.plan.open {
                        None => self.row(plan),
                        Some(rate) => self.open_row(plan, rate),
                    };
                    finished(&row)?;
                    let why = row.failure.as_ref().map(failure);
                    measured.failure = measured.failure.take().or(why);
                    measured.rows.push(row.row);
                    measured.curves.push(row.curves);
                }
                Ok(())
            },
        );
        result.map(|()| measured)
    }

    /// One row: its server, and all runs.
    fn row(&self, plan: &RowPlan) -> Row {
        let mut played = RowOutcome::default();
        let peer = match self.peer(plan) {
            Ok(peer) => peer,
            Err(error) => {
                played.failure = Some(error);
                return self.row_of(plan, played);
            }
        };
        for _ in 0..self.plan.runs {
            if played.failure.is_some() || self.interrupt.is_raised() {
                break;
            }
            match self.run(plan, &peer) {
                Ok(run) => played.take(run),
                Err(error) => played.failure = Some(error),
            }
        }
        let wanted = self.plan.count * u64::from(self.plan.runs);
        played.is_short = played.round_trips() < wanted;
        if played.failure.is_none() && self.plan.explain && !self.interrupt.is_raised() {
            played.explained = Some(self.explained(plan, &peer));
        }
        self.row_of(plan, played)
    }

    /// The row of what was played.
    pub(super) fn row_of(&self, plan: &RowPlan, played: RowOutcome) -> Row {
        // without a schedule, nothing can be against them
        let unscheduled = judge(&Evidence::default());
        let supported = played.supported.as_ref();
        let found = summarise(&played.runs, supported.unwrap_or(unscheduled.supported()));
        let failure = played.failure;
        let is_by_limit = played.is_short && failure.is_none() && !self.interrupt.is_raised();
        let (explanation, unexplained_because) = match played.explained {
            None => (None, None),
            Some(Ok(explanation)) => (Some(explanation), None),
            Some(Err(why)) => (None, Some(why.message)),
        };
        let of_load = played.open_loop.as_ref().map(|open| &open.load);
        let row = RttRow {
            proto: plan.proto.to_string(),
            mode: plan.mode.to_string(),
            size_bytes: plan.size as u32,
            conns: plan.conns as u32,
            counts: played.counts,
            partial: failure.is_some() || played.is_short,
            rtt: of_load.map_or(found.rtt, |load| load.response_time.clone()),
            runs: (found.runs.into_iter())
                .zip(played.lengths)
                .map(|(rtt, (length_ns, cpu))| RttRun {
                    length_ns,
                    client_cpu_ns_per_round_trip: cpu,
                    rtt,
                })
                .collect(),
            trimmed: found.trimmed,
            worst_to_median: found.worst_to_median,
            bursts: found.bursts,
            fan_out: found.fan_out,
            needs: found.needs,
            open_loop: played.open_loop,
            explanation,
            unexplained_because,
            functional_only: played.functional_only.map(str::to_owned),
            xdp_attachment: played.xdp_attachment,
            ended_after_ns: self.plan.at_most.filter(|_| is_by_limit),
            failure: failure.as_ref().map(ToString::to_string),
        };
        Row {
            row,
            curves: found.curves,
            runs: played.runs,
            failure,
        }
    }

    pub(super) fn peer(&self, plan: &RowPlan) -> Result<Peer, RttError> {
        if let Some(target) = &self.plan.target {
            let endpoint = target.endpoint(plan.proto);
            return endpoint.map(Peer::at).ok_or_else(|| RttError::Unavailable {
                proto: plan.proto,
                why: "the target does not support it".to_owned(),
            });
        }
        if plan.proto.is_rdma() {
            let added = self.testbed.add_soft_roce();
            added.map_err(|error| RttError::Unavailable {
                proto: plan.proto,
                why: error.to_string(),
            })?;
        }
        let folder = std::env::temp_dir();
        let spec = PeerSpec {
            proto: plan.proto,
            mode: plan.mode,
            size: plan.size,
            conns: plan.conns,
            threads: self.plan.server_cpus.len().min(plan.conns),
            address: match self.plan.link {
                Link::Veth => self.testbed.server_address(),
                _ => IpAddr::from(Ipv4Addr::LOCALHOST),
            },
            port: 0,
            xdp: self.xdp_ends(),
            path: folder.join(format!("taillab-rtt-{}.sock", std::process::id())),
        };
        let own: CpuSet = self.plan.server_cpus.iter().copied().collect();
        let prepare = move |_| cpus::pin_current_thread(&own).map_err(|error| error.to_string());
        self.testbed
            .run_at_server(|| Peer::start(&spec, prepare))
            .unwrap_or_else(|error| Err(RttError::Server(error.to_string())))
    }

    /// The two devices, if they are our own.
    fn xdp_ends(&self) -> Option<XdpEnds> {
        let v4 = |address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        };
        (self.plan.link == Link::Veth).then_some(())?;
        Some(XdpEnds {
            client_device: self.testbed.client_device().ifindex,
            client_address: v4(self.testbed.client_address())?,
            server_device: self.testbed.server_device().ifindex,
            server_address: v4(self.testbed.server_address())?,
            mode: self.plan.xdp,
        })
    }

    fn run(&self, plan: &RowPlan, peer: &Peer) -> Result<RoundTrips, RttError> {
        let of_run = RunLength {
            count: self.plan.count,
            warm_up: self.plan.warm_up,
        };
        let play = |stop: &AtomicBool| self.play(plan, peer, of_run, stop);
        let Some(length) = self.plan.at_most else {
            return play(self.interrupt.flag());
        };
        let warm_up = self.done.load(Relaxed) + self.plan.warm_up * plan.conns as u64;
        let warm = || self.done.load(Relaxed) >= warm_up;
        within(length, warm, self.interrupt, play)
    }

    /// Makes the round trips of a run.
    pub(super) fn play(
        &self,
        plan: &RowPlan,
        peer: &Peer,
        RunLength { count, warm_up }: RunLength,
        stop: &AtomicBool,
    ) -> Result<RoundTrips, RttError> {
        let spec = RunSpec {
            proto: plan.proto,
            mode: plan.mode,
            size: plan.size,
            conns: plan.conns,
            count,
            warm_up,
            timeout: self.plan.timeout,
            threads: self.plan.client_cpus.len(),
            stop,
            progress: &self.done,
        };
        let own = &self.plan.client_cpus;
        let prepare = |thread: usize| {
            let cpu = CpuSet::single(own[thread % own.len()]);
            cpus::pin_current_thread(&cpu).map_err(|error| error.to_string())
        };
        self.testbed
            .run_at_client(|| round_trips(&spec, peer, prepare))
            .unwrap_or_else(|error| Err(RttError::Server(error.to_string())))
    }
}

/// Runs `work` with a flag that rises this time after `warm`, or with the interrupt.
fn within<T>(
    length: Nanos,
    warm: impl Fn() -> bool + Send,
    interrupt: &Interrupt,
    work: impl FnOnce(&AtomicBool) -> T,
) -> T {
    /// Between two checks, each of which disturbs the measurement.
    const PERIOD: Duration = Duration::from_millis(50);
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stop, done) = (&stop, &done);
    thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut end = None;
            while !done.load(Relaxed) {
                if end.is_none() && warm() {
                    end = Some(Instant::now() + Duration::from_nanos(length.get()));
                }
                let left = end.map_or(PERIOD, |end| end.saturating_duration_since(Instant::now()));
                if left.is_zero() || interrupt.is_raised() {
                    stop.store(true, Relaxed);
                    break;
                }
                thread::park_timeout(left.min(PERIOD));
            }
        });
        let result = work(stop);
        done.store(true, Relaxed);
        watcher.thread().unpark();
        result
    })
}

/// A row with all its round trips.
pub struct Row {
    /// Its figures.
    pub row: RttRow,
    /// What is drawn of it.
    pub curves: RttCurves,
    /// Each in order of time.
    pub runs: Vec<Vec<RoundTrip>>,
    pub(super) failure: Option<RttError>,
}

/// How many round trips a run makes.
#[derive(Clone, Copy)]
pub(super) struct RunLength {
    /// Those that count.
    pub(super) count: u64,
    /// Those before them on each connection, which do not.
    pub(super) warm_up: u64,
}

/// What the runs of a row have shown.
#[derive(Default)]
pub(super) struct RowOutcome {
    /// The round trips of each run, in order of time.
    pub(super) runs: Vec<Vec<RoundTrip>>,
    /// How long each took, with the client's CPU time per round trip where that is known.
    pub(super) lengths: Vec<(Nanos, Option<Nanos>)>,
    pub(super) counts: RttCounts,
    /// There are fewer round trips than were planned.
    pub(super) is_short: bool,
    pub(super) failure: Option<RttError>,
    /// The load, where messages were sent by a schedule.
    pub(super) open_loop: Option<RttOpenLoop>,
    /// What that load supports.
    pub(super) supported: Option<Supported>,
    /// Where the tail comes from, or why that is not known, where it was asked for.
    pub(super) explained: Option<Result<RttExplanation, Failure>>,
    pub(super) functional_only: Option<&'static str>,
    pub(super) xdp_attachment: Option<XdpAttachment>,
}

impl RowOutcome {
    /// One more run.
    fn take(&mut self, run: RoundTrips) {
        self.counts += run.counts;
        self.functional_only = self.functional_only.or(run.functional_only);
        self.xdp_attachment = self.xdp_attachment.max(run.xdp_attachment);
        let n = run.round_trips.len() as u64;
        if n > 0 {
            let cpu = run.cpu.get().checked_div(n).map(Nanos::new);
            self.lengths.push((run.length, cpu));
            self.runs.push(run.round_trips);
        }
        self.failure = run.failure;
    }

    /// Round trips of all runs, those of lost messages included.
    fn round_trips(&self) -> u64 {
        self.runs.iter().map(|run| run.len() as u64).sum()
    }
}
