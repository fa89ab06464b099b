//! `-R max` and `--ping-pong`: no schedule, the next request goes when an answer is there.

use taillab_analysis::statistics::distribution_of;
use taillab_analysis::verdict::LoadEvidence;
use taillab_load::{FleetRun, Outcome, Saturation, StopReason};
use taillab_model::Nanos;
use taillab_model::load_result::{ClosedLoop, Floor, Generator, Mode};
use taillab_model::summary::{ClientCost, LoadErrors};
use taillab_report::load::LoadDocument;

use super::context::Context;
use super::floor;
use super::outputs::Wanted;
use super::plan::Closed;
use super::session::Session;
use crate::exit::{Exit, Failure};
use crate::pipeline::ClientMeasured;

/// Before the floor is counted.
const FLOOR_WARM_UP: Nanos = Nanos::from_millis(200);

/// Runs the closed loop.
pub fn run(mut context: Context<'_>, work: &Closed, wanted: &mut Wanted) -> Result<Exit, Failure> {
    let plan = context.plan;
    let (mode, outstanding) = match work.outstanding {
        Some(outstanding) => (Mode::ClosedLoop, outstanding),
        None => (Mode::PingPong, plan.client.connections),
    };
    let measure = |session: &mut Session<'_>, warm_up, length| {
        let found = Found::measure(session, work, warm_up, length, plan.seed)?;
        Ok::<_, Failure>((found.closed_loop(outstanding), found))
    };
    let (closed_loop, found) = measure(&mut context.session, work.warmup, work.duration)?;
    let floor = floor::against_responder(&context, |session, length, responder| {
        let (closed_loop, found) = measure(session, FLOOR_WARM_UP, length)?;
        Ok(found.stopped.is_none().then_some(Floor {
            responder,
            load: None,
            closed_loop: Some(closed_loop),
        }))
    });
    let (floor, floor_absent_because) = floor.into_parts();
    let mut report = ClientMeasured {
        target: plan.target.to_string(),
        started_unix_s: found.started_unix_s,
        partial: found.stopped.is_some(),
        load: None,
        generator: Generator {
            closed_loop: Some(closed_loop),
            floor,
            floor_absent_because,
            ..context.generator(mode)
        },
    }
    .conclude(&LoadEvidence::default());
    wanted.hold(&mut report)?;
    wanted.write(&LoadDocument::of(&report), None)?;
    context.end(found.stopped, &report)
}

/// What a closed loop or a ping-pong found.
struct Found {
    requests: u64,
    answers: u64,
    elapsed: Nanos,
    service_times: Vec<Nanos>,
    client: ClientCost,
    errors: LoadErrors,
    stopped: Option<StopReason>,
    started_unix_s: u64,
}

impl Found {
    fn measure(
        session: &mut Session<'_>,
        work: &Closed,
        warm_up: Nanos,
        length: Nanos,
        seed: u64,
    ) -> Result<Self, Failure> {
        match work.outstanding {
            Some(outstanding) => {
                let (found, at) = session.closed_loop(outstanding, warm_up, length, seed)?;
                Ok(Self::of_saturation(found, at))
            }
            None => {
                let (run, at) = session.ping_pong(warm_up, length, seed)?;
                Ok(Self::of_ping_pong(&run, at))
            }
        }
    }

    fn closed_loop(&self, outstanding: usize) -> ClosedLoop {
        ClosedLoop {
            outstanding: u32::try_from(outstanding).unwrap_or(u32::MAX),
            requests: self.requests,
            duration_ns: self.elapsed,
            answered_rate_per_s: self.answers as f64 / self.elapsed.as_secs_f64().max(1e-9),
            service_time: distribution_of(&self.service_times),
            client: self.client,
            errors: self.errors,
        }
    }

    fn of_saturation(found: Saturation, started_unix_s: u64) -> Self {
        let busy = found.elapsed.get() as f64 * (1.0 - found.idle_share);
        Self {
            requests: found.responses + found.errors.failed_requests(),
            answers: found.responses,
            elapsed: found.elapsed,
            service_times: found.times,
            client: ClientCost {
                cpu_ns_per_request: Nanos::new((busy / found.responses.max(1) as f64) as u64),
                busy_share: 1.0 - found.idle_share,
            },
            errors: found.errors,
            stopped: found.stopped,
            started_unix_s,
        }
    }

    fn of_ping_pong(run: &FleetRun, started_unix_s: u64) -> Self {
        let service_times: Vec<Nanos> = run
            .iter_measured()
            .filter(|entry| entry.outcome != Outcome::TimedOut)
            .filter_map(|entry| entry.service_time())
            .collect();
        let sends = || run.measured_sends();
        let (first, last) = (sends().next(), sends().last());
        let elapsed = match (first, last) {
            (Some(first), Some(last)) => last.saturating_since(first),
            _ => Nanos::ZERO,
        };
        Self {
            requests: sends().count() as u64,
            answers: service_times.len() as u64,
            elapsed,
            service_times,
            client: run.cpu().cost(),
            errors: run.errors(),
            stopped: run.stopped,
            started_unix_s,
        }
    }
}
