//! What a load measures, checked before anything is opened.

use std::num::{NonZeroU32, NonZeroUsize};

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_experiment::time_stamps::TraceOptions;
use taillab_load::{ClosedLoop, HabitNames, Habits, KernelStamps, Target, Waiting};
use taillab_model::Nanos;
use taillab_model::Objective;
use taillab_model::summary::Connect;

use super::files;
use super::placing::Placing;
use super::requests::Requests;
use super::schedule::Shape;
use crate::cli::{Amounts, ClientArgs, Floor, LoadArgs, ScheduleArgs, StampKind, WaitKind};

/// The default length of a measurement.
const DURATION: Nanos = Nanos::from_secs(10);
/// The default length of the longest measurement of a search.
const LONGEST_TRIAL: Nanos = Nanos::from_secs(30);
/// The default length of the load before the measurement.
const WARM_UP: Nanos = Nanos::from_secs(1);
/// The floor is measured for at most this long by default.
const FLOOR: Nanos = Nanos::from_secs(3);
/// No generator sends faster: a higher rate is a typing error.
const MOST_PER_S: f64 = 100e6;
/// Connections of clients that pipeline, and sockets of those over UDP: none waits for its connection.
const PIPELINED_CONNECTIONS: usize = 16;
/// Connections of clients that send one request at a time. While fewer than 1.3 requests are in the server on
/// average, fewer than 1 % wait for their connection; where more do, a warning says how many connections are enough.
/// Servers with small limits take so many: nginx closes idle connections when few of its `worker_connections` are
/// left, and Apache's usual limit is 150.
const CONNECTIONS: usize = 128;
/// Connections that may be open at once where each request opens one: enough for a stall of the server, and as many as
/// memcached takes by default.
const MOST_OPEN: usize = 1024;
/// The most connections that the ports and descriptors of one machine allow.
const MOST_CONNECTIONS: usize = 100_000;

/// What is measured, with what requests, and by what client.
pub struct LoadPlan {
    pub target: Target,
    pub requests: Requests,
    pub work: Work,
    pub client: ClientPlan,
    /// Length of the floor; `None` when it is off.
    pub floor: Option<Nanos>,
    pub prefill: bool,
    pub seed: u64,
}

/// What is measured.
pub enum Work {
    /// A schedule, at one or several loads.
    Open(Open),
    /// The highest rate that holds an objective.
    Find(Find),
    /// No schedule: each response lets the next request go.
    Closed(Closed),
}

/// Schedules at several loads, one after the other.
pub struct Open {
    pub shape: Shape,
    pub levels: Vec<Level>,
    pub warmup: Nanos,
    /// `None`: to the end of the profile or the trace.
    pub duration: Option<Nanos>,
    pub outstanding: usize,
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// Requests per second.
    Rate(f64),
    /// A share of the capacity.
    Share(f64),
    /// As the profile or the trace has it.
    AsGiven,
}

/// A search.
pub struct Find {
    pub objective: Objective,
    pub shape: Shape,
    pub bounds: Bounds,
    pub warmup: Nanos,
    pub longest: Nanos,
    pub outstanding: usize,
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Requests per second.
    Rates(f64, f64),
    /// Shares of the capacity.
    Shares(f64, f64),
}

/// A closed loop.
pub struct Closed {
    /// Requests in flight; `None`: one on each connection.
    pub outstanding: Option<usize>,
    pub warmup: Nanos,
    pub duration: Nanos,
}

/// The client's connections and threads, and how it waits and stamps.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    pub connections: usize,
    pub habits: Habits,
    /// The highest rate that is planned, requests per second, where that is known.
    pub rate_per_s: Option<f64>,
    pub placing: Placing,
    pub timeout: Nanos,
    pub waiting: Waiting,
    /// Keep the CPUs from sleeping.
    pub keep_awake: bool,
    pub stamps: KernelStamps,
}

impl ClientPlan {
    pub fn threads(&self) -> usize {
        self.placing.threads.len()
    }

    /// The most requests that can be in flight, of this number.
    pub fn in_flight(&self, outstanding: usize) -> usize {
        let each = match self.habits.connect {
            Connect::Once => self.habits.pipeline.map(|most| most.get() as usize),
            Connect::Each => Some(1),
        };
        each.map_or(outstanding, |each| {
            outstanding.min(each.saturating_mul(self.connections))
        })
    }

    /// Connections of thread `i`: they differ by at most one.
    pub fn connections_of(&self, i: usize) -> usize {
        let threads = self.threads();
        self.connections / threads + usize::from(i < self.connections % threads)
    }
}

/// The plan that the arguments ask for.
pub fn plan(args: &LoadArgs) -> Result<LoadPlan, Failure> {
    let target = match args.requests.dialect {
        Some(dialect) => args.target.clone().with_dialect(dialect),
        None => Ok(args.target.clone()),
    }
    .or_exit(Exit::Usage)?;
    let requests = Requests::of(&target, &args.requests, &args.client)?;
    let mut client = client(&args.client, &requests)?;
    let work = work(&args.load, &client)?;
    client.rate_per_s = work.highest_rate_per_s();
    let several = match &work {
        Work::Open(open) => open.levels.len() > 1,
        Work::Find(_) => true,
        Work::Closed(_) => false,
    };
    if several && !args.limits.limits.is_empty() {
        return Err(Failure::usage(
            "--assert checks the result of one load: give one rate with -R or -u, or look for \
             the highest rate that meets the limit with --find",
        ));
    }
    let floor = match args.client.floor {
        Some(Floor::Off) => None,
        Some(Floor::For(length)) => Some(length),
        None => Some(work.usual_length().min(FLOOR)),
    };
    Ok(LoadPlan {
        target,
        requests,
        work,
        client,
        floor,
        prefill: !args.requests.no_prefill,
        seed: args.load.seed,
    })
}

impl Work {
    /// The highest rate that is planned, requests per second; `None` where it depends on what the server takes.
    pub fn highest_rate_per_s(&self) -> Option<f64> {
        let Self::Open(open) = self else {
            return None;
        };
        let rate = |level: &Level| match level {
            Level::Rate(rate) => Some(*rate),
            Level::AsGiven => open.shape.own_rate_per_s(),
            Level::Share(_) => None,
        };
        let mut rates = open.levels.iter().map(rate);
        rates.try_fold(0.0, |most: f64, rate| Some(most.max(rate?)))
    }

    /// Length of a usual measurement of it.
    fn usual_length(&self) -> Nanos {
        match self {
            Self::Open(open) => open.duration.unwrap_or(DURATION),
            Self::Find(find) => find.longest,
            Self::Closed(closed) => closed.duration,
        }
    }

    /// Requests kept in flight to find the capacity, where the load is a share of it.
    pub fn calibration(&self) -> Option<usize> {
        match self {
            Self::Open(open) => open
                .levels
                .iter()
                .any(|level| matches!(level, Level::Share(_)))
                .then_some(open.outstanding),
            Self::Find(find) => {
                matches!(find.bounds, Bounds::Shares(..)).then_some(find.outstanding)
            }
            Self::Closed(_) => None,
        }
    }
}

/// The options of what clients do with their connections.
const HABITS: HabitNames = HabitNames {
    pipeline: "--pipeline",
    reserve: "a reserve",
    each: "--connect each",
    pooled: "--clients pooled",
    streams: "TCP and Unix sockets",
};

/// How the clients use their connections, and how many of them are usual.
fn habits(args: &ClientArgs, requests: &Requests) -> Result<(Habits, usize), Failure> {
    let asked = Habits {
        kind: args.clients,
        pipeline: args.pipeline.and_then(NonZeroU32::new),
        reserve: 0,
        connect: args.connect,
    };
    let datagrams = requests.are_datagrams();
    asked.check(datagrams, &HABITS).map_err(Failure::usage)?;
    let (pipeline, usual) = match (args.connect, args.pipeline) {
        (Connect::Each, _) => (None, MOST_OPEN),
        (Connect::Once, None) if !requests.pipeline() => (Some(NonZeroU32::MIN), CONNECTIONS),
        (Connect::Once, None | Some(0)) => (None, PIPELINED_CONNECTIONS),
        (Connect::Once, Some(_)) => (asked.pipeline, CONNECTIONS),
    };
    Ok((Habits { pipeline, ..asked }, usual))
}

fn client(args: &ClientArgs, requests: &Requests) -> Result<ClientPlan, Failure> {
    let threads = args.threads.get();
    let (habits, usual) = habits(args, requests)?;
    let connections = (args.connections).map_or(usual.max(threads), NonZeroUsize::get);
    if connections > MOST_CONNECTIONS {
        return Err(Failure::usage(format!(
            "{connections} connections are more than one machine has ports for; use at most \
             {MOST_CONNECTIONS}"
        )));
    }
    if connections < threads {
        return Err(Failure::usage(format!(
            "{threads} threads need at least one connection each: use -c {threads} or more, or \
             fewer threads"
        )));
    }
    if args.timeout == Nanos::ZERO {
        return Err(Failure::usage(
            "the time-out must be above 0; give e.g. --timeout 1s",
        ));
    }
    Ok(ClientPlan {
        connections,
        habits,
        rate_per_s: None,
        placing: Placing::choose(threads, args.cpus.as_deref(), args.oversubscribe)?,
        timeout: args.timeout,
        waiting: match args.wait {
            WaitKind::Spin => Waiting::Spin,
            WaitKind::Hybrid => Waiting::Hybrid,
        },
        keep_awake: args.keep_awake,
        stamps: match args.stamps {
            StampKind::None => KernelStamps::NONE,
            StampKind::Kernel => KernelStamps::ALL,
        },
    })
}

fn work(args: &ScheduleArgs, client: &ClientPlan) -> Result<Work, Failure> {
    if args.duration == Some(Nanos::ZERO) {
        return Err(Failure::usage(
            "the duration must be above 0; give e.g. -d 10s",
        ));
    }
    let outstanding = match args.outstanding.map(|n| n.get()) {
        Some(n) if n > ClosedLoop::MAX_OUTSTANDING => {
            return Err(Failure::usage(format!(
                "{n} requests in flight are too many; use at most {}",
                ClosedLoop::MAX_OUTSTANDING
            )));
        }
        Some(given) => given,
        None => ClosedLoop::outstanding_for(client.threads()),
    };
    let outstanding = client.in_flight(outstanding);
    let warmup = args.warmup.unwrap_or(WARM_UP);
    if args.ping_pong || args.rate == Some(Amounts::Max) {
        if args.find.is_some() || args.profile.is_some() || args.recorded.trace.is_some() {
            return Err(Failure::usage(
                "-R max has no schedule: leave out --find, --profile and --trace, or give a rate",
            ));
        }
        return Ok(Work::Closed(Closed {
            outstanding: (!args.ping_pong).then_some(outstanding),
            warmup,
            duration: args.duration.unwrap_or(DURATION),
        }));
    }
    let shape = shape(args)?;
    // -R goes before -u
    let amounts = match (&args.rate, &args.utilization) {
        (Some(rates), _) => Some((rates, false)),
        (None, Some(shares)) => Some((shares, true)),
        (None, None) => None,
    };
    if let Some(objective) = args.find {
        return Ok(Work::Find(Find {
            objective,
            shape,
            bounds: bounds(amounts)?,
            warmup,
            longest: args.duration.unwrap_or(LONGEST_TRIAL),
            outstanding,
        }));
    }
    let levels = levels(amounts, &shape)?;
    let warmup = match (&shape, args.warmup) {
        (Shape::Recorded(_), None) => Nanos::ZERO,
        _ => warmup,
    };
    let duration = match shape {
        Shape::Steady(_) => Some(args.duration.unwrap_or(DURATION)),
        _ => args.duration,
    };
    fills(&shape, &levels, (warmup, args.duration))?;
    for level in &levels {
        let rate = match level {
            Level::Rate(rate) => Some(*rate),
            Level::AsGiven => shape.own_rate_per_s(),
            // not known before the capacity is
            Level::Share(_) => None,
        };
        if let Some(rate) = rate {
            shape.ensure_affordable(rate, warmup, duration)?;
        }
    }
    Ok(Work::Open(Open {
        shape,
        levels,
        warmup,
        duration,
        outstanding,
    }))
}

/// Refuses a duration that the profile or the trace does not fill: the load would end early.
fn fills(
    shape: &Shape,
    levels: &[Level],
    (warmup, duration): (Nanos, Option<Nanos>),
) -> Result<(), Failure> {
    let rate = match levels {
        [Level::Rate(rate)] => Some(*rate),
        _ => None,
    };
    let (name, before) = match (shape, levels) {
        // a profile is preceded by its warm-up, a trace begins with it
        (Shape::Profile(..), _) => ("profile", Nanos::ZERO),
        (Shape::Recorded(_), [Level::Rate(_) | Level::AsGiven]) => ("trace", warmup),
        // of several loads, the faster ones play a trace in less time
        _ => return Ok(()),
    };
    match (shape.own_length(rate), duration) {
        (Some(own), Some(wanted)) if own < wanted + before => Err(Failure::usage(format!(
            "the {name} lasts {own} in all, which is less than the {} of -d{}: leave out -d, or make the {name} \
             longer",
            wanted + before,
            if before > Nanos::ZERO {
                " and --warmup"
            } else {
                ""
            },
        ))),
        _ => Ok(()),
    }
}

fn shape(args: &ScheduleArgs) -> Result<Shape, Failure> {
    if let Some(path) = &args.recorded.trace {
        let stretched = args.rate.is_some() || args.utilization.is_some();
        let times = files::recorded(TraceOptions {
            unit_matters: !stretched,
            ..args.recorded.options(path)
        })?;
        return Ok(Shape::Recorded(times));
    }
    Ok(match &args.profile {
        Some(text) => Shape::Profile(args.arrivals, files::profile(text)?),
        None => Shape::Steady(args.arrivals),
    })
}

fn levels(amounts: Option<(&Amounts, bool)>, shape: &Shape) -> Result<Vec<Level>, Failure> {
    let Some((amounts, shares)) = amounts else {
        return match shape {
            Shape::Steady(_) => Err(Failure::usage(
                "how much load? Give a rate (-R 20000), a share of the capacity (-u 75%), as \
                 fast as it goes (-R max), or an objective (--find 'p99.9<=200us')",
            )),
            _ => Ok(vec![Level::AsGiven]),
        };
    };
    let values = match amounts {
        Amounts::Values(values) => values,
        Amounts::Between(from, to) => {
            return Err(Failure::usage(format!(
                "a range without a step is for --find; to sweep, write e.g. {from}..{to}:{}",
                (to - from) / 5.0
            )));
        }
        // handled before: there is no schedule
        Amounts::Max => return Err(Failure::usage("-R max cannot be combined with other rates")),
    };
    if !shares && let Some(rate) = values.iter().find(|rate| **rate > MOST_PER_S) {
        return Err(Failure::usage(format!(
            "no generator sends {rate} requests per second; give at most {MOST_PER_S:.0}"
        )));
    }
    let level = |value: &f64| match shares {
        true => Level::Share(*value),
        false => Level::Rate(*value),
    };
    Ok(values.iter().map(level).collect())
}

fn bounds(amounts: Option<(&Amounts, bool)>) -> Result<Bounds, Failure> {
    match amounts {
        None => Ok(Bounds::Shares(0.01, 1.0)),
        Some((Amounts::Between(from, to), true)) => Ok(Bounds::Shares(*from, *to)),
        Some((Amounts::Between(from, to), false)) => Ok(Bounds::Rates(*from, *to)),
        Some(_) => Err(Failure::usage(
            "--find searches between two loads: write -R 1k..100k or -u 5%..100%, without a step",
        )),
    }
}
