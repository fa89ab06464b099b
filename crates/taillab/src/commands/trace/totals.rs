//! All windows of a live view together, in bounded memory.

use taillab_experiment::pipeline::Analysed;
use taillab_model::explanation::{CauseShare, Share};
use taillab_model::summary::Matching;
use taillab_model::{Histogram, Lacking, Nanos};
use taillab_report::live::Moment;
use taillab_report::stages;

/// Sums and a histogram, so that percentiles are over all requests and not averages over windows.
#[derive(Default)]
pub struct Totals {
    seconds: f64,
    arrivals: f64,
    sojourns: Histogram,
    complete: u64,
    stages_ns: [f64; 5],
    matching: Matching,
    causes: Vec<CauseShare>,
}

impl Totals {
    /// Adds a window with these sojourns.
    pub fn add(&mut self, analysed: &Analysed, sojourns: Vec<Nanos>) {
        let report = &analysed.report;
        let seconds = report.duration_ns.as_secs_f64();
        self.seconds += seconds;
        self.arrivals += report.arrival_rate_per_s * seconds;
        self.sojourns.extend(sojourns);
        let result = &report.server;
        self.complete += result.stages.t1_t2.count;
        for (sum, stage) in (self.stages_ns.iter_mut()).zip(stages::all(&result.stages)) {
            *sum += stage.mean.unwrap_or_default() * stage.count as f64;
        }
        self.add_matching(&result.matching);
        for cause in &result.causes {
            self.add_cause(cause);
        }
    }

    fn add_matching(&mut self, new: &Matching) {
        let sum = &mut self.matching;
        sum.stamps = new.stamps;
        sum.unasked += new.unasked;
        sum.responses += new.responses;
        sum.matched += new.matched;
        sum.complete += new.complete;
        sum.ambiguous += new.ambiguous;
        sum.unanswered += new.unanswered;
        sum.lost_events += new.lost_events;
        sum.blind_windows += new.blind_windows;
        sum.blind_ns += new.blind_ns;
    }

    fn add_cause(&mut self, new: &CauseShare) {
        let same = |old: &&mut CauseShare| old.cause == new.cause && old.culprit == new.culprit;
        match self.causes.iter_mut().find(same) {
            None => self.causes.push(new.clone()),
            Some(old) => {
                old.excess_ns += new.excess_ns;
                old.requests += new.requests;
                old.events += new.events;
                old.longest_event_ns = old.longest_event_ns.max(new.longest_event_ns);
            }
        }
    }

    /// Everything so far.
    pub fn moment(&self) -> Moment {
        let mut causes = self.causes.clone();
        let wholes = causes.iter().filter(|cause| cause.culprit.is_none());
        let all: f64 = wholes.map(|cause| cause.excess_ns.get() as f64).sum();
        for cause in &mut causes {
            let value = match all > 0.0 {
                true => cause.excess_ns.get() as f64 / all,
                false => 0.0,
            };
            cause.share = Share {
                value,
                lo: None,
                hi: None,
            };
        }
        let complete = self.complete as f64;
        let lacking = Lacking::unanswered(self.matching.unanswered);
        let sojourn = (self.sojourns).distribution_censored(lacking, |_| 1.0);
        Moment {
            rate_per_s: self.arrivals / self.seconds.max(1e-9),
            p50: sojourn.quantile(0.5),
            p99: sojourn.quantile(0.99),
            p999: sojourn.quantile(0.999),
            mean_stages_ns: (self.complete > 0).then(|| self.stages_ns.map(|sum| sum / complete)),
            matching: self.matching.clone(),
            causes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_all_requests_and_only_of_enough() {
        let mut whole = Totals::default();
        assert_eq!(whole.moment().p50, None);
        for value in 0..1_000 {
            whole.sojourns.record(Nanos::new(1 + value / 10));
        }
        let moment = whole.moment();
        assert_eq!(moment.p50, Some(Nanos::new(50)));
        assert_eq!(moment.p999, None);
        whole.matching.unanswered = 20;
        assert_eq!(whole.moment().p99, None, "2 % were not answered");
    }

    #[test]
    fn only_the_sample_can_be_complete() {
        let mut whole = Totals::default();
        for _ in 0..2 {
            whole.add_matching(&Matching {
                responses: 1_000,
                matched: 1_000,
                stamps: "sampled:1/4".parse().unwrap(),
                unasked: 750,
                complete: 250,
                ..Matching::default()
            });
        }
        let matching = whole.moment().matching;
        assert_eq!((matching.complete, matching.asked()), (500, 500));
    }
}
