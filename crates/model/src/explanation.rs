//! Where the excess went, what would remove it, and how sure that is.
//!
//! Each nanosecond of a request's sojourn has exactly one [`Cause`]. The causes of its *excess* are
//! what remains after the comparison with the ideal queue and the ideal service. Shares are of the
//! excess, between 0 and 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::application::{ApplicationAt, ApplicationPart, ThreadActivity};
pub use crate::bursts::{BurstRoot, Clustering, SlowOperation, SlowRequests};
pub use crate::cause::{
    Cause, CauseInfo, Culprit, OTHER_THREADS, Origin, THIS_GENERATOR, THIS_TRACER, is_our_thread,
    nameless,
};
pub use crate::program::{Program, programs};
pub use crate::send_wait::SendWait;
pub use crate::share::Share;
pub use crate::stopped::ServerStop;
use crate::{Distribution, Monotonic, Nanos, Tid};

/// One cause, or one culprit of it, over the whole measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseShare {
    /// The cause.
    pub cause: Cause,
    /// Who or what; `None` for the cause as a whole. The causes as wholes come first and add
    /// up to all excess; their culprits follow, each a part of its cause.
    pub culprit: Option<Culprit>,
    /// Its share of all excess over the ideal.
    pub share: Share,
    /// Its share of the excess of the requests above p99 of the sojourn.
    pub excess_share_above_p99: Share,
    /// The excess itself, summed over the requests.
    pub excess_ns: Nanos,
    /// Requests that it delayed.
    pub requests: u64,
    /// How often it happened while a request waited: throttles, stays of a thread on the core, sleeps, slow
    /// services …, each counted once, however many requests it delayed. 0 for causes without a beginning and
    /// an end, such as receiving.
    pub events: u64,
    /// Mean length of these events themselves, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_event_ns: f64,
    /// Their median length, to 1.6 %; `None` without events.
    #[serde(default)]
    pub median_event_ns: Option<Nanos>,
    /// The longest of them; `None` without events.
    #[serde(default)]
    pub longest_event_ns: Option<Nanos>,
    /// The long ones, if few events take most of the time; `None` where no event stands out.
    #[serde(default)]
    pub long_events: Option<LongEvents>,
    /// Requests that an event delays on average: the amplification.
    #[schemars(range(min = 0))]
    pub requests_per_event: f64,
}

/// Events of a cause that are at least three times as long as its mean event, where these take at least half of
/// the time of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LongEvents {
    /// How many there are.
    pub events: u64,
    /// Their mean length in nanoseconds, to 1.6 %.
    #[schemars(range(min = 0))]
    pub mean_ns: f64,
}

/// What the excess of the requests between two percentiles of the sojourn consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// From this quantile of the sojourn …
    #[schemars(range(min = 0, max = 1))]
    pub from_q: f64,
    /// … to this one (1: the slowest).
    #[schemars(range(min = 0, max = 1))]
    pub to_q: f64,
    /// Requests in the band.
    pub requests: u64,
    /// Their mean sojourn, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_sojourn_ns: f64,
    /// Their mean ideal sojourn, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_ideal_ns: f64,
    /// Each cause's part of the mean excess; they sum to mean sojourn − mean ideal.
    pub parts: Vec<BandPart>,
}

/// One cause's part of a band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BandPart {
    /// The cause.
    pub cause: Cause,
    /// Its mean excess per request of the band, in nanoseconds; negative where the server
    /// beat the ideal in it.
    pub mean_excess_ns: f64,
    /// Its share of the band's excess.
    pub share: Share,
}

/// Measured ÷ ideal at a percentile, and what makes it more than 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DividedRatio {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// This quantile of the measured sojourn ÷ that of the ideal one; of `ideal.own_work` where that is the base.
    #[schemars(range(min = 0))]
    pub ratio: f64,
    /// What it consists of besides the ideal, the largest part first; the parts sum to the ratio − 1.
    pub parts: Vec<RatioPart>,
}

/// A part of a [`DividedRatio`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioPart {
    /// What it is: `wake-ups and idle exits`.
    pub what: String,
    /// The causes that it sums up; none: the probe.
    pub causes: Vec<Cause>,
    /// How much of the ratio it makes; negative where the server beat the ideal in it.
    pub value: f64,
}

/// How well the replayed queue reproduces what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFit {
    /// The queue that was replayed: `1 worker, FIFO by T2, 3 kinds of absence`.
    pub model: String,
    /// The largest relative error over the points.
    pub largest_error: f64,
    /// The points, p50 … p99.9, as far as the sample supports them.
    pub points: Vec<FitPoint>,
    /// The largest error at which a percentile has forecasts ([`MOST_FIT_ERROR`]).
    pub largest_borne: f64,
    /// The fit is as good as that of a queue which is known ([`good_fit_error`]) at all points. Otherwise the
    /// intervals of the forecasts are wider by the error.
    pub good: bool,
}

impl ModelFit {
    /// The relative error at a quantile; the largest one if it was not compared there.
    pub fn error_at(&self, q: f64) -> f64 {
        let mut points = self.points.iter();
        let known = points.find(|point| point.q == q);
        known.map_or(self.largest_error, |point| point.error)
    }

    /// Whether the replay is good enough at a quantile to forecast it.
    pub fn bears(&self, q: f64) -> bool {
        self.error_at(q).abs() <= self.largest_borne
    }
}

/// A replay that misses a percentile by more than this supports no forecast of it. The interval of a forecast is
/// wider by the error: beyond a third, hardly any change could be told from none.
pub const MOST_FIT_ERROR: f64 = 1.0 / 3.0;

/// A good replay misses no percentile by more than this: 5 % for one worker, whose queue is known exactly,
/// 15 % for several, among which the scheduler chooses.
pub const fn good_fit_error(workers: usize) -> f64 {
    if workers <= 1 { 0.05 } else { 0.15 }
}

/// One percentile, measured and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FitPoint {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// As measured.
    pub measured_ns: Nanos,
    /// As replayed.
    pub replayed_ns: Nanos,
    /// replayed ÷ measured − 1.
    pub error: f64,
}

/// What the sojourn would be without a cause, or with a mitigation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// What is changed: `without background`, `rt-priority`.
    pub change: String,
    /// In words: `the server's threads under SCHED_FIFO`.
    pub description: String,
    /// The command that would do it; `None` for a mere what-if.
    pub command: Option<String>,
    /// The causes that it removes.
    pub removes: Vec<Cause>,
    /// What it costs: `one core serves interrupts only: 3 workers instead of 4`.
    pub cost: Option<String>,
    /// p50, p99, p99.9, as far as the sample supports them.
    pub points: Vec<PredictedPoint>,
}

/// One percentile, now and predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedPoint {
    /// The quantile.
    #[schemars(range(min = 0, max = 1))]
    pub q: f64,
    /// As measured.
    pub measured_ns: Nanos,
    /// As predicted.
    pub predicted_ns: Nanos,
    /// Lower end of the prediction's interval, the model's own error included.
    pub lo_ns: Option<Nanos>,
    /// Upper end.
    pub hi_ns: Option<Nanos>,
}

/// A sentence with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// A name for scripts, where it has one: `sleeping_and_waking`, or the key of the verdict's warning about the
    /// same thing (`overload`). What is about a cause is known by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What was found, one or a few sentences, with figures and units.
    pub text: String,
    /// What to do next: a command, or what to measure.
    pub advice: Option<String>,
    /// The cause that it is about.
    pub cause: Option<Cause>,
    /// The evidence does not decide.
    pub inconclusive: bool,
}

/// Requests that were overtaken, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inversions {
    /// Requests that a later one overtook.
    pub overtaken: u64,
    /// Their share of all requests.
    pub share: f64,
    /// The pairs of workers with the most (who overtook, who was overtaken, how often).
    pub pairs: Vec<(Tid, Tid, u64)>,
}

/// One worker of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerShare {
    /// The thread; 0 for all threads together that have no entry of their own, since there were thousands.
    pub tid: Tid,
    /// The thread's name (`comm`).
    pub name: String,
    /// Requests that it served.
    pub requests: u64,
    /// Share of the measurement in which it was busy with requests; that of several threads is the sum of theirs.
    #[schemars(range(min = 0))]
    pub busy_share: f64,
    /// Mean sojourn of its requests, in nanoseconds.
    #[schemars(range(min = 0))]
    pub mean_sojourn_ns: f64,
}

/// A stretch of a slow request with one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// When it began, in nanoseconds after T1.
    pub from_ns: Nanos,
    /// How long it was.
    pub lasted_ns: Nanos,
    /// Why.
    pub cause: Cause,
    /// Who or what caused it.
    pub culprit: Option<Culprit>,
    /// The delay happened to another request, behind which this one waited.
    pub inherited: bool,
}

/// What one CPU did for a while during a slow request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Which CPU.
    pub cpu: u16,
    /// When it began, in nanoseconds after T1.
    pub from_ns: Nanos,
    /// How long it lasted.
    pub lasted_ns: Nanos,
    /// The thread, interrupt or softirq; `None` if the CPU was idle.
    pub who: Option<Culprit>,
}

/// One of the slowest requests in detail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequest {
    /// T1, nanoseconds since boot.
    pub t1: Monotonic,
    /// The client's port; 0 where it is not known.
    pub port: u16,
    /// T6 − T1.
    pub sojourn_ns: Nanos,
    /// Its sojourn in the ideal queue; `None` where the comparison with it was withdrawn.
    pub ideal_ns: Option<Nanos>,
    /// T2 … T6 as times after T1; `None` where a stamp is missing.
    pub stamps_ns: [Option<Nanos>; 5],
    /// The worker that served it.
    pub worker: Option<Culprit>,
    /// The stretches, in order; their lengths sum to the sojourn.
    pub stretches: Vec<Stretch>,
    /// Stretches that were joined to the one before ([`SlowRequest::shorten`]).
    pub joined_stretches: u64,
    /// What the server's CPUs did meanwhile.
    pub activities: Vec<Activity>,
    /// Activities that were left out ([`SlowRequest::shorten`]).
    pub omitted_activities: u64,
}

impl SlowRequest {
    /// Keeps at most this many stretches, and this many activities of each CPU: the longest ones. A
    /// stretch that is removed is joined to the one before it, so that the lengths still sum to
    /// the sojourn; an activity that is removed leaves a gap. Both are counted.
    pub fn shorten(&mut self, stretches: usize, activities: usize) {
        self.joined_stretches += join(&mut self.stretches, stretches);
        let of = |i: &usize| &self.activities[*i];
        let before = self.activities.len();
        let mut order: Vec<usize> = (0..before).collect();
        order.sort_by_key(|i| (of(i).cpu, std::cmp::Reverse(of(i).lasted_ns)));
        let mut kept = vec![false; before];
        for of_cpu in order.chunk_by(|a, b| of(a).cpu == of(b).cpu) {
            of_cpu.iter().take(activities).for_each(|&i| kept[i] = true);
        }
        let mut kept = kept.into_iter();
        self.activities.retain(|_| kept.next() == Some(true));
        self.omitted_activities += (before - self.activities.len()) as u64;
    }
}

/// Joins the shortest stretches to the ones before them until at most `most` are left; returns how
/// many were joined.
fn join(stretches: &mut Vec<Stretch>, most: usize) -> u64 {
    join_shortest(stretches, most, |next, last, shortest| {
        let same = next.cause == last.cause
            && next.culprit == last.culprit
            && next.inherited == last.inherited;
        let joined = same || next.lasted_ns < shortest;
        if joined {
            last.lasted_ns += next.lasted_ns;
        }
        joined
    })
}

/// Joins neighbours until at most `most` (but at least 1) are left; returns how many were joined.
/// `join(next, last, length)` merges `next` into `last` if both are of one kind or `next` is shorter
/// than `length`, and says whether it did. First all neighbours of one kind are joined, then the
/// shortest, no more than necessary: `length` doubles after each pass over the pieces.
pub fn join_shortest<T>(
    pieces: &mut Vec<T>,
    most: usize,
    mut join: impl FnMut(&mut T, &mut T, Nanos) -> bool,
) -> u64 {
    let before = pieces.len();
    let most = most.max(1);
    if before > most {
        pieces.dedup_by(|next, last| join(next, last, Nanos::ZERO));
    }
    let mut shortest = Nanos::new(100);
    while pieces.len() > most {
        let mut too_many = pieces.len() - most;
        pieces.dedup_by(|next, last| {
            let joined = too_many > 0 && join(next, last, shortest);
            too_many -= usize::from(joined);
            joined
        });
        shortest += shortest;
    }
    (before - pieces.len()) as u64
}

/// How many requests were how slow, over time: the question of Figure 12 of Deconstructing
/// the Tail at Scale Effect (bursts, or single events?).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeatMap {
    /// The width of a column.
    pub column_ns: Nanos,
    /// The lower edges of the rows, in order; the last row is open above.
    pub row_edges_ns: Vec<Nanos>,
    /// Requests in each cell: one list of rows for each column, in order of time.
    pub counts: Vec<Vec<u64>>,
}

/// What the hypervisor took of the CPUs on which the server's threads ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TakenByHypervisor {
    /// Share of the measurement's time that it took.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
    /// How often it took a CPU.
    pub stalls: u64,
    /// When it took far more than usual, in order of time.
    pub spells: Vec<HypervisorSpell>,
}

/// A time in which the hypervisor took far more of the server's CPUs than usual.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HypervisorSpell {
    /// When it began, since the start of the measurement.
    pub from_ns: Nanos,
    /// How long it lasted.
    pub length_ns: Nanos,
    /// Stalls in it.
    pub stalls: u64,
    /// The share of it that they took.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
}

/// How often the server's workers fell asleep for want of work, and what it took to wake them. Nothing of it
/// depends on t.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sleeping {
    /// Wake-ups of workers per second, all workers together.
    #[schemars(range(min = 0))]
    pub wakes_per_s: f64,
    /// Wake-ups per request.
    #[schemars(range(min = 0))]
    pub wakes_per_request: f64,
    /// Share of the requests whose worker slept, or was on its way, when they reached their socket.
    #[schemars(range(min = 0, max = 1))]
    pub found_asleep_share: f64,
    /// Median T2 to T3 of those requests; `None` where there are none.
    pub wait_asleep_ns: Option<Nanos>,
    /// Median T2 to T3 of the others, which wait for their turn.
    pub wait_awake_ns: Option<Nanos>,
    /// Of the requests around p50 of the sojourn: the mean time in which CPUs left idle states and workers
    /// were woken (`idle_exit`, `wakeup`), in nanoseconds.
    #[schemars(range(min = 0))]
    pub at_p50_ns: f64,
    /// The same as a share of their sojourn.
    #[schemars(range(min = 0, max = 1))]
    pub share_of_p50: f64,
    /// CPU time of a sleep with its wake-up, in nanoseconds: what a worker's stay on its CPU with one request
    /// takes, less what each further request adds. `None` where stays with one or with several are few.
    #[schemars(range(min = 0))]
    pub cpu_ns_each: Option<f64>,
    /// The same as a share of the workers' own CPU time.
    #[schemars(range(min = 0, max = 1))]
    pub cpu_share: Option<f64>,
}

/// Another server that this one asks over TCP, and how long it takes to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamAnswers {
    /// Its address and port, with the program if it runs on the same machine.
    pub server: String,
    /// From when a question was written to its connection until the first data of the answer was there.
    pub answers: Distribution,
}

impl UpstreamAnswers {
    /// How long all questions together took, in nanoseconds.
    pub fn total_ns(&self) -> f64 {
        self.answers.count as f64 * self.answers.mean.unwrap_or(0.0)
    }
}

/// The latency of a user who waits for the slowest of several such servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOut {
    /// Servers asked at once.
    pub servers: u32,
    /// Median over users; `None` where the sample does not support it.
    pub p50_ns: Option<Nanos>,
    /// 99th percentile over users.
    pub p99_ns: Option<Nanos>,
}

/// A curve to compare with the measured one: points (x, P(sojourn ≥ x)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedCurve {
    /// `multi_queue_ideal`, `ideal_without_probe`, `replayed`, or the change of a [`Prediction`].
    pub name: String,
    /// x in nanoseconds, and the share of requests at least that slow.
    pub points: Vec<(Nanos, f64)>,
}

/// Everything that explains a measured distribution besides its causes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The composition of the excess, from the fast requests to the slowest.
    pub bands: Vec<Band>,
    /// The same of the requests around p50, p99 and p99.9 of the sojourn: those that took about as long.
    #[serde(default)]
    pub around: Vec<Band>,
    /// What the server did between T4 and T5 of the requests around p50, p99 and p99.9.
    #[serde(default)]
    pub application: Vec<ApplicationAt>,
    /// What to tell a person, the most important first.
    pub findings: Vec<Finding>,
    /// Who overtook whom.
    pub inversions: Inversions,
    /// The workers.
    pub workers: Vec<WorkerShare>,
    /// The slowest requests, the slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Latency over time.
    pub heat_map: HeatMap,
    /// Bursts or single events; `None` with too few slow requests.
    pub clustering: Option<Clustering>,
    /// How many bursts of slow requests there were, where their roots are known.
    #[serde(default)]
    pub bursts: u64,
    /// What these bursts began with, the most frequent first.
    #[serde(default)]
    pub burst_roots: Vec<BurstRoot>,
    /// Requests that themselves take far longer than the others; `None` where there are none.
    #[serde(default)]
    pub slow_requests: Option<SlowRequests>,
    /// What the hypervisor took of the server's CPUs; `None` where it was not seen to take anything.
    #[serde(default)]
    pub hypervisor: Option<TakenByHypervisor>,
    /// How often workers slept, and what waking them took; `None` where none was seen to be woken.
    #[serde(default)]
    pub sleeping: Option<Sleeping>,
    /// The servers that this one asks, the one that took longest in all first; none where that was not stamped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<UpstreamAnswers>,
    /// The latency of the slowest of many servers.
    pub fan_out: Vec<FanOut>,
    /// Curves to draw.
    pub curves: Vec<NamedCurve>,
    /// What was recorded and what could not be, in words: the kinds of disturbance that were
    /// off or refused, and what therefore is charged to `unexplained`.
    pub limits: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pieces: u64) -> SlowRequest {
        let causes = [Cause::Service, Cause::Softirq, Cause::Wakeup];
        SlowRequest {
            t1: Monotonic::from_nanos_since_boot(1),
            port: 1,
            sojourn_ns: Nanos::new(50 * pieces),
            ideal_ns: Some(Nanos::new(1)),
            stamps_ns: [None; 5],
            worker: None,
            stretches: (0..pieces)
                .map(|i| Stretch {
                    from_ns: Nanos::new(50 * i),
                    lasted_ns: Nanos::new(50),
                    cause: causes[i as usize % 3],
                    culprit: None,
                    inherited: false,
                })
                .collect(),
            joined_stretches: 0,
            activities: (0..2 * pieces)
                .map(|i| Activity {
                    cpu: (i % 2) as u16,
                    from_ns: Nanos::new(50 * i),
                    lasted_ns: Nanos::new(1 + i),
                    who: None,
                })
                .collect(),
            omitted_activities: 0,
        }
    }

    #[test]
    fn a_short_account_keeps_the_length_and_the_longest_activities() {
        let whole = request(1_000);
        let mut short = whole.clone();
        short.shorten(24, 12);
        assert_eq!(short.stretches.len(), 24);
        let total: Nanos = short
            .stretches
            .iter()
            .map(|stretch| stretch.lasted_ns)
            .sum();
        assert_eq!(total, whole.sojourn_ns);
        let mut end = Nanos::ZERO;
        for stretch in &short.stretches {
            assert_eq!(stretch.from_ns, end);
            end += stretch.lasted_ns;
        }
        assert_eq!(short.joined_stretches, 1_000 - 24);
        assert_eq!(short.activities, whole.activities[2_000 - 24..]);
        assert_eq!(short.omitted_activities, 2_000 - 24);

        let few = request(9);
        let mut same = few.clone();
        same.shorten(24, 12);
        assert_eq!(same, few);
    }

    #[test]
    fn the_longest_stretches_stay_and_those_of_one_kind_go_first() {
        let mut stretches = request(100).stretches;
        let long = |stretch: &Stretch| stretch.lasted_ns >= Nanos::from_micros(5);
        for stretch in stretches.iter_mut().skip(4).step_by(5) {
            stretch.lasted_ns = Nanos::from_micros(5);
        }
        assert_eq!(join(&mut stretches, 30), 70);
        assert_eq!(stretches.iter().filter(|stretch| long(stretch)).count(), 20);

        // ten of one kind are nine too many, so that nothing else has to go
        for stretch in &mut stretches[..10] {
            (stretch.cause, stretch.lasted_ns) = (Cause::Order, Nanos::from_millis(1));
        }
        let others = stretches[10..].to_vec();
        assert_eq!(join(&mut stretches, 29), 9);
        assert_eq!(stretches[0].lasted_ns, Nanos::from_millis(10));
        assert_eq!(stretches[1..], others);
        assert_eq!(join(&mut stretches, 0), 20);
        assert_eq!(stretches.len(), 1);
    }
}
