//! A recording that is too long to be held: it is analysed part by part, as it is read.
//!
//! Everything is a sum over the requests as they come. What comes out is what
//! [`analyse`](crate::analyse()) and [`explain`](crate::explain()) say of a recording that is held
//! as a whole, but for these things:
//!
//! - quantiles, and what is drawn up at them, are those of a histogram, whose values are
//!   within [`HISTOGRAM_ERROR`](taillab_model::HISTOGRAM_ERROR) of the truth; their intervals take
//!   the correlation from a [`Series`];
//! - t, the workers and what is usual ([`Baseline`]) are taken from the first part;
//! - whether slow requests come together is asked of those that are slow among all before them
//!   and in their part;
//! - only a sample of the time is replayed, as the result says.

use std::num::NonZeroU32;

use taillab_model::summary::{Ideal, Measured, Stages};
use taillab_model::{Monotonic, Nanos, REPORTED_QUANTILES, RecordingContext};
use taillab_queueing::ideal::IdealQueue;

use crate::explain::{ExplainOptions, Explained, Explainer, Sojourn};
use crate::fan_out::fan_out_of_counts;
use crate::ledger::{Baseline, Entry, Labels};
use crate::matched::{MatchCounts, Matched};
use crate::replay::{Beginnings, Cores, Observed};
use crate::stages::StageCells;
use crate::statistics::{Series, curve_of, requests_needed};
use crate::summary::{AnalyseOptions, Analysis, AnalysisError};
use crate::verdict;
use crate::window::Window;

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

/// Requests whose lengths are made before they are summed.
const BATCH: usize = 4_096;

/// What is summed over the measured requests, each by itself.
#[derive(Default)]
struct Sums {
    series: [Series; SERIES],
    stages: StageCells,
    /// Requests that were faster than their ideal.
    faster: u64,
}

impl Sums {
    fn add(&mut self, matched: &Matched, requests: &Requests) {
        let mut lengths: [Vec<Nanos>; SERIES] = Default::default();
        let ideals = requests.ideal.chunks(BATCH);
        for (places, ideals) in requests.places.chunks(BATCH).zip(ideals) {
            for (&place, &ideal) in places.iter().zip(ideals) {
                let stamps = matched.requests.stamps(place as usize);
                let sojourn = stamps.t6.saturating_since(stamps.t1);
                self.faster += u64::from(sojourn < ideal);
                lengths[MEASURED].push(sojourn);
                lengths[EXCESS].push(sojourn.saturating_sub(ideal));
                if let Some(stages) = stamps.stages() {
                    self.stages.add(sojourn, stages);
                    for (of_stage, length) in lengths[STAGES..].iter_mut().zip(stages) {
                        of_stage.push(length);
                    }
                }
            }
            lengths[IDEAL].extend_from_slice(ideals);
            for (series, lengths) in self.series.iter_mut().zip(&mut lengths) {
                series.extend(lengths);
                lengths.clear();
            }
        }
    }
}

/// What is summed over the parts of a recording.
pub struct Account<'c> {
    options: AnalyseOptions,
    context: &'c RecordingContext,
    arrivals: Arrivals,
    all_arrivals: u64,
    events: u64,
    late_events: u64,
    counts: MatchCounts,
    sums: Sums,
    explainer: Explainer<'c>,
    beginnings: Beginnings,
}

impl<'c> Account<'c> {
    /// Before the first part; `usual` is what that shows. So many of the slowest requests are
    /// taken apart.
    pub fn new(
        options: AnalyseOptions,
        context: &'c RecordingContext,
        slowest: usize,
        usual: Baseline,
    ) -> Self {
        let AnalyseOptions {
            service_time,
            workers,
            measure_from,
            ..
        } = options;
        let explain = ExplainOptions {
            service_time,
            workers,
            measure_from,
            slowest,
            is_repeated: false,
        };
        Self {
            arrivals: Arrivals::new(service_time, workers, measure_from),
            all_arrivals: 0,
            events: 0,
            late_events: 0,
            counts: MatchCounts::default(),
            sums: Sums::default(),
            explainer: Explainer::new(context, explain, usual),
            beginnings: Beginnings::new(measure_from),
            options,
            context,
        }
    }

    /// Takes the next part, and gives the accounts of the requests that end in it to `each`. The
    /// ideal sojourns of its measured requests, in order of T1.
    pub fn add(&mut self, part: &Window, each: impl FnMut(&Entry<'_>, &Labels)) -> Vec<Nanos> {
        let matched = &part.matched;
        self.all_arrivals += (matched.requests.len() + matched.unmatched.len()) as u64;
        self.events += matched.events;
        self.late_events += matched.late_events;
        let from = self.options.measure_from;
        self.counts.add(matched, from, (part.from, part.upto));
        let requests = self.arrivals.take(matched);
        self.sums.add(matched, &requests);
        self.beginnings.add(part);
        self.explainer.add(matched, &part.timeline, part.upto, each);
        requests.ideal
    }

    /// Requests that came in so far during the measurement.
    pub const fn arrivals(&self) -> u64 {
        self.arrivals.count
    }

    /// The same while the server settled too.
    pub const fn all_arrivals(&self) -> u64 {
        self.all_arrivals
    }

    /// What the whole recording shows, of which the probe lost so many events.
    ///
    /// # Errors
    /// When there is no request to analyse.
    pub fn finish(self, lost_events: u64) -> Result<(Analysis, Explained), AnalysisError> {
        if self.all_arrivals == 0 {
            return Err(AnalysisError::NoPackets {
                events: self.events,
            });
        }
        let Sums {
            series,
            stages,
            faster,
        } = self.sums;
        let n = series[MEASURED].histogram().count();
        if n == 0 {
            return Err(AnalysisError::NothingMatched {
                arrivals: self.all_arrivals as usize,
            });
        }
        let mut matching = self.counts.finish();
        matching.lost_events = lost_events;
        let options = self.options;
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
        let sojourns = series[MEASURED].histogram();
        let sojourn = Sojourn {
            fan_out: fan_out_of_counts(&sojourns.ranked().counts(), &factors[MEASURED]),
            distribution: measured.clone(),
        };
        let (beginnings, context) = (self.beginnings, self.context);
        let explained = self.explainer.finish(&sojourn, &matching, || {
            let (requests, lines, sample) = beginnings.finish();
            let cores = Cores::new(&lines, context);
            Observed::of_sample(&requests, &cores, context, &sample)
        });
        let workers = options.workers.get();
        let rate_per_s = self.arrivals.rate_per_s();
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
            stages_at: stages.finish(sojourns),
            matching,
            measured_ccdf: curve_of(sojourns),
            ideal_ccdf: curve_of(series[IDEAL].histogram()),
            evidence: verdict::ServerEvidence {
                faster_than_ideal: faster as f64 / n as f64,
                unsupported,
                late_events: self.late_events,
                unexplained: 0,
            },
        };
        Ok((analysis, explained))
    }
}
