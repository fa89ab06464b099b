//! The experiment's view: the requests of the parts of a measurement that followed the schedule.

use taillab_model::summary::{ReplayedSchedule, Scheduled};
use taillab_model::{Cut, Lacking, Monotonic, Nanos};

use super::AnalysisOptions;
use crate::cut::Cutter;
use crate::ideal::MeasuredRequests;
use crate::matched::Matched;
use crate::spans::Spans;
use crate::statistics::{Observations, Series};
use crate::verdict::{ScheduleEvidence, Supported};

/// Sums over the requests that are not cut. It runs beside the analysis, which cuts nothing.
pub(super) struct OnSchedule<'c> {
    cutter: Cutter<'c>,
    sojourn: Series,
    ideal: Series,
    /// Requests that nobody answered.
    unanswered: u64,
    is_repeated: bool,
}

impl<'c> OnSchedule<'c> {
    /// Before the first window. `None` if the generator kept its schedule all the time, or is not ours.
    pub(super) fn new(cuts: &'c [Cut], options: &AnalysisOptions) -> Option<Self> {
        let t = Some(options.service_time).filter(|_| options.service_time_known);
        (!cuts.is_empty()).then(|| Self {
            cutter: Cutter::new(cuts, options.workers, t, options.measure_from),
            sojourn: Series::new(options.exact),
            ideal: Series::new(options.exact),
            unanswered: 0,
            is_repeated: options.is_repeated,
        })
    }

    /// Takes the next window, which ends at `upto`, and its measured requests. Returns what is cut in it.
    pub(super) fn add(
        &mut self,
        matched: &Matched,
        requests: &MeasuredRequests,
        upto: Monotonic,
    ) -> Spans {
        let cut = self.cutter.cut_in(matched, upto);
        let places = requests.places.iter().map(|place| *place as usize);
        let kept = places
            .zip(&requests.ideal)
            .filter(|(place, _)| !cut.contain(matched.requests.t1(*place)));
        let kept = kept.map(|(place, ideal)| (matched.requests.sojourn(place), *ideal));
        let (sojourns, mut ideals): (Vec<Nanos>, Vec<Nanos>) = kept.unzip();
        let unanswered = requests.t1_of_unanswered.iter();
        let unanswered = unanswered.zip(&requests.ideal_of_unanswered);
        let answered = ideals.len();
        ideals.extend(
            unanswered
                .filter(|(t1, _)| !cut.contain(**t1))
                .map(|(_, ideal)| *ideal),
        );
        self.unanswered += (ideals.len() - answered) as u64;
        self.sojourn.extend(&sojourns);
        self.ideal.extend(&ideals);
        cut
    }

    /// The sums after the last window. Of all requests, these are `lacking`, here or in a cut.
    pub(super) fn finish(self, lacking: Lacking) -> (ScheduleEvidence, Option<Observations>) {
        let Some(cut) = self.cutter.finish() else {
            return (ScheduleEvidence::default(), None);
        };
        let unanswered = self.unanswered.min(lacking.unanswered);
        let sojourn = self.sojourn.finish().with_unanswered(unanswered);
        let mut sojourn = sojourn.with_missing(lacking.missing);
        if self.is_repeated {
            sojourn.assume_independent();
        }
        let evidence = ScheduleEvidence {
            sojourn: Some(sojourn.distribution()),
            cut: Some(cut),
        };
        (evidence, Some(self.ideal.finish()))
    }
}

/// The view, still without its claims, with what a replay of the schedule says. There is an `ideal` if the server is
/// compared with it.
pub(super) fn view(
    evidence: &ScheduleEvidence,
    ideal: Option<Observations>,
    replayed: Option<ReplayedSchedule>,
    supported: &Supported,
) -> Scheduled {
    let Some(sojourn) = evidence.sojourn.clone() else {
        return Scheduled::same_as_measured();
    };
    Scheduled {
        same_as_measured: false,
        sojourn: Some(supported.distribution(sojourn)),
        ideal: ideal.map(|ideal| supported.distribution(ideal.distribution())),
        replayed,
        at_worst: None,
        cut: evidence.cut.clone(),
        claims: Vec::new(),
    }
}
