//! All windows of a live view together, in bounded memory.

use std::cmp::Reverse;

use taillab_experiment::pipeline::Analysed;
use taillab_model::explanation::{CauseShare, Culprit, OTHER_THREADS, Share, nameless};
use taillab_model::summary::Matching;
use taillab_model::{Histogram, Lacking, Nanos};
use taillab_report::live::Moment;
use taillab_report::stages;

/// Once twice as many threads have sums of their own, all but this many are joined: a server may start a thread for each
/// connection, and a trace may go on for days.
const KEPT: usize = 256;

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
        self.join_smallest();
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

    /// Joins the threads with the least excess by their cause, once there are very many.
    fn join_smallest(&mut self) {
        let all = std::mem::take(&mut self.causes);
        let (mut threads, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_of_one_thread);
        self.causes = others;
        if threads.len() > 2 * KEPT {
            threads.sort_by_key(|cause| Reverse(cause.excess_ns));
            for mut cause in threads.split_off(KEPT) {
                cause.culprit = cause.culprit.as_ref().map(other_threads);
                self.add_cause(&cause);
            }
        }
        self.causes.append(&mut threads);
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

/// Whether the culprit is one of those that come without end; the other kinds are few.
fn is_of_one_thread(cause: &CauseShare) -> bool {
    match &cause.culprit {
        Some(
            who @ (Culprit::Thread { .. }
            | Culprit::OwnThread { .. }
            | Culprit::Worker { .. }
            | Culprit::SharedCpu { .. }
            | Culprit::Chain { .. }),
        ) => *who != other_threads(who),
        _ => false,
    }
}

/// What threads are called together with others of their kind.
fn other_threads(who: &Culprit) -> Culprit {
    let name = nameless(OTHER_THREADS);
    match who {
        Culprit::Worker { .. } => Culprit::Worker {
            name,
            tid: OTHER_THREADS,
        },
        _ => Culprit::Thread {
            name,
            pid: None,
            tid: None,
            process: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::explanation::Cause;

    use super::*;

    fn slow_worker(tid: u32, excess_ns: u64) -> CauseShare {
        CauseShare {
            cause: Cause::SlowService,
            culprit: Some(Culprit::Worker {
                name: "a thread for each connection".into(),
                tid,
            }),
            share: Share::default(),
            excess_share_above_p99: Share::default(),
            excess_ns: Nanos::new(excess_ns),
            requests: 1,
            events: 1,
            mean_event_ns: 0.0,
            median_event_ns: None,
            longest_event_ns: None,
            long_events: None,
            requests_per_event: 1.0,
        }
    }

    #[test]
    fn threads_that_come_without_end_take_no_memory_and_lose_no_time() {
        const ALWAYS_THERE: u32 = 7;
        let mut whole = Totals::default();
        for window in 0..200 {
            whole.add_cause(&slow_worker(ALWAYS_THERE, 100));
            for n in 0..60 {
                whole.add_cause(&slow_worker(1_000 + 60 * window + n, 10));
            }
            whole.join_smallest();
            assert!(whole.causes.len() <= 2 * KEPT + 1, "{}", whole.causes.len());
        }
        let sum: Nanos = whole.causes.iter().map(|cause| cause.excess_ns).sum();
        assert_eq!(sum, Nanos::new(200 * (100 + 60 * 10)));
        let of = |tid| {
            let is_it = |cause: &&CauseShare| matches!(cause.culprit, Some(Culprit::Worker { tid: found, .. }) if found == tid);
            whole.causes.iter().find(is_it).unwrap()
        };
        assert_eq!(of(ALWAYS_THERE).excess_ns, Nanos::new(200 * 100));
        assert!(of(OTHER_THREADS).events > 60 * 200 - 2 * KEPT as u64);
    }

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
