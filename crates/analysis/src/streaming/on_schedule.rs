//! The experiment's view: the requests of the parts of a measurement that followed the schedule.

use taillab_model::summary::Scheduled;
use taillab_model::{Cut, Lacking, Monotonic, Nanos};

use super::AnalysisOptions;
use crate::cut::Cutter;
use crate::ideal::MeasuredRequests;
use crate::matched::Matched;
use crate::spans::Spans;
use crate::statistics::Series;

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

    /// The view after the last window, still without its claims. Of all requests, these are `lacking`, here or in a
    /// cut; with `is_compared` there is an ideal.
    pub(super) fn finish(self, lacking: Lacking, is_compared: bool) -> Scheduled {
        let Some(cut) = self.cutter.finish() else {
            return Scheduled::same_as_measured();
        };
        let unanswered = self.unanswered.min(lacking.unanswered);
        let sojourn = self.sojourn.finish().with_unanswered(unanswered);
        let mut sojourn = sojourn.with_missing(lacking.missing);
        if self.is_repeated {
            sojourn.assume_independent();
        }
        Scheduled {
            same_as_measured: false,
            sojourn: Some(sojourn.distribution()),
            ideal: is_compared.then(|| self.ideal.finish().distribution()),
            replayed: None,
            at_worst: None,
            cut: Some(cut),
            claims: Vec::new(),
        }
    }
}
