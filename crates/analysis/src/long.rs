//! A recording that is too long to be held: it is read twice, part by part.
//!
//! The first reading ([`Survey`]) counts the sojourns, so that the second one ([`Account`])
//! knows from where on a request belongs to the tail, how long a block of time is, and which
//! stretches are to be replayed. Everything is then a sum over the requests as they come, and
//! what comes out is what [`analyse`](crate::analyse()) and [`explain`](crate::explain()) say of a
//! recording that is held as a whole, but for three things:
//!
//! - quantiles, and what is drawn up at them, are those of a histogram, whose values are
//!   within [`HISTOGRAM_ERROR`](taillab_model::HISTOGRAM_ERROR) of the truth;
//! - t, the workers and what is usual ([`Usual`]) are taken from the first part;
//! - only a sample of the time is replayed, as the result says.

use std::num::NonZeroU32;

use taillab_model::summary::{Ideal, Matching, Measured, Stages, StagesAt};
use taillab_model::{Histogram, Monotonic, Nanos, REPORTED_QUANTILES, RecordingContext};
use taillab_queueing::ideal::IdealQueue;

use crate::clustering::threshold_rank;
use crate::composition::BANDS;
use crate::explain::{ExplainOptions, Explained, Explainer, Known, Sojourn};
use crate::fan_out::fan_out_of_counts;
use crate::ledger::{Entry, Labels, Usual};
use crate::matched::{MatchCounts, Matched};
use crate::parts::Part;
use crate::replay::{Cores, Observed, Sampling};
use crate::stages::StageBands;
use crate::statistics::{Sample, Series, requests_needed};
use crate::summary::{AnalyseOptions, Analysis, AnalysisError};
use crate::timeline::Stretches;
use crate::verdict;

/// The series of a recording.
const MEASURED: usize = 0;
const IDEAL: usize = 1;
const EXCESS: usize = 2;
const STAGES: usize = 3;
const SERIES: usize = STAGES + 5;

/// The measured requests of a part, in order of T1.
#[derive(Default)]
struct Requests {
    places: Vec<u32>,
    ideal: Vec<Nanos>,
}

/// All arrivals through the ideal queue, part by part.
struct Arrivals {
    queue: IdealQueue,
    measure_from: Monotonic,
    /// Of the measurement: the first, the last, how many.
    span: Option<(Monotonic, Monotonic)>,
    count: u64,
}

impl Arrivals {
    fn new(service_time: Nanos, workers: NonZeroU32, measure_from: Monotonic) -> Self {
        Self {
            queue: IdealQueue::new(service_time, workers),
            measure_from,
            span: None,
            count: 0,
        }
    }

    fn take(&mut self, matched: &Matched) -> Requests {
        let mut requests = Requests::default();
        for arrival in matched.arrivals() {
            let ideal = self
                .queue
                .sojourn(Nanos::new(arrival.t1.nanos_since_boot()));
            if arrival.t1 >= self.measure_from {
                self.span = Some((self.span.map_or(arrival.t1, |(first, _)| first), arrival.t1));
                self.count += 1;
            }
            let measured = |place: &usize| matched.is_measured(*place, self.measure_from);
            if let Some(place) = arrival.matched.filter(measured) {
                requests.places.push(place as u32);
                requests.ideal.push(ideal);
            }
        }
        requests
    }

    fn rate_per_s(&self) -> f64 {
        match self.span {
            Some((first, last)) if last > first => {
                (self.count - 1) as f64 / last.saturating_since(first).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

impl Requests {
    /// Gives each series of this part to `take`.
    fn series(&self, matched: &Matched, mut take: impl FnMut(usize, &[Nanos])) {
        let requests = &matched.requests;
        let places = || self.places.iter().map(|place| *place as usize);
        let measured: Vec<Nanos> = places().map(|place| requests.sojourn(place)).collect();
        take(MEASURED, &measured);
        take(IDEAL, &self.ideal);
        let pairs = measured.iter().zip(&self.ideal);
        let excess: Vec<Nanos> = pairs.map(|(m, i)| m.saturating_sub(*i)).collect();
        take(EXCESS, &excess);
        drop((measured, excess));
        let mut stages: [Vec<Nanos>; 5] = Default::default();
        for of_request in places().filter_map(|place| requests.stamps(place).stages()) {
            for (series, stage) in stages.iter_mut().zip(of_request) {
                series.push(stage);
            }
        }
        for (which, stage) in stages.iter().enumerate() {
            take(STAGES + which, stage);
        }
    }
}

/// The first reading.
pub struct Survey {
    options: AnalyseOptions,
    arrivals: Arrivals,
    all_arrivals: usize,
    events: u64,
    series: [Histogram; SERIES],
    counts: MatchCounts,
    faster: u64,
    late_events: u64,
    /// T1 of the first and of the last measured request.
    span: Option<(Monotonic, Monotonic)>,
}

impl Survey {
    /// Before the first part.
    pub fn new(options: AnalyseOptions) -> Self {
        Self {
            arrivals: Arrivals::new(options.service_time, options.workers, options.measure_from),
            options,
            all_arrivals: 0,
            events: 0,
            series: Default::default(),
            counts: MatchCounts::default(),
            faster: 0,
            late_events: 0,
            span: None,
        }
    }

    /// Takes the next part.
    pub fn add(&mut self, part: &Part) {
        let matched = &part.matched;
        self.all_arrivals += matched.requests.len() + matched.unmatched.len();
        self.events += matched.events;
        self.late_events += matched.late_events;
        let from = self.options.measure_from;
        self.counts.add(matched, from, (part.from, part.upto));
        let requests = self.arrivals.take(matched);
        let t1 = |place: &u32| matched.requests.t1(*place as usize);
        if let (Some(first), Some(last)) = (requests.places.first(), requests.places.last()) {
            self.span = Some((self.span.map_or(t1(first), |(first, _)| first), t1(last)));
        }
        let pairs = requests.places.iter().zip(&requests.ideal);
        let faster = pairs.filter(|(place, ideal)| {
            let sojourn = matched.requests.sojourn(**place as usize);
            sojourn < **ideal
        });
        self.faster += faster.count() as u64;
        let series = &mut self.series;
        requests.series(matched, |which, lengths| {
            series[which].extend(lengths.iter().copied());
        });
    }

    /// What it found; the probe lost so many events.
    ///
    /// # Errors
    /// When there is no request to analyse.
    pub fn finish(self, lost_events: u64) -> Result<Surveyed, AnalysisError> {
        if self.all_arrivals == 0 {
            return Err(AnalysisError::NoPackets {
                events: self.events,
            });
        }
        let Some(span) = self.span else {
            return Err(AnalysisError::NothingMatched {
                arrivals: self.all_arrivals,
            });
        };
        let mut matching = self.counts.finish();
        matching.lost_events = lost_events;
        let n = self.series[MEASURED].count();
        Ok(Surveyed {
            options: self.options,
            arrivals: self.arrivals.count,
            all_arrivals: self.all_arrivals as u64,
            rate_per_s: self.arrivals.rate_per_s(),
            sampling: Sampling::new(span.0, span.1, n),
            span,
            series: self.series.map(Series::new),
            matching,
            faster_than_ideal: self.faster as f64 / n.max(1) as f64,
            late_events: self.late_events,
        })
    }
}

/// What the first reading found.
pub struct Surveyed {
    options: AnalyseOptions,
    /// Requests that came in during the measurement.
    pub arrivals: u64,
    /// The same while the server settled too.
    pub all_arrivals: u64,
    rate_per_s: f64,
    sampling: Sampling,
    span: (Monotonic, Monotonic),
    series: [Series; SERIES],
    matching: Matching,
    faster_than_ideal: f64,
    late_events: u64,
}

/// The second reading.
pub struct Account<'c> {
    surveyed: Surveyed,
    context: &'c RecordingContext,
    arrivals: Arrivals,
    stages: StageBands,
    explainer: Explainer<'c>,
    replayed: Matched,
    stretches: Stretches,
}

impl<'c> Account<'c> {
    /// Before the first part; `usual` is what that shows.
    pub fn new(
        surveyed: Surveyed,
        context: &'c RecordingContext,
        slowest: usize,
        usual: Usual,
    ) -> Self {
        let AnalyseOptions {
            service_time,
            workers,
            measure_from,
            ..
        } = surveyed.options;
        let options = ExplainOptions {
            service_time,
            workers,
            measure_from,
            slowest,
        };
        let series = &surveyed.series[MEASURED];
        let (n, ranked) = (series.histogram().count(), series.ranked());
        let cell = |rank: u64| ranked.at(rank.min(n.saturating_sub(1)));
        let from = |rank: u64| cell(rank).map_or(Nanos::ZERO, |cell| cell.from);
        let known = Known {
            requests: n,
            from: surveyed.span.0,
            to: surveyed.span.1,
            thresholds: BANDS.map(|q| from((q * n as f64) as u64)),
            trace_from: match (slowest as u64).min(n) {
                0 => Nanos::MAX,
                slowest => from(n - slowest),
            },
            fastest: series.histogram().least().unwrap_or_default(),
            slowest: series.histogram().greatest().unwrap_or_default(),
            slow: threshold_rank(n).and_then(|rank| Some(cell(rank)?.to)),
            sample: || Sample::Cells(Histogram::default()),
        };
        Self {
            arrivals: Arrivals::new(service_time, workers, measure_from),
            stages: StageBands::new(n, ranked),
            explainer: Explainer::new(context, options, known, usual),
            replayed: Matched::default(),
            stretches: Stretches::default(),
            context,
            surveyed,
        }
    }

    /// Takes the next part, and gives the accounts of the requests that end in it to `each`. The
    /// ideal sojourns of its measured requests, in order of T1.
    pub fn add(&mut self, part: &Part, each: impl FnMut(&Entry<'_>, &Labels)) -> Vec<Nanos> {
        let matched = &part.matched;
        let requests = self.arrivals.take(matched);
        let series = &mut self.surveyed.series;
        requests.series(matched, |which, lengths| series[which].extend(lengths));
        for place in requests.places.iter().map(|place| *place as usize) {
            if let Some(stages) = matched.requests.stamps(place).stages() {
                self.stages.add(matched.requests.sojourn(place), stages);
            }
        }
        self.keep(part);
        self.explainer.add(matched, &part.timeline, part.upto, each);
        requests.ideal
    }

    /// Keeps what is to be replayed.
    fn keep(&mut self, part: &Part) {
        let matched = &part.matched;
        let takes = |place: &usize| self.surveyed.sampling.takes(matched.requests.t1(*place));
        let mut places = (0..matched.requests.len()).filter(takes).peekable();
        // the places that follow one another are a stretch
        while let Some(first) = places.next() {
            let mut last = first;
            let mut done = matched.requests.t6(first);
            self.replayed.push_from(matched, first);
            while let Some(next) = places.next_if(|next| *next == last + 1) {
                last = next;
                done = done.max(matched.requests.t6(next));
                self.replayed.push_from(matched, next);
            }
            let goes_on = last + 1 == matched.requests.len();
            let upto = if goes_on { done.max(part.upto) } else { done };
            let known = part.timeline.to();
            let upto = (upto.min(known) + Nanos::from_millis(1)).min(known);
            let from = matched.requests.t1(first);
            self.stretches.add(&part.timeline, from, upto);
        }
    }

    /// What the whole recording shows.
    pub fn finish(self) -> (Analysis, Explained) {
        let Surveyed {
            options,
            rate_per_s,
            series,
            matching,
            ..
        } = self.surveyed;
        let factors = series.each_ref().map(Series::factors);
        let of = |which: usize| series[which].distribution(&factors[which]);
        let measured = of(MEASURED);
        let unsupported = REPORTED_QUANTILES
            .iter()
            .filter(|&&q| measured.quantile(q).is_none())
            .map(|&q| verdict::Unsupported {
                q,
                needs: requests_needed(&factors[MEASURED], q),
            })
            .collect();
        let counts = series[MEASURED].ranked().counts();
        let sojourn = Sojourn {
            fan_out: fan_out_of_counts(&counts, &factors[MEASURED]),
            distribution: measured.clone(),
        };
        let (replayed, stretches) = (self.replayed, self.stretches.finish());
        let (context, sampling) = (self.context, self.surveyed.sampling);
        let explained = self.explainer.finish(&sojourn, &matching, || {
            let cores = Cores::new(&stretches, context);
            Observed::of_sample(&replayed, &cores, context, options.measure_from, &sampling)
        });
        let stages_at: Vec<StagesAt> = self.stages.finish();
        let workers = options.workers.get();
        let analysis = Analysis {
            measured: Measured {
                sojourn: measured,
                server_cpu_busy_share: None,
            },
            ideal: Ideal {
                sojourn: of(IDEAL),
                workers,
                virtual_workers: false,
                utilization: rate_per_s * options.service_time.as_secs_f64() / f64::from(workers),
            },
            excess: of(EXCESS),
            stages: Stages {
                t1_t2: of(STAGES),
                t2_t3: of(STAGES + 1),
                t3_t4: of(STAGES + 2),
                t4_t5: of(STAGES + 3),
                t5_t6: of(STAGES + 4),
            },
            stages_at,
            matching,
            measured_ccdf: series[MEASURED].ccdf(),
            ideal_ccdf: series[IDEAL].ccdf(),
            evidence: verdict::Evidence {
                faster_than_ideal: self.surveyed.faster_than_ideal,
                unsupported,
                late_events: self.surveyed.late_events,
                unexplained: 0,
            },
        };
        (analysis, explained)
    }
}
