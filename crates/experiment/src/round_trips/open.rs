//! A row whose messages are sent by a schedule, with the generator of `load` and the same verdict.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use taillab_analysis::load::{LoadFacts, LoadedRequest, summarise};
use taillab_analysis::verdict::{Evidence, SentLoad, Supported, judge_client};
use taillab_host::environment::Virtualization;
use taillab_host::{CpuSet, Roots, cpus};
use taillab_load::rtt::{OpenClient, Peer, Proto, RttError};
use taillab_load::{
    ClosedLoop, CpuUse, FleetRun, LoadRun, OpenLoop, Progress, SHORTEST_WINDOW, StopReason,
    Waiting, arrivals_verdict,
};
use taillab_model::interval::median;
use taillab_model::load_result::Capacity;
use taillab_model::rtt::{RoundTrip, RttCounts, RttOpenLoop, XdpAttachment};
use taillab_model::summary::LoadErrors;
use taillab_model::{ClientTimes, Monotonic, Nanos};
use taillab_queueing::arrivals::ArrivalProcess;

use super::measure::{Measurement, Row, RowOutcome};
use super::plan::{OpenRate, RowPlan};
use crate::capacity::{self, BLOCKS, CapacityBlocks};
use crate::pipeline::loaded_requests;

/// The fewest messages of a run, however long they take.
const LEAST: usize = 2;

/// What was sent in all runs.
#[derive(Default)]
struct Sent {
    capacity: Option<Capacity>,
    rate_per_s: f64,
    runs: Vec<Vec<LoadedRequest>>,
    /// From the first intended send of each run to its last.
    lengths: Vec<Nanos>,
    errors: LoadErrors,
    cpu: CpuUse,
    xdp_attachment: Option<XdpAttachment>,
    partial: bool,
    failure: Option<RttError>,
}

impl Measurement<'_> {
    /// One row: its server, the capacity if the load is a share of it, and all runs.
    pub(super) fn open_row(&self, plan: &RowPlan, rate: OpenRate) -> Row {
        let mut sent = Sent::default();
        let of_server = RowPlan {
            // all ports of a client talk to one server
            conns: match plan.proto {
                Proto::Udp => 1,
                _ => plan.conns,
            },
            ..*plan
        };
        match self.peer(&of_server) {
            Err(error) => sent.failure = Some(error),
            Ok(peer) => {
                let client = CpuSet::single(self.plan.client_cpus[0]);
                let work = || -> Result<(), RttError> {
                    cpus::pin_current_thread(&client)
                        .map_err(|error| RttError::Thread(error.to_string()))?;
                    self.send_all(plan, rate, &peer, &mut sent)
                };
                let panicked = || RttError::Thread("it panicked, see above".to_owned());
                let result = self.testbed.run_at_client(|| {
                    thread::scope(|scope| scope.spawn(work).join().map_err(|_| panicked()))
                });
                sent.failure = match result {
                    Ok(Ok(result)) => result.err(),
                    Ok(Err(error)) => Some(error),
                    Err(error) => Some(RttError::Server(error.to_string())),
                };
            }
        }
        self.row_of_load(plan, rate, sent)
    }

    fn send_all(
        &self,
        plan: &RowPlan,
        rate: OpenRate,
        peer: &Peer,
        sent: &mut Sent,
    ) -> Result<(), RttError> {
        let connect = || OpenClient::connect(plan.proto, plan.size, plan.conns, peer);
        sent.rate_per_s = match rate {
            OpenRate::PerS(per_s) => per_s,
            OpenRate::OfCapacity(share) => {
                let Some(capacity) = self.capacity(&mut connect()?, plan)? else {
                    sent.partial = true;
                    return Ok(());
                };
                sent.capacity = Some(capacity);
                share * capacity.peak_per_s
            }
        };
        for run in 0..self.plan.runs {
            if self.interrupt.is_raised() {
                sent.partial = true;
                break;
            }
            let mut schedule = self.schedule(plan, sent.rate_per_s, run)?;
            let mut warm_up = self.warm_up(plan);
            if let Some(most) = self.plan.at_most
                && schedule.last().is_some_and(|last| *last > most)
            {
                // keep the first messages, however late they are due: an empty run would say nothing
                let due = schedule.partition_point(|due| *due <= most);
                schedule.truncate(due.max(LEAST));
                warm_up = warm_up.min(schedule.len() / 10);
                sent.partial = true;
            }
            let load = OpenLoop {
                measure_from: warm_up.min(schedule.len().saturating_sub(1)),
                schedule,
                seed: u64::from(run),
                timeout: self.plan.timeout,
                waiting: Waiting::Spin,
                stop: self.interrupt.flag(),
                progress: &self.sending,
            };
            let mut client = connect()?;
            sent.xdp_attachment = sent.xdp_attachment.max(client.xdp_attachment());
            let run = client.open_loop(load)?;
            self.done.fetch_add(self.sending.sent(), Relaxed);
            self.sending.restart();
            let stopped = run.stopped;
            sent.take(run);
            if let Some(reason) = stopped {
                sent.partial = true;
                if reason == StopReason::Refused {
                    return Err(RttError::Refused {
                        server: peer.name().to_owned(),
                    });
                }
                break;
            }
        }
        Ok(())
    }

    fn warm_up(&self, plan: &RowPlan) -> usize {
        (self.plan.warm_up * plan.conns as u64) as usize
    }

    /// The times of one run's messages, those of the warm-up included.
    fn schedule(&self, plan: &RowPlan, per_s: f64, run: u32) -> Result<Vec<Nanos>, RttError> {
        let wanted = self.plan.count as f64 + self.warm_up(plan) as f64;
        // long enough that too few are due only once in millions of runs
        let enough = (wanted + 6.0 * wanted.sqrt() + 6.0) / per_s;
        let refused = |why: &dyn std::fmt::Display| RttError::Unavailable {
            proto: plan.proto,
            why: format!("{why}; give a rate with -R"),
        };
        let length = Nanos::try_from_secs_f64(enough)
            .ok_or_else(|| refused(&format_args!("{per_s} messages per second take too long")))?;
        let seed = u64::from(run) + 1;
        let mut schedule = ArrivalProcess::Poisson
            .schedule(per_s, length, seed)
            .map_err(|error| refused(&error))?;
        schedule.truncate(wanted as usize);
        Ok(schedule)
    }

    /// The peak of the server with this client; `None` if interrupted.
    fn capacity(
        &self,
        client: &mut OpenClient,
        plan: &RowPlan,
    ) -> Result<Option<Capacity>, RttError> {
        let (progress, done) = (Progress::new(), AtomicU64::new(0));
        let outstanding = ClosedLoop::OUTSTANDING.max(plan.conns);
        let timeout = self.plan.timeout;
        let mut blocks = CapacityBlocks::new(|| progress.received(), timeout, &done);
        let load = ClosedLoop {
            outstanding,
            // the blocks end it
            length: Nanos::MAX,
            warm_up: Nanos::ZERO,
            seed: 0,
            timeout,
            stop: self.interrupt.flag(),
            progress: &progress,
        };
        let found = client.saturate(&load, &mut blocks)?;
        if found.stopped == Some(StopReason::Interrupted) {
            return Ok(None);
        }
        let peak = blocks.rates_per_s().and_then(|rates| median(&rates));
        let peak = peak.ok_or_else(|| RttError::Unavailable {
            proto: plan.proto,
            why: format!(
                "the server gave no answer for {timeout} while its capacity was measured: wait longer (--timeout), \
                 or give a rate with -R"
            ),
        })?;
        capacity::let_finish(outstanding, peak.value, || self.interrupt.is_raised());
        Ok(Some(Capacity {
            peak_per_s: peak.value,
            peak_lo_per_s: Some(peak.lo),
            peak_hi_per_s: Some(peak.hi),
            blocks: BLOCKS,
        }))
    }

    fn row_of_load(&self, plan: &RowPlan, rate: OpenRate, mut sent: Sent) -> Row {
        let runs: Vec<Vec<RoundTrip>> = (sent.runs.iter())
            .map(|run| run.iter().map(|one| self.round_trip(one)).collect())
            .collect();
        let lost = |run: &Vec<RoundTrip>| run.iter().filter(|trip| trip.lost).count() as u64;
        let all: u64 = runs.iter().map(|run| run.len() as u64).sum();
        let lost: u64 = runs.iter().map(lost).sum();
        let cpu = sent.cpu.cost().cpu_ns_per_request;
        let share = match rate {
            OpenRate::PerS(_) => None,
            OpenRate::OfCapacity(share) => Some(share),
        };
        let counts = RttCounts {
            sent: all,
            answered: all - lost,
            lost,
            duplicated: sent.errors.unexpected_responses,
            foreign: sent.errors.malformed_responses,
            ..RttCounts::default()
        };
        let lengths = sent.lengths.iter();
        let lengths = lengths.map(|length| (*length, Some(cpu))).collect();
        let (is_short, failure) = (sent.partial, sent.failure.take());
        let xdp_attachment = sent.xdp_attachment.take();
        let judged = (all > 1).then(|| sent.judged(share)).flatten();
        let (open_loop, supported) = judged.unzip();
        let played = RowOutcome {
            runs,
            lengths,
            counts,
            is_short,
            failure,
            xdp_attachment,
            open_loop,
            supported,
            ..RowOutcome::default()
        };
        self.row_of(plan, played)
    }

    /// A message as a round trip, from when it was due.
    fn round_trip(&self, one: &LoadedRequest) -> RoundTrip {
        let answered = one.times.received;
        let intended = one.times.intended;
        RoundTrip {
            sent: intended,
            rtt: answered.map_or(self.plan.timeout, |at| at.saturating_since(intended)),
            connection: 0,
            lost: answered.is_none(),
        }
    }
}

impl Sent {
    fn take(&mut self, run: LoadRun) {
        let fleet = FleetRun {
            stopped: run.stopped,
            runs: vec![run],
        };
        let requests: Vec<LoadedRequest> = loaded_requests(&fleet).collect();
        let ends = requests.first().zip(requests.last());
        let length = ends.map_or(Nanos::ZERO, |(first, last)| {
            last.times.intended.saturating_since(first.times.intended)
        });
        self.errors = [self.errors, fleet.errors()].into_iter().sum();
        self.cpu = [self.cpu, fleet.cpu()].into_iter().sum();
        self.lengths.push(length);
        self.runs.push(requests);
    }

    /// All runs joined, as if there had been no pauses between them.
    fn joined(&self) -> Vec<LoadedRequest> {
        let mut all = Vec::with_capacity(self.runs.iter().map(Vec::len).sum());
        let mean_gap = Nanos::try_from_secs_f64(1.0 / self.rate_per_s).unwrap_or(Nanos::ZERO);
        let mut from = Monotonic::from_nanos_since_boot(0);
        for (run, length) in self.runs.iter().zip(&self.lengths) {
            let Some(first) = run.first().map(|one| one.times.intended) else {
                continue;
            };
            let moved = |at: Monotonic| from + at.saturating_since(first);
            all.extend(run.iter().map(|one| LoadedRequest {
                times: ClientTimes {
                    intended: moved(one.times.intended),
                    sent: moved(one.times.sent),
                    received: one.times.received.map(moved),
                },
                wire: one.wire,
                waited: one.waited,
                connecting: one.connecting,
            }));
            from = from + *length + mean_gap;
        }
        all
    }

    /// What the sends were as a load, and what that supports; `None` if they cannot be judged as one.
    fn judged(self, target_utilization: Option<f64>) -> Option<(RttOpenLoop, Supported)> {
        let all = self.joined();
        let sends = all.iter().map(LoadedRequest::turn);
        let arrivals = arrivals_verdict(sends, self.rate_per_s, SHORTEST_WINDOW).ok()?;
        let facts = LoadFacts {
            target_rate_per_s: self.rate_per_s,
            target_utilization,
            arrivals,
            client: self.cpu.cost(),
            errors: self.errors,
            clients: None,
        };
        let analysis = summarise(|| all.iter().copied(), facts);
        let hypervisor = Virtualization::read(&Roots::default()).hypervisor();
        let (supported, verdict) = judge_client(&Evidence {
            partial: self.partial,
            hypervisor: hypervisor.as_deref(),
            load: Some(SentLoad {
                summary: &analysis.summary,
                evidence: Some(&analysis.evidence),
                floor: None,
            }),
            ..Evidence::default()
        });
        let open_loop = RttOpenLoop {
            capacity: self.capacity,
            load: supported.load(analysis.summary),
            verdict,
        };
        Some((open_loop, supported))
    }
}
