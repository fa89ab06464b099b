//! Sentences and selections of an explanation, for the terminal and the page.

use taillab_model::explanation::{
    Band, Cause, CauseShare, Clustering, Culprit, Explanation, FanOut, Inversions, ModelFit,
    NamedCurve, Share, SlowRequest, Stretch, programs,
};
use taillab_model::summary::{ClaimName, Verdict};
use taillab_model::{Nanos, Tid};

use crate::document::SharedOut;
use crate::figures::{count, counted, percent, quantile_name};

/// The quantiles of the forecasts.
pub(crate) const FORECAST: [f64; 3] = [0.5, 0.99, 0.999];

/// Shown if nothing is explained.
pub(crate) const NOT_EXPLAINED: &str = "There are no causes, forecasts and timelines: the \
                                        recording does not contain what the server’s CPUs did. To \
                                        get them, record without --disturbances none or --stamps \
                                        ends.";

/// Smaller shares would read 0.0 % and get no row.
pub(crate) const LEAST_IN_TABLE: f64 = 0.0005;

/// A part of the composition with a colour in its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One cause.
    Cause(Cause),
    /// All causes that are too small for a colour.
    Others,
}

impl Part {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Cause(cause) => cause.label(),
            Self::Others => "all others",
        }
    }
}

/// The composition of the excess, with few enough parts to distinguish their colours.
#[derive(Clone, Debug)]
pub(crate) struct Composition<'a> {
    pub(crate) bands: &'a [Band],
    /// The largest first, then `unexplained`, then the others.
    pub(crate) parts: Vec<Part>,
}

impl<'a> Composition<'a> {
    /// With at most `most` causes, not counting `unexplained` and the others; `None` without a band
    /// that has an excess.
    pub(crate) fn of(bands: &'a [Band], most: usize) -> Option<Self> {
        /// Less than this in every band is not worth a colour.
        const LEAST: f64 = 0.005;
        // the weight of a cause among fast requests, where it matters less
        const FAST: f64 = 0.25;
        let largest = |cause: Cause| {
            let of = |band: &Band| {
                let weight = if band.from_q > 0.0 { 1.0 } else { FAST };
                weight * band_share(band, |c| c == cause)
            };
            bands.iter().map(of).fold(0.0, f64::max)
        };
        let mut causes: Vec<(Cause, f64)> = (Cause::ALL.into_iter())
            .filter(|cause| *cause != Cause::Unexplained)
            .map(|cause| (cause, largest(cause)))
            .filter(|(_, share)| *share >= LEAST)
            .collect();
        causes.sort_by(|a, b| b.1.total_cmp(&a.1));
        // what limits the explanation itself must stay visible
        causes.sort_by_key(|(cause, _)| !matches!(cause, Cause::Unobserved | Cause::Hypervisor));
        causes.truncate(most);
        causes.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut parts: Vec<Part> = (causes.iter())
            .map(|(cause, _)| Part::Cause(*cause))
            .collect();
        parts.push(Part::Cause(Cause::Unexplained));
        let bands_have_more = bands
            .iter()
            .flat_map(|band| &band.parts)
            .any(|part| !parts.contains(&Part::Cause(part.cause)) && part.mean_excess_ns != 0.0);
        if bands_have_more {
            parts.push(Part::Others);
        }
        let any = bands
            .iter()
            .any(|band| band.parts.iter().any(|part| part.mean_excess_ns > 0.0));
        any.then_some(Self { bands, parts })
    }

    fn is_in(&self, part: Part, cause: Cause) -> bool {
        match part {
            Part::Cause(own) => own == cause,
            Part::Others => !self.parts.contains(&Part::Cause(cause)),
        }
    }

    /// The part's mean excess per request of the band, in nanoseconds.
    pub(crate) fn mean_excess_ns(&self, band: &Band, part: Part) -> f64 {
        let own = band.parts.iter().filter(|p| self.is_in(part, p.cause));
        own.map(|p| p.mean_excess_ns).sum()
    }

    /// The part's share of the band's excess.
    pub(crate) fn share(&self, band: &Band, part: Part) -> f64 {
        band_share(band, |cause| self.is_in(part, cause))
    }

    /// The share with its interval; `None` unless the part is a single cause that has an interval.
    pub(crate) fn interval(&self, band: &Band, part: Part) -> Option<Share> {
        let Part::Cause(cause) = part else {
            return None;
        };
        let own = band.parts.iter().find(|p| p.cause == cause)?;
        own.share.lo.zip(own.share.hi).map(|_| own.share)
    }

    /// Lengths to draw, between 0 and 1, which sum to at most 1. A part in which the server beat the
    /// ideal has length 0.
    pub(crate) fn drawn(&self, band: &Band) -> Vec<(Part, f64)> {
        let positive = |part: &Part| self.mean_excess_ns(band, *part).max(0.0);
        let total: f64 = self.parts.iter().map(positive).sum();
        let share = |part: &Part| match total > 0.0 {
            true => positive(part) / total,
            false => 0.0,
        };
        (self.parts.iter())
            .map(|part| (*part, share(part)))
            .collect()
    }
}

fn band_share(band: &Band, is_own: impl Fn(Cause) -> bool) -> f64 {
    let own = band.parts.iter().filter(|part| is_own(part.cause));
    own.map(|part| part.share.value).sum()
}

/// `up to p90`, `p90–p99`, `above p99.9`.
pub(crate) fn band_name(band: &Band) -> String {
    match (band.from_q <= 0.0, band.to_q >= 1.0) {
        (true, true) => "all requests".to_owned(),
        (true, false) => format!("up to {}", quantile_name(band.to_q)),
        (false, true) => format!("above {}", quantile_name(band.from_q)),
        (false, false) => {
            format!(
                "{}–{}",
                quantile_name(band.from_q),
                quantile_name(band.to_q)
            )
        }
    }
}

/// Mean sojourn − mean ideal of a band.
pub(crate) fn band_excess_ns(band: &Band) -> f64 {
    band.mean_sojourn_ns - band.mean_ideal_ns
}

/// Each cause by its culprits, or as a whole where no culprit is known, the largest part of
/// the tail first. What adds nothing to the excess of any request is left out.
pub(crate) fn culprits(causes: &[CauseShare]) -> Vec<&CauseShare> {
    let named = |cause: Cause| {
        causes
            .iter()
            .any(|share| share.cause == cause && share.culprit.is_some())
    };
    let mut rows: Vec<&CauseShare> = causes
        .iter()
        .filter(|share| share.culprit.is_some() || !named(share.cause))
        .filter(|share| share.excess_ns > Nanos::ZERO || share.requests > 0)
        .collect();
    rows.sort_by(|a, b| {
        (b.excess_share_above_p99.value)
            .total_cmp(&a.excess_share_above_p99.value)
            .then(b.share.value.total_cmp(&a.share.value))
    });
    rows
}

/// `other threads on the core: kworker/0:1 (pid 12)`.
pub(crate) fn cause_and_culprit(cause: Cause, culprit: Option<&Culprit>) -> String {
    match culprit {
        Some(culprit) => format!("{}: {culprit}", cause.label()),
        None => cause.label().to_owned(),
    }
}

/// Why a stretch of a request took its time. When the comparison with the ideal is withdrawn,
/// queueing and service lose the word "ideal": the service time behind it does not hold.
pub(crate) fn stretch_reason(request: &SlowRequest, stretch: &Stretch) -> String {
    let reason = cause_and_culprit(stretch.cause, stretch.culprit.as_ref());
    match (request.ideal_ns, reason.strip_prefix("ideal ")) {
        (None, Some(rest)) => rest.to_owned(),
        _ => reason,
    }
}

/// `other threads on the core: 11 processes named sh, dpkg (pid 40) and 3 others`: the largest programs first, until
/// they make up most of the cause.
pub(crate) fn cause_and_chief_culprits(cause: Cause, causes: &[CauseShare]) -> String {
    /// Programs that are named.
    const NAMED: usize = 2;
    /// A program with less than this of its cause is only counted, unless it is the largest.
    const NOTABLE: f64 = 0.1;
    let of_cause = culprits(causes)
        .into_iter()
        .filter(|row| row.cause == cause);
    let parts =
        of_cause.filter_map(|row| Some((row.culprit.as_ref()?, row.excess_share_above_p99.value)));
    let found = programs(parts);
    let whole: f64 = found.iter().map(|program| program.part).sum();
    let named = found.iter().enumerate().take(NAMED);
    let names: Vec<String> = named
        .filter(|(place, program)| *place == 0 || program.part >= NOTABLE * whole)
        .map(|(_, program)| program.called_with_pid())
        .collect();
    let others = found.len() - names.len();
    let listed = match (names.is_empty(), others) {
        (true, _) => return cause.label().to_owned(),
        (false, 0) => names.join(" and "),
        (false, _) => {
            let others = counted(others as u64, "other", "others");
            format!("{} and {others}", names.join(", "))
        }
    };
    format!("{}: {listed}", cause.label())
}

/// How much of the excess or of the delays above p99 is charged to causes that may be chance, and why; `None` where
/// that is little.
pub(crate) fn doubt_sentence(causes: &[CauseShare], of: SharedOut) -> Option<String> {
    /// Less than this is not worth a sentence.
    const LEAST: f64 = 0.05;
    let above = |row: &CauseShare| row.excess_share_above_p99;
    let in_doubt: Vec<&CauseShare> = (causes.iter())
        .filter(|row| row.culprit.is_none() && above(row).is_in_doubt())
        .collect();
    let share: f64 = in_doubt.iter().map(|row| above(row).value).sum();
    let largest = (in_doubt.iter())
        .max_by(|a, b| above(a).value.total_cmp(&above(b).value))
        .filter(|_| share >= LEAST)?;
    let visible = |row: &&&CauseShare| above(row).value >= LEAST_IN_TABLE;
    let which = match in_doubt.iter().filter(visible).count() {
        1 => format!("{}, whose interval reaches 0", largest.cause.label()),
        n => format!(
            "{n} causes whose intervals reach 0, chiefly {} ({})",
            largest.cause.label(),
            percent(above(largest).value, 1),
        ),
    };
    let share = percent(share, 1);
    Some(format!(
        "{share} of {} is charged to {which}: too few bursts to be sure; a longer measurement may tell.",
        of.above_p99()
    ))
}

/// The interval of a share without its unit: `68–74`; empty without one.
pub fn share_interval(share: Share) -> String {
    match (share.lo, share.hi) {
        (Some(lo), Some(hi)) => {
            let decimals = usize::from(hi - lo < 0.05);
            let end = |x: f64| crate::figures::grouped(100.0 * x, decimals);
            format!("{}–{}", end(lo), end(hi))
        }
        _ => String::new(),
    }
}

/// A mean number of things: `190`, `3.4`.
pub(crate) fn mean_count(x: f64) -> String {
    crate::figures::grouped(x, usize::from(x.abs() < 10.0))
}

/// The model behind the forecasts, and how accurate it is; without one, why there is none.
pub(crate) fn fit_sentence(fit: Option<&ModelFit>, verdict: &Verdict) -> String {
    let Some(fit) = fit else {
        let text = match verdict.holds(ClaimName::Causes) {
            false => "No forecasts: the verdict withdraws them, and says why.",
            true => {
                "No forecasts: too few requests to check a model of the server; measure for longer (-d)."
            }
        };
        return text.to_owned();
    };
    let worst = fit
        .points
        .iter()
        .max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()))
        .map(|point| format!(" (at {})", quantile_name(point.q)))
        .unwrap_or_default();
    let error = percent(fit.largest_error.abs(), 1);
    let borne = (fit.points.iter())
        .filter(|point| FORECAST.contains(&point.q) && fit.bears(point.q))
        .map(|point| quantile_name(point.q));
    let borne: Vec<String> = borne.collect();
    let so = match (fit.good, borne.as_slice()) {
        (true, _) => "good enough to forecast the effect of a change".to_owned(),
        (false, []) => "too far off for forecasts, so there are none".to_owned(),
        (false, borne) => format!(
            "the intervals of the forecasts of {} allow for it",
            borne.join(", ")
        ),
    };
    format!(
        "A model of this server ({}) replays the recorded requests. With nothing changed it \
         misses the measured percentiles by at most {error}{worst}: {so}.",
        fit.model
    )
}

/// Whether slow requests come in bursts or alone.
pub(crate) fn clustering_sentence(clustering: &Clustering) -> String {
    let Clustering {
        q,
        in_runs_share,
        episodes,
        mean_episode_requests,
        ..
    } = clustering;
    let how = match in_runs_share {
        share if *share >= 0.5 => "come in bursts",
        share if *share >= 0.2 => "come partly in bursts, partly alone",
        _ => "come mostly alone",
    };
    format!(
        "Slow requests (above {}) {how}: {} of them come right before or after another slow \
         one, in {} of {} requests on average.",
        quantile_name(*q),
        percent(*in_runs_share, 0),
        counted(*episodes, "burst", "bursts"),
        mean_count(*mean_episode_requests),
    )
}

/// What a user of many servers sees: the entry nearest to 100 servers, in words.
pub(crate) fn fan_out_sentence(fan_out: &[FanOut]) -> Option<String> {
    /// The usual example of the literature (The Tail at Scale, 2013).
    const USUAL: u32 = 100;
    let at = fan_out
        .iter()
        .filter(|at| at.p50_ns.is_some() || at.p99_ns.is_some())
        .min_by_key(|at| at.servers.abs_diff(USUAL))?;
    let figures: Vec<String> = [
        (at.p50_ns, "half of the time"),
        (at.p99_ns, "99 % of the time"),
    ]
    .into_iter()
    .filter_map(|(time, name)| Some(format!("at most {} {name}", time?)))
    .collect();
    Some(format!(
        "A user who waits for the slowest of {} such servers waits {}.",
        count(u64::from(at.servers)),
        figures.join(" and ")
    ))
}

/// How many requests were overtaken, and by whom.
pub(crate) fn inversions_sentence(
    inversions: &Inversions,
    name_of: impl Fn(Tid) -> String,
) -> Option<String> {
    if inversions.overtaken == 0 {
        return None;
    }
    let pairs: Vec<String> = (inversions.pairs.iter().take(3))
        .map(|(over, under, times)| {
            let who = if over == under {
                format!("within {}", name_of(*over))
            } else {
                format!("{} before {}", name_of(*over), name_of(*under))
            };
            format!("{who} {}", counted(*times, "time", "times"))
        })
        .collect();
    let pairs = match pairs.is_empty() {
        true => String::new(),
        false => format!(" ({})", pairs.join(", ")),
    };
    let were = match inversions.overtaken {
        1 => "was",
        _ => "were",
    };
    Some(format!(
        "{} ({}) {were} overtaken by a later one{pairs}.",
        counted(inversions.overtaken, "request", "requests"),
        percent(inversions.share, 2),
    ))
}

/// The name of a worker: `memcached 4713`, or its number alone.
pub(crate) fn worker_name(explanation: &Explanation, tid: Tid) -> String {
    (explanation.workers.iter())
        .find(|worker| worker.tid == tid)
        .map_or_else(
            || tid.to_string(),
            |worker| format!("{} {tid}", worker.name),
        )
}

/// A curve's name as a person reads it.
pub(crate) fn curve_label(curve: &NamedCurve) -> String {
    match curve.name.as_str() {
        "multi_queue_ideal" => "ideal, a queue for each worker".to_owned(),
        "ideal_without_probe" => "ideal without the probe".to_owned(),
        "replayed" => "replayed".to_owned(),
        change => format!("predicted: {change}"),
    }
}

/// Which request it was: sojourn, port, worker and arrival.
pub(crate) fn slow_request_title(request: &SlowRequest) -> String {
    let worker = match &request.worker {
        Some(worker) => format!(", served by {worker}"),
        None => String::new(),
    };
    let ideal = (request.ideal_ns).map_or_else(String::new, |ideal| format!(" (ideal {ideal})"));
    format!(
        "{}{ideal}, from port {}{worker}, T1 {:.6} s after boot",
        request.sojourn_ns,
        request.port,
        request.t1.nanos_since_boot() as f64 / 1e9,
    )
}

/// The CPUs of a slow request's activities, in order.
pub(crate) fn cpus(request: &SlowRequest) -> Vec<u16> {
    let mut cpus: Vec<u16> = request.activities.iter().map(|a| a.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Whether a culprit is the thread that served the request, which is drawn as the server.
pub(crate) fn is_worker(request: &SlowRequest, who: &Culprit) -> bool {
    let own = request.worker.as_ref().and_then(tid_of);
    matches!(who, Culprit::Worker { .. }) && own.is_none() || own.is_some() && tid_of(who) == own
}

/// The thread of a culprit that is one.
pub(crate) fn tid_of(culprit: &Culprit) -> Option<Tid> {
    match culprit {
        Culprit::Worker { tid, .. } | Culprit::OwnThread { tid, .. } => Some(*tid),
        Culprit::Thread { tid, .. } => *tid,
        _ => None,
    }
}

/// The sum of the lengths of each kind, the longest first.
pub(crate) fn summed<K: PartialEq>(lengths: impl Iterator<Item = (K, Nanos)>) -> Vec<(K, Nanos)> {
    let mut sums: Vec<(K, Nanos)> = Vec::new();
    for (kind, length) in lengths {
        match sums.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, sum)) => *sum += length,
            None => sums.push((kind, length)),
        }
    }
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::explanation::BandPart;
    use taillab_model::summary::{Claim, Reason};

    fn band(parts: &[(Cause, f64)]) -> Band {
        let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
        Band {
            from_q: 0.99,
            to_q: 0.999,
            requests: 100,
            mean_sojourn_ns: 1_000.0 + total,
            mean_ideal_ns: 1_000.0,
            parts: parts
                .iter()
                .map(|&(cause, mean_excess_ns)| BandPart {
                    cause,
                    mean_excess_ns,
                    share: Share {
                        value: mean_excess_ns / total,
                        lo: None,
                        hi: None,
                    },
                })
                .collect(),
        }
    }

    #[test]
    fn small_causes_are_one_part_and_nothing_is_lost() {
        let bands = [band(&[
            (Cause::Background, 700.0),
            (Cause::Irq, 40.0),
            (Cause::Softirq, 200.0),
            (Cause::Wakeup, 30.0),
            (Cause::StackRx, -20.0),
            (Cause::Hypervisor, 10.0),
            (Cause::Unexplained, 40.0),
        ])];
        let composition = Composition::of(&bands, 3).unwrap();
        assert_eq!(
            composition.parts,
            [
                Part::Cause(Cause::Background),
                Part::Cause(Cause::Softirq),
                Part::Cause(Cause::Hypervisor),
                Part::Cause(Cause::Unexplained),
                Part::Others,
            ]
        );
        let sum: f64 = (composition.parts.iter())
            .map(|part| composition.mean_excess_ns(&bands[0], *part))
            .sum();
        assert!((sum - 1_000.0).abs() < 1e-9, "{sum}");
        let drawn: f64 = composition.drawn(&bands[0]).iter().map(|p| p.1).sum();
        assert!((drawn - 1.0).abs() < 1e-9, "{drawn}");
    }

    #[test]
    fn a_band_without_excess_is_no_composition() {
        assert!(Composition::of(&[], 6).is_none());
        let bands = [band(&[(Cause::StackRx, -5.0)])];
        assert!(Composition::of(&bands, 6).is_none());
    }

    #[test]
    fn a_model_that_was_withdrawn_is_not_said_to_lack_requests() {
        let verdict = |valid| Verdict {
            valid: true,
            claims: vec![Claim {
                claim: ClaimName::Causes,
                valid,
                because: Vec::new(),
            }],
            ..Verdict::default()
        };
        assert!(fit_sentence(None, &verdict(false)).contains("the verdict withdraws them"));
        assert!(fit_sentence(None, &verdict(true)).contains("too few requests"));
        let invalid = Verdict {
            reasons: vec![Reason::new("no_answer", "none of 7 requests was answered")],
            ..Verdict::default()
        };
        assert!(fit_sentence(None, &invalid).contains("the verdict withdraws them"));
    }

    #[test]
    fn bands_have_names() {
        let name = |from_q, to_q| {
            band_name(&Band {
                from_q,
                to_q,
                ..band(&[])
            })
        };
        assert_eq!(name(0.0, 0.9), "up to p90");
        assert_eq!(name(0.9, 0.99), "p90–p99");
        assert_eq!(name(0.999, 1.0), "above p99.9");
    }
}
