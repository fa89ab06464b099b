//! `-R max` and `--ping-pong`: no schedule, the next request goes when an answer is there.

use taillab_analysis::statistics::distribution_of;
use taillab_analysis::verdict::{ClientSide, Evidence, judge};
use taillab_load::{FleetRun, Saturation, StopReason};
use taillab_model::load_result::{COMMAND, ClosedFloor, ClosedLoopResult, Mode, SCHEMA_VERSION};
use taillab_model::summary::{ClientCost, LoadErrors};
use taillab_model::{Distribution, Nanos};

use super::floor;
use super::outputs::Wanted;
use super::plan::Closed;
use super::session::{Session, setup};
use super::{Context, hypervisor};
use crate::exit::{Exit, Failure};

/// Before the floor is counted.
const FLOOR_WARM_UP: Nanos = Nanos::from_millis(200);

/// Runs the closed loop.
pub fn run(mut context: Context<'_>, work: &Closed, wanted: &mut Wanted) -> Result<Exit, Failure> {
    let plan = context.plan;
    let (mode, outstanding) = match work.outstanding {
        Some(outstanding) => (Mode::ClosedLoop, outstanding),
        None => (Mode::PingPong, plan.client.connections),
    };
    let seed = plan.seed;
    let found = Found::measure(&mut context.session, work, work.warmup, work.duration, seed)?;
    let floor = floor::against_responder(&context, |session, length, responder| {
        let found = Found::measure(session, work, FLOOR_WARM_UP, length, seed)?;
        Ok(found.stopped.is_none().then(|| ClosedFloor {
            responder,
            requests: found.requests,
            duration_ns: found.elapsed,
            answered_rate_per_s: found.rate_per_s(),
            service_time: found.service_time,
            client: found.client,
        }))
    });
    let (floor, floor_absent_because) = floor.into_parts();
    let verdict = judge(&Evidence {
        partial: found.stopped.is_some(),
        hypervisor: hypervisor().as_deref(),
        closed_loop: Some(ClientSide {
            requests: found.requests,
            service_time: &found.service_time,
            cost: found.client,
            errors: &found.errors,
        }),
        ..Evidence::default()
    });
    let result = ClosedLoopResult {
        schema_version: SCHEMA_VERSION,
        command: COMMAND.to_owned(),
        setup: setup(plan, context.session.endpoint()),
        mode,
        started_unix_s: found.started_unix_s,
        partial: found.stopped.is_some(),
        outstanding: u32::try_from(outstanding).unwrap_or(u32::MAX),
        requests: found.requests,
        duration_ns: found.elapsed,
        answered_rate_per_s: found.rate_per_s(),
        service_time: found.service_time,
        client: found.client,
        errors: found.errors,
        floor,
        floor_absent_because,
        verdict,
    };
    wanted.closed(&result)?;
    context.end(found.stopped, &result.verdict)
}

/// What a closed loop or a ping-pong found.
struct Found {
    requests: u64,
    answers: u64,
    elapsed: Nanos,
    service_time: Distribution,
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

    fn of_saturation(found: Saturation, started_unix_s: u64) -> Self {
        let busy = found.elapsed.get() as f64 * (1.0 - found.idle_share);
        Self {
            requests: found.responses + found.errors.failed_requests(),
            answers: found.responses,
            elapsed: found.elapsed,
            service_time: distribution_of(&found.times),
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
        let times: Vec<Nanos> = run
            .iter_measured()
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
            answers: times.len() as u64,
            elapsed,
            service_time: distribution_of(&times),
            client: run.cpu().cost(),
            errors: run.errors(),
            stopped: run.stopped,
            started_unix_s,
        }
    }

    fn rate_per_s(&self) -> f64 {
        self.answers as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}
