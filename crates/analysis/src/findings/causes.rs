//! Which causes make the tail, which culprits, and what would remove them.

use taillab_model::Nanos;
use taillab_model::explanation::{
    Cause, CauseShare, Finding, LongEvents, PredictedPoint, Prediction, SlowRequests, programs,
};

use super::bursts;
use super::facts::{Facts, NOTABLE, WholePercent, conclusive, inconclusive, list};
use crate::fmt::{Count, Counted, Percentile};

/// The largest number of programs that a sentence names.
const NAMED: usize = 2;

/// A program with a smaller part of its cause is not named, unless it is the largest.
const NAMED_PART: f64 = 0.1;

/// Those that are not named are mentioned where they have at least this part of the cause together.
const MENTIONED_PART: f64 = 0.05;

/// The longest event is told if it is so many times as long as the mean of the events that are told before it.
const MUCH_LONGER: f64 = 3.0;

/// A mitigation that leaves a larger share of the percentile is not advised.
const WORTH_TRYING: f64 = 0.95;

/// A sentence for each cause with a notable share of the excess above p99, the largest first. Causes that
/// may be chance follow together.
pub(super) fn main_causes(facts: &Facts<'_>) -> Vec<Finding> {
    // who delayed requests is known without an ideal, too; a tail that is shorter than the ideal has no cause
    if (facts.tail()).is_some_and(|tail| tail.measured <= tail.ideal) {
        return Vec::new();
    }
    let have_own_findings = [Cause::Unexplained, Cause::Unobserved];
    let above = |share: &&CauseShare| share.excess_share_above_p99;
    let mut wholes: Vec<&CauseShare> = (facts.server.causes.iter())
        .filter(|share| share.culprit.is_none() && !have_own_findings.contains(&share.cause))
        .filter(|share| above(share).value >= NOTABLE)
        .collect();
    wholes.sort_by(|a, b| above(b).value.total_cmp(&above(a).value));
    let (doubtful, sure): (Vec<_>, Vec<_>) =
        (wholes.into_iter()).partition(|share| above(share).is_in_doubt());
    let mut findings: Vec<Finding> = (sure.into_iter())
        .map(|whole| finding(facts, whole))
        .collect();
    // what each burst began with is known, even if their shares of the time are not
    let of_bursts = bursts::roots(facts).filter(|_| !doubtful.is_empty());
    findings.extend(of_bursts.or_else(|| chance(facts, &doubtful)));
    findings
}

fn finding(facts: &Facts<'_>, whole: &CauseShare) -> Finding {
    let share = WholePercent(whole.excess_share_above_p99.value).to_string();
    let of_slow = slow_requests(facts, &share).filter(|_| whole.cause == Cause::SlowService);
    let mut text = of_slow.unwrap_or_else(|| sentence(facts, whole, &share));
    let best = best(&facts.server.predictions, &[whole.cause], None);
    if let Some((prediction, point)) = best {
        text += &forecast(prediction, point);
    }
    text.push('.');
    let command = best.and_then(|(prediction, _)| prediction.command.clone());
    let advice = command.or_else(|| advice(facts, whole).map(str::to_owned));
    conclusive(text, advice, Some(whole.cause))
}

/// What to do about a cause: its largest culprit may say it better.
fn advice(facts: &Facts<'_>, whole: &CauseShare) -> Option<&'static str> {
    let above = |share: &CauseShare| share.excess_share_above_p99.value;
    let of_cause = (facts.server.causes.iter()).filter(|share| share.cause == whole.cause);
    let named = of_cause.filter_map(|share| Some((share, share.culprit.as_ref()?)));
    let chief = named.max_by(|a, b| above(a.0).total_cmp(&above(b.0)));
    let own = chief.and_then(|(_, culprit)| culprit.advice());
    own.or(whole.cause.info().advice)
}

/// Requests that take far longer than the others, and whom they delayed.
fn slow_requests(facts: &Facts<'_>, share: &str) -> Option<String> {
    let slow = facts.explanation.slow_requests.as_ref()?;
    let delayed = match slow.delayed {
        0 => String::new(),
        n => format!(
            ", delayed {} by {} on average",
            Counted(n, "other", "others"),
            slow.mean_delay_ns
        ),
    };
    Some(format!(
        "{} whose own work takes {} (that of the others {}){delayed}, {share} {}",
        who_was_slow(slow),
        slow.mean_own_ns,
        slow.others_own_ns,
        facts.above_p99()
    ))
}

/// `` 12 × `EVALSHA` ``, `` 12 × `EVALSHA`, 3 × `KEYS` and 4 others ``, or `12 requests`.
fn who_was_slow(slow: &SlowRequests) -> String {
    let (named, more) = slow.operations.split_at(slow.operations.len().min(NAMED));
    if named.is_empty() {
        return Counted(slow.requests, "request", "requests").to_string();
    }
    let told: u64 = named.iter().map(|operation| operation.requests).sum();
    let others = slow.requests.saturating_sub(told);
    let mut parts: Vec<String> = (named.iter())
        .map(|operation| format!("{} × `{}`", Count(operation.requests), operation.name))
        .collect();
    if others > 0 || !more.is_empty() {
        parts.push(Counted(others, "other", "others").to_string());
    }
    list(&parts)
}

/// A few bursts made many requests slow: another run may not have them.
fn chance(facts: &Facts<'_>, doubtful: &[&CauseShare]) -> Option<Finding> {
    let (largest, more) = doubtful.split_first()?;
    let share = largest.excess_share_above_p99;
    let most = WholePercent(share.hi.unwrap_or(share.value));
    let share = format!("{} (0 to {most})", WholePercent(share.value));
    let mut text = sentence(facts, largest, &share);
    text += "; too few bursts to be sure of it";
    if !more.is_empty() {
        let more = Counted(more.len() as u64, "other cause", "other causes");
        text += &format!(", or of {more}");
    }
    text.push('.');
    let advice = "Measure for longer (-d).";
    Some(inconclusive(text, advice, Some(largest.cause)))
}

/// What it was, how often, how long, how many requests, and its share of the tail: `` `dpkg` on the core: 212
/// times, 2.10 ms each, delayed 40,280 requests, 93 % of the excess above p99 ``.
fn sentence(facts: &Facts<'_>, whole: &CauseShare, share: &str) -> String {
    let culprits = Culprits::of(&facts.server.causes, whole);
    let what = whole.cause.blame(&list(&culprits.names));
    // not every cause has a place for names
    let times = match what == whole.cause.blame("") {
        true => Times::of([whole].into_iter()),
        false => culprits.times,
    };
    let mut parts = happened(whole, times);
    parts.push(format!("{share} {}", facts.above_p99()));
    format!("{}: {}", capitalised(&what), parts.join(", "))
}

/// How often it happened, for how long, and how many requests it delayed: events and requests are never mixed. Where
/// `times` are only those of the programs that are named, the number of all is told, as the tables have it.
fn happened(whole: &CauseShare, times: Times) -> Vec<String> {
    let nanos = |ns: f64| Nanos::new(ns.round() as u64);
    let requests = Counted(whole.requests, "request", "requests");
    let delayed = format!("delayed {requests}");
    let each = nanos(times.mean_ns);
    let much_longer = |longest: &Nanos| longest.get() as f64 >= MUCH_LONGER * times.mean_ns;
    let upto = match (times.long, times.longest.filter(much_longer)) {
        (Some(LongEvents { events: 1, mean_ns }), _) => format!(" (once {})", nanos(mean_ns)),
        (Some(long), longest) => {
            let much_longer = |longest: &Nanos| longest.get() as f64 >= MUCH_LONGER * long.mean_ns;
            let upto = longest.filter(much_longer);
            let upto = upto.map_or_else(String::new, |longest| format!(", up to {longest}"));
            let (n, each) = (Count(long.events), nanos(long.mean_ns));
            format!(" ({n} of them {each}{upto})")
        }
        (None, Some(longest)) => format!(" (up to {longest})"),
        (None, None) => String::new(),
    };
    match times.n {
        0 if whole.requests == 0 => Vec::new(),
        // what has no beginning and no end
        0 => {
            let each = nanos(whole.excess_ns.get() as f64 / whole.requests as f64);
            vec![format!("{delayed} by {each} each")]
        }
        n if n < whole.events => vec![
            format!("{} of {} times", Count(n), Count(whole.events)),
            format!("{each} each{upto}"),
            delayed,
        ],
        1 => vec![format!("once, for {each}"), delayed],
        n => vec![
            format!("{} times", Count(n)),
            format!("{each} each{upto}"),
            delayed,
        ],
    }
}

/// How often something happened, and for how long.
#[derive(Clone, Copy)]
struct Times {
    n: u64,
    mean_ns: f64,
    longest: Option<Nanos>,
    long: Option<LongEvents>,
}

impl Times {
    fn of<'s>(shares: impl Iterator<Item = &'s CauseShare>) -> Self {
        let (mut n, mut sum_ns, mut longest) = (0, 0.0, None);
        // that some of one culprit are long says nothing of those of another
        let (mut long, mut culprits) = (None, 0);
        for share in shares {
            n += share.events;
            sum_ns += share.events as f64 * share.mean_event_ns;
            longest = longest.max(share.longest_event_ns);
            long = share.long_events;
            culprits += 1;
        }
        Self {
            n,
            mean_ns: sum_ns / n.max(1) as f64,
            longest,
            long: long.filter(|_| culprits == 1),
        }
    }
}

/// The programs with the largest parts of a cause.
struct Culprits {
    /// `` `kworker/0:1` `` and `` `dpkg` ``, or the first and `3 others`.
    names: Vec<String>,
    /// Theirs, where they make up the cause; else of the cause as a whole. Many short times of others would say
    /// nothing of those that made the tail.
    times: Times,
}

impl Culprits {
    fn of(causes: &[CauseShare], whole: &CauseShare) -> Self {
        let above = |share: &CauseShare| share.excess_share_above_p99.value;
        let of_cause = causes.iter().filter(|share| share.cause == whole.cause);
        let parts = of_cause.clone();
        let parts = parts.filter_map(|share| Some((share.culprit.as_ref()?, above(share))));
        let found = programs(parts);
        let is_large = |part: f64| part >= NAMED_PART * above(whole);
        let large = found.iter().take(NAMED).skip(1);
        let large = large.filter(|program| is_large(program.part)).count();
        let (named, others) = found.split_at(found.len().min(1 + large));
        let mut names: Vec<String> = named.iter().map(|program| program.called("`")).collect();
        let rest: f64 = others.iter().map(|program| program.part).sum();
        let is_whole = others.is_empty() || rest < MENTIONED_PART * above(whole);
        if !is_whole {
            let others = found.len() as u64 - 1;
            names.truncate(1);
            names.push(Counted(others, "other", "others").to_string());
        }
        let is_named = |share: &&CauseShare| {
            let culprit = share.culprit.as_ref();
            culprit.is_some_and(|culprit| named.iter().any(|program| program.contains(culprit)))
        };
        let times = match is_whole {
            true => Times::of(of_cause.filter(is_named)),
            false => Times::of([whole].into_iter()),
        };
        Self { names, times }
    }
}

/// The sentence with a large letter at its beginning.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// `` ; p99.9 with `rt-priority`: 130 µs ``. The intervals are with the forecasts; here it matters only
/// whether the change helps at all.
pub(super) fn forecast(prediction: &Prediction, point: &PredictedPoint) -> String {
    let (change, percentile) = (&prediction.change, Percentile(point.q));
    match (point.lo_ns, point.hi_ns) {
        (Some(lo), Some(hi)) if hi >= point.measured_ns => {
            format!("; `{change}` may help ({percentile} {lo} to {hi})")
        }
        _ => format!("; {percentile} with `{change}`: {}", point.predicted_ns),
    }
}

/// The highest percentile that is surely lower than measured.
fn highest_sure(points: &[PredictedPoint]) -> Option<&PredictedPoint> {
    let is_sure = |point: &&PredictedPoint| point.hi_ns.is_some_and(|hi| hi < point.measured_ns);
    points.iter().rfind(is_sure)
}

/// The mitigation of one of these causes with the lowest forecast, if it is worth its cost: at this percentile, or
/// else at the highest one at which it surely helps, or else at the highest one that has a forecast.
pub(super) fn best<'a>(
    predictions: &'a [Prediction],
    causes: &[Cause],
    q: Option<f64>,
) -> Option<(&'a Prediction, &'a PredictedPoint)> {
    let treats = |prediction: &&Prediction| {
        let mut removes = prediction.removes.iter();
        removes.any(|cause| causes.contains(cause))
    };
    // a mitigation has a cost, a what-if has none
    let mitigations = (predictions.iter())
        .filter(|prediction| prediction.cost.is_some())
        .filter(treats);
    let worth_trying = mitigations.filter_map(|prediction| {
        let points = &prediction.points;
        let point = match q {
            Some(q) => points.iter().find(|point| point.q == q)?,
            None => highest_sure(points).or(points.last())?,
        };
        let most = point.measured_ns.get() as f64 * WORTH_TRYING;
        (point.predicted_ns.get() as f64 <= most).then_some((prediction, point))
    });
    worth_trying.min_by_key(|(_, point)| point.predicted_ns)
}
