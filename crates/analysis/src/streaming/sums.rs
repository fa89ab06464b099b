//! Sums over the measured requests of a recording.

use taillab_model::summary::{Stages, StagesAt};
use taillab_model::{Distribution, Lacking, Monotonic, Nanos};

use crate::ideal::MeasuredRequests;
use crate::matched::Matched;
use crate::spans::Spans;
use crate::stages::StageBands;
use crate::statistics::{Observations, Series};

/// The series of a recording; those of the stages come last.
const MEASURED: usize = 0;
const IDEAL: usize = 1;
const EXCESS: usize = 2;
const STAGES: usize = 3;
const SERIES: usize = STAGES + 5;

/// Sums over the measured requests.
pub(super) struct Sums {
    series: [Series; SERIES],
    client_minus_server: Series,
    stages: StageBands,
    /// Requests that were faster than their ideal.
    faster: u64,
    /// The longest sojourn.
    pub(super) longest: Nanos,
    /// Requests that nobody answered.
    pub(super) unanswered: u64,
    /// Requests that the end of the recording cut off.
    pub(super) cut_off: u64,
}

impl Sums {
    pub(super) fn new(exact: usize) -> Self {
        Self {
            series: std::array::from_fn(|_| Series::new(exact)),
            client_minus_server: Series::new(exact),
            stages: StageBands::new(exact),
            faster: 0,
            longest: Nanos::ZERO,
            unanswered: 0,
            cut_off: 0,
        }
    }

    /// Adds the measured requests of a window. What the client saw leaves out those of the stretches that are
    /// `cut`, in which it read late, too.
    pub(super) fn add(
        &mut self,
        matched: &Matched,
        requests: &MeasuredRequests,
        measure_from: Monotonic,
        cut: &Spans,
    ) {
        /// Requests in a batch: their lengths are computed first, and then added to the series.
        const BATCH: usize = 4_096;
        let mut lengths: [Vec<Nanos>; SERIES] = Default::default();
        let ideals = requests.ideal.chunks(BATCH);
        for (places, ideals) in requests.places.chunks(BATCH).zip(ideals) {
            for (&place, &ideal) in places.iter().zip(ideals) {
                let stamps = matched.requests.stamps(place as usize);
                let sojourn = stamps.t6.saturating_since(stamps.t1);
                self.faster += u64::from(sojourn < ideal);
                lengths[MEASURED].push(sojourn);
                lengths[EXCESS].push(sojourn.saturating_sub(ideal));
                let asked = matched.is_asked(place as usize);
                let stages = stamps.stages().filter(|_| asked);
                self.stages.add(sojourn, stages);
                for (of_stage, length) in lengths[STAGES..].iter_mut().zip(stages.iter().flatten())
                {
                    of_stage.push(*length);
                }
            }
            lengths[IDEAL].extend_from_slice(ideals);
            self.longest = (lengths[MEASURED].iter().copied()).fold(self.longest, Nanos::max);
            for (series, lengths) in self.series.iter_mut().zip(&mut lengths) {
                series.extend(lengths);
                lengths.clear();
            }
        }
        self.series[IDEAL].extend(&requests.ideal_of_unanswered);
        self.unanswered += requests.ideal_of_unanswered.len() as u64;
        self.cut_off += requests.cut_off;
        if matched.client.is_some() {
            let beyond: Vec<Nanos> = matched.client_minus_server(measure_from, cut).collect();
            self.client_minus_server.extend(&beyond);
        }
    }

    /// Requests with a response.
    pub(super) fn answered(&self) -> u64 {
        self.series[MEASURED].count()
    }

    /// The sums after the last request. `lacking` is how many requests nobody answered, and how many were not seen.
    /// Where the measurement `is_repeated`, the percentiles are those of this repetition. Where it `is_overloaded`,
    /// they and all others are those of this measurement: no longer one would have the same.
    pub(super) fn finish(
        self,
        is_repeated: bool,
        is_overloaded: bool,
        lacking: Lacking,
    ) -> FinishedSums {
        let answered = self.answered();
        let finished = self.series.map(|series| {
            let mut observed = series.finish();
            if is_overloaded {
                observed.assume_independent();
            }
            observed
        });
        let [measured, ideal, excess, stages @ ..] = finished;
        let of_all = |known: Observations| {
            let known = known.with_unanswered(lacking.unanswered);
            known.with_missing(lacking.missing)
        };
        let mut measured = of_all(measured);
        if is_repeated {
            measured.assume_independent();
        }
        FinishedSums {
            stages: distributions(&stages),
            stages_at: self.stages.finish(&measured),
            measured,
            ideal,
            excess: of_all(excess).distribution(),
            client_minus_server: self.client_minus_server.finish().distribution(),
            faster_share: self.faster as f64 / answered.max(1) as f64,
        }
    }
}

/// The finished sums.
pub(super) struct FinishedSums {
    pub(super) measured: Observations,
    pub(super) ideal: Observations,
    pub(super) excess: Distribution,
    pub(super) stages: Stages,
    pub(super) stages_at: Vec<StagesAt>,
    pub(super) client_minus_server: Distribution,
    /// Share of the requests that were faster than their ideal.
    pub(super) faster_share: f64,
}

/// The distribution of each stage.
fn distributions(stages: &[Observations; 5]) -> Stages {
    let [t1_t2, t2_t3, t3_t4, t4_t5, t5_t6] =
        std::array::from_fn(|stage| stages[stage].distribution());
    Stages {
        t1_t2,
        t2_t3,
        t3_t4,
        t4_t5,
        t5_t6,
    }
}
