use super::*;
use taillab_model::explanation::{
    BurstRoot, Cause, CauseShare, Clustering, Culprit, Explanation, FitPoint, HypervisorSpell,
    Inversions, LongEvents, ModelFit, PredictedPoint, Prediction, Share, Sleeping, SlowOperation,
    SlowRequests, TakenByHypervisor, WorkerShare,
};
use taillab_model::summary::{
    CpuTaken, Exclusions, Ideal, Matching, Measured, Overhead, Overload, ResentResponses,
    ServiceTimeSource, Stages, TakenBy, Withdrawn, WorkersSource,
};
use taillab_model::{Distribution, Nanos, Quantile, Unit};

mod causes;
mod overload;
mod single_events;
mod sleeping;

fn distribution(quantiles: &[(f64, u64)]) -> Distribution {
    let quantile = |&(q, ns): &(f64, u64)| Quantile {
        q,
        value: Some(Nanos::new(ns)),
        lo: None,
        hi: None,
    };
    Distribution {
        unit: Unit::default(),
        count: 12_345,
        mean: None,
        min: None,
        max: None,
        unanswered: 0,
        quantiles: quantiles.iter().map(quantile).collect(),
    }
}

fn share(cause: Cause, culprit: Option<Culprit>, above: f64) -> CauseShare {
    let value = |value| Share {
        value,
        lo: Some(0.9 * value),
        hi: Some(1.05 * value),
    };
    CauseShare {
        cause,
        culprit,
        share: value(above / 2.0),
        excess_share_above_p99: value(above),
        excess_ns: Nanos::from_millis(1),
        requests: 40_280,
        events: 212,
        mean_event_ns: 2_100_000.0,
        median_event_ns: Some(Nanos::from_micros(1_900)),
        longest_event_ns: Some(Nanos::from_millis(4)),
        long_events: None,
        requests_per_event: 190.0,
    }
}

fn thread(name: &str) -> Option<Culprit> {
    Some(Culprit::Thread {
        name: name.to_owned(),
        pid: None,
        tid: None,
        process: None,
    })
}

fn prediction(change: &str, removes: Cause, predicted: u64) -> Prediction {
    Prediction {
        change: change.to_owned(),
        description: "the server's threads under SCHED_FIFO".to_owned(),
        command: Some("sudo taillab tune apply rt-priority -p 4711".to_owned()),
        removes: vec![removes],
        cost: Some("starves others".to_owned()),
        points: vec![PredictedPoint {
            q: 0.999,
            measured_ns: Nanos::new(14_100_000),
            predicted_ns: Nanos::new(predicted),
            lo_ns: Some(Nanos::new(predicted - 10_000)),
            hi_ns: Some(Nanos::new(predicted + 20_000)),
        }],
    }
}

/// The parts of a result, from which the findings are made.
#[derive(Clone)]
struct Case {
    withdrawn: Option<Withdrawn>,
    utilization: f64,
    overload: Option<Overload>,
    sojourn: Distribution,
    ideal: Distribution,
    causes: Vec<CauseShare>,
    predictions: Vec<Prediction>,
    model_fit: Option<ModelFit>,
    clustering: Option<Clustering>,
    bursts: u64,
    burst_roots: Vec<BurstRoot>,
    slow_requests: Option<SlowRequests>,
    hypervisor: Option<TakenByHypervisor>,
    sleeping: Option<Sleeping>,
    workers: Vec<WorkerShare>,
    inversions: Inversions,
    matching: Matching,
    sent_again: Option<ResentResponses>,
    disturbances: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            withdrawn: None,
            utilization: 0.5,
            overload: None,
            sojourn: distribution(&[(0.99, 760_000), (0.999, 14_100_000)]),
            ideal: distribution(&[(0.99, 60_000), (0.999, 102_000)]),
            causes: Vec::new(),
            predictions: Vec::new(),
            model_fit: None,
            clustering: None,
            bursts: 0,
            burst_roots: Vec::new(),
            slow_requests: None,
            hypervisor: None,
            sleeping: None,
            workers: Vec::new(),
            inversions: Inversions::default(),
            matching: Matching::default(),
            sent_again: None,
            disturbances: true,
        }
    }
}

impl Case {
    fn findings(&self) -> Vec<Finding> {
        let none = || distribution(&[]);
        let mut server = ServerResult {
            service_time_ns: Nanos::from_micros(100),
            service_time_source: ServiceTimeSource::default(),
            service_time_lo_ns: None,
            service_time_hi_ns: None,
            sent_again: self.sent_again,
            busy_periods: None,
            busy_periods_by_cpu: Vec::new(),
            measured: Measured {
                sojourn: self.sojourn.clone(),
                server_cpu_busy_share: None,
                utilization: None,
                busy_ns_per_request: None,
                overload: self.overload.clone(),
            },
            ideal: Ideal {
                sojourn: none(),
                of_schedule: None,
                own_work: None,
                workers: 1,
                by_service_time: Vec::new(),
                workers_source: WorkersSource::default(),
                virtual_workers: false,
                utilization: self.utilization,
                withdrawn: self.withdrawn,
            },
            excess: none(),
            stages: Stages {
                t1_t2: none(),
                t2_t3: none(),
                t3_t4: none(),
                t4_t5: none(),
                t5_t6: none(),
            },
            stages_at: Vec::new(),
            matching: self.matching.clone(),
            left_out: Exclusions::default(),
            overhead: Overhead::default(),
            causes: self.causes.clone(),
            ratio: Vec::new(),
            model_fit: self.model_fit.clone(),
            predictions: self.predictions.clone(),
            explanation: Some(Explanation {
                clustering: self.clustering.clone(),
                bursts: self.bursts,
                burst_roots: self.burst_roots.clone(),
                slow_requests: self.slow_requests.clone(),
                hypervisor: self.hypervisor.clone(),
                sleeping: self.sleeping,
                workers: self.workers.clone(),
                inversions: self.inversions.clone(),
                ..Explanation::default()
            }),
        };
        add(&mut server, &self.ideal, self.disturbances);
        server.explanation.unwrap().findings
    }

    fn texts(&self) -> Vec<String> {
        let found = self.findings().into_iter();
        found.map(|finding| finding.text).collect()
    }
}

/// Eight clients of Node.js that waited for their answers: p99 2.43 ms, and an ideal of 38.3 ms.
/// "Within a factor of 0.06: no setting can gain much" was the advice.
#[test]
fn a_withdrawn_comparison_gives_no_advice() {
    let case = Case {
        withdrawn: Some(Withdrawn::ClientsWait { at_once: 8 }),
        sojourn: distribution(&[(0.99, 2_430_000), (0.999, 2_700_000)]),
        ideal: distribution(&[]),
        inversions: Inversions {
            overtaken: 400,
            share: 0.03,
            pairs: Vec::new(),
        },
        ..Case::default()
    };
    let dpkg = Culprit::SystemCall {
        name: "dpkg".to_owned(),
    };
    let mut single = share(Cause::BlockedIo, Some(dpkg), 0.6);
    single.events = 1;
    let explained = Case {
        causes: vec![
            share(Cause::BlockedIo, None, 0.6),
            single,
            share(Cause::SlowService, None, 0.2),
            share(Cause::Unexplained, None, 0.2),
            share(Cause::Unobserved, None, 0.2),
        ],
        slow_requests: Some(SlowRequests {
            requests: 12,
            operations: Vec::new(),
            mean_own_ns: Nanos::from_millis(33),
            others_own_ns: Nanos::from_micros(52),
            delayed: 0,
            mean_delay_ns: Nanos::ZERO,
        }),
        ..case.clone()
    };
    let told = explained.texts().concat();
    // the causes stay, as shares of what delayed requests
    assert_eq!(told.matches("of the delays above p99").count(), 5, "{told}");
    let found = [case.findings(), explained.findings()].concat();
    assert!(!found.is_empty());
    for Finding { text, advice, .. } in &found {
        assert!(
            !text.contains("factor") && !text.contains("excess"),
            "{text}"
        );
        assert!(
            !advice.as_deref().unwrap_or("").contains("excess"),
            "{advice:?}"
        );
    }
}

#[test]
fn the_main_cause_is_named_with_its_culprits_its_forecast_and_a_command() {
    let case = Case {
        causes: vec![
            share(Cause::Softirq, None, 0.06),
            share(Cause::Background, None, 0.93),
            CauseShare {
                events: 200,
                ..share(Cause::Background, thread("kworker/0:1"), 0.6)
            },
            CauseShare {
                events: 12,
                mean_event_ns: 0.0,
                ..share(Cause::Background, thread("dpkg"), 0.3)
            },
            share(Cause::Background, thread("cron"), 0.01),
            share(Cause::Irq, None, 0.01),
        ],
        predictions: vec![
            prediction("rt-priority", Cause::Background, 130_000),
            prediction("slice", Cause::Background, 900_000),
            prediction("irq-affinity", Cause::Irq, 100_000),
        ],
        ..Case::default()
    };
    let findings = case.findings();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert_eq!(
        findings[0].text,
        "`kworker/0:1` and `dpkg` on the core: 212 times, 1.98 ms each, delayed 40,280 requests, \
         93 % of the excess above p99; p99.9 with `rt-priority`: 130 µs."
    );
    assert_eq!(
        findings[0].advice.as_deref(),
        Some("sudo taillab tune apply rt-priority -p 4711")
    );
    assert_eq!(
        findings[1].text,
        "Softirqs on the server's core, for other requests' packets: 212 times, 2.10 ms each, \
         delayed 40,280 requests, 6 % of the excess above p99."
    );
    assert!(findings.iter().all(|finding| !finding.inconclusive));
}

#[test]
fn a_cause_whose_interval_reaches_0_may_be_none() {
    let mut once = share(Cause::Hypervisor, None, 0.45);
    once.events = 1;
    (
        once.excess_share_above_p99.lo,
        once.excess_share_above_p99.hi,
    ) = (Some(0.0), Some(0.93));
    let case = Case {
        causes: vec![once.clone()],
        ..Case::default()
    };
    let finding = &case.findings()[0];
    assert_eq!(
        finding.text,
        "The hypervisor, which took the server's CPU away: once, for 2.10 ms, delayed 40,280 requests, \
         45 % (0 to 93 %) of the excess above p99; too few bursts to be sure of it."
    );
    assert!(finding.inconclusive && finding.advice.as_deref() == Some("Measure for longer (-d)."));
    // it follows the causes that were found, also smaller ones, and no change is advised
    let mut background = share(Cause::Background, None, 0.3);
    background.events = 0;
    let mut dpkg = share(Cause::Background, thread("dpkg"), 0.3);
    dpkg.events = 0;
    let case = Case {
        causes: vec![once, dpkg, background],
        predictions: vec![prediction("rt-priority", Cause::Hypervisor, 100_000)],
        ..Case::default()
    };
    let findings = case.findings();
    assert!(!findings[0].inconclusive && findings[1].inconclusive);
    let [dpkg, hypervisor] = [&findings[0].text, &findings[1].text];
    // what was not counted is told by its requests
    let said =
        "`dpkg` on the core: delayed 40,280 requests by 25 ns each, 30 % of the excess above p99.";
    assert_eq!(dpkg, said);
    assert!(hypervisor.contains("too few bursts to be sure of it."));
    assert!(!hypervisor.contains("rt-priority"));
}

#[test]
fn a_forecast_that_gains_nothing_is_no_advice() {
    let case = Case {
        causes: vec![share(Cause::Background, None, 0.9)],
        predictions: vec![prediction("rt-priority", Cause::Background, 14_000_000)],
        ..Case::default()
    };
    let findings = case.findings();
    assert!(!findings[0].text.contains("rt-priority"), "{findings:?}");
    assert_eq!(findings[0].advice, None);
}

#[test]
fn a_cause_that_no_setting_removes_says_so() {
    let case = Case {
        causes: vec![share(Cause::Hypervisor, None, 0.7)],
        ..Case::default()
    };
    let finding = &case.findings()[0];
    assert!(
        finding
            .text
            .ends_with("delayed 40,280 requests, 70 % of the excess above p99.")
    );
    assert!(
        finding
            .advice
            .as_ref()
            .unwrap()
            .starts_with("No setting of this machine")
    );
}

#[test]
fn a_server_near_its_ideal_is_left_alone() {
    let case = Case {
        sojourn: distribution(&[(0.999, 120_000)]),
        ..Case::default()
    };
    assert_eq!(
        case.texts(),
        [
            "p99.9 is 120 µs, ideal 102 µs: within a factor of 1.18. No setting can gain much \
             here; \
          a lower load or more workers would."
        ]
    );
}

/// A server that answers in batches was held against a t of single requests: p99 1.10 ms beside an ideal of 503 ms was
/// "within a factor of 0.00".
#[test]
fn a_percentile_far_below_the_ideal_is_no_praise_of_the_server() {
    let of = |ns: u64| Case {
        sojourn: distribution(&[(0.999, ns)]),
        ..Case::default()
    };
    assert!(of(50_000).texts().is_empty());
    assert!(
        of(98_000).texts()[0]
            .starts_with("p99.9 is 98.0 µs, ideal 102 µs: no longer than that. No setting")
    );
}

/// A loop beside the generator: what was due is sent in bursts of milliseconds.
#[test]
fn bursts_of_arrivals_are_told_from_what_the_server_adds() {
    let case = |ideal: u64, utilization| Case {
        sojourn: distribution(&[(0.99, 5_500_000)]),
        ideal: distribution(&[(0.99, ideal)]),
        utilization,
        ..Case::default()
    };
    let texts = case(4_000_000, 0.5).texts();
    let accident = Case {
        ideal: distribution(&[(0.9, 290_000), (0.99, 4_000_000)]),
        ..case(0, 0.5)
    };
    // M/D/1 at 50 %: p99 is 4.34 service times of 100 µs
    assert_eq!(
        texts[1],
        "Requests arrive in bursts: fed with them, even the ideal queue has p99 4.00 ms (measured 5.50 ms); fed with \
         independent (Poisson) arrivals at the same rate, it has 434 µs."
    );
    let told = |case: Case| case.texts().iter().any(|text| text.contains("in bursts"));
    // independent arrivals, nearly; an ideal that is a small part; more work than the workers can do
    for other in [
        case(700_000, 0.5),
        case(1_500_000, 0.5),
        case(4_000_000, 1.2),
    ] {
        assert!(!told(other));
    }
    assert!(told(case(2_000_000, 0.5)));
    // one crowd of requests among independent ones
    assert!(!told(accident));
}

#[test]
fn responses_that_were_sent_again_are_told_with_how_much_later_that_was() {
    let told = |responses| {
        let case = Case {
            causes: Vec::new(),
            sent_again: Some(ResentResponses {
                responses,
                segments: responses + 1,
                median_ns: Nanos::from_millis(204),
                longest_ns: Nanos::from_millis(612),
            }),
            ..Case::default()
        };
        let finding = case.findings().pop().unwrap();
        assert_eq!(finding.key.as_deref(), Some("sent_again"));
        finding.text
    };
    assert_eq!(
        told(12),
        "12 responses were sent again, 204 ms later at the median, 612 ms at most. A client whose first packet was \
         lost waited for that; the sojourn ends before."
    );
    assert!(told(1).starts_with("1 response was sent again, 204 ms later. A client"));
}

#[test]
fn a_median_near_the_ideal_does_not_vouch_for_the_tail() {
    let case = Case {
        sojourn: distribution(&[(0.5, 52_000), (0.9, 60_000)]),
        ideal: distribution(&[(0.5, 50_000), (0.9, 58_000), (0.99, 60_000)]),
        ..Case::default()
    };
    assert!(case.texts().is_empty());
}

#[test]
fn what_is_not_explained_is_inconclusive_and_says_what_to_measure() {
    let mut case = Case {
        causes: vec![
            share(Cause::Unexplained, None, 0.4),
            share(Cause::Unobserved, None, 0.2),
        ],
        ..Case::default()
    };
    case.matching.blind_windows = 1_318;
    case.matching.blind_ns = Nanos::from_millis(41);
    let findings = case.findings();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.inconclusive));
    assert_eq!(
        findings[0].text,
        "40 % of the excess above p99 has no recorded cause."
    );
    let advice = findings[0].advice.as_deref().unwrap();
    assert!(advice.contains("leave taillab a CPU"), "{advice}");
    assert_eq!(
        findings[1].text,
        "20 % of the excess above p99 falls into times when the probe was blind: 1,318 windows, \
         41.0 ms on all CPUs together, 0 lost events."
    );
    case.matching.blind_windows = 0;
    assert_eq!(
        case.findings()[1].text,
        "20 % of the excess above p99 falls into times of which it is not known what the CPU did, or \
         which thread served."
    );
    case.disturbances = false;
    let findings = case.findings();
    let again = "Record again with `--disturbances all`.";
    assert_eq!(findings[0].advice.as_deref(), Some(again));
    assert_eq!(findings[2].advice.as_deref(), Some(again));
}

#[test]
fn what_lies_between_slices_is_not_called_blind() {
    let case = Case {
        causes: vec![share(Cause::Unobserved, None, 0.2)],
        matching: Matching {
            stamps: "sampled:1/2".parse().unwrap(),
            left_late: 7,
            ..Matching::default()
        },
        ..Case::default()
    };
    let finding = &case.findings()[0];
    let said = "20 % of the excess above p99 falls into times between slices: 7 requests left";
    assert!(finding.text.starts_with(said), "{finding:?}");
    assert!(finding.advice.as_ref().unwrap().contains("--stamps all"));
}

#[test]
fn a_poor_fit_says_where_it_fails() {
    let point = |q, measured, replayed, error| FitPoint {
        q,
        measured_ns: Nanos::new(measured),
        replayed_ns: Nanos::new(replayed),
        error,
    };
    let mut fit = ModelFit {
        model: "1 worker, first come first served (by T2)".to_owned(),
        largest_error: 0.42,
        points: vec![
            point(0.5, 100, 101, 0.01),
            point(0.99, 100_000, 58_000, -0.42),
        ],
        largest_borne: 0.05,
        good: false,
    };
    let case = |fit: &ModelFit| Case {
        model_fit: Some(fit.clone()),
        ..Case::default()
    };
    assert_eq!(
        case(&fit).texts(),
        [
            "No forecasts of p99: the replayed queue gives p99 58.0 µs where 100 µs was measured, an \
             error of 42 %; more than 5 % is too much."
        ]
    );
    // p90 has no forecasts anyway
    fit.points[1].q = 0.9;
    assert!(case(&fit).texts().is_empty());
}

#[test]
fn a_forecast_that_reaches_what_was_measured_decides_nothing() {
    let text = |hi_ns| {
        let mut forecast = prediction("rt-priority", Cause::Background, 130_000);
        forecast.points[0].hi_ns = Some(Nanos::new(hi_ns));
        let case = Case {
            causes: vec![share(Cause::Background, None, 0.9)],
            predictions: vec![forecast],
            ..Case::default()
        };
        case.texts().remove(0)
    };
    let unsure = "; `rt-priority` may help (p99.9 120 µs to 14.1 ms).";
    assert!(text(14_100_000).ends_with(unsure));
    assert!(text(14_099_999).ends_with("; p99.9 with `rt-priority`: 130 µs."));
}

#[test]
fn a_lower_percentile_that_is_sure_is_told_before_a_higher_one_that_is_not() {
    let mut forecast = prediction("rt-priority", Cause::Background, 130_000);
    forecast.points[0].hi_ns = Some(Nanos::new(14_100_000));
    forecast.points.insert(
        0,
        PredictedPoint {
            q: 0.99,
            measured_ns: Nanos::from_millis(4),
            predicted_ns: Nanos::from_micros(90),
            lo_ns: Some(Nanos::from_micros(80)),
            hi_ns: Some(Nanos::from_micros(110)),
        },
    );
    let case = Case {
        causes: vec![share(Cause::Background, None, 0.9)],
        predictions: vec![forecast],
        ..Case::default()
    };
    let text = case.texts().remove(0);
    assert!(
        text.ends_with("; p99 with `rt-priority`: 90.0 µs."),
        "{text}"
    );
}

#[test]
fn bursts_and_single_events_have_different_sentences() {
    let case = |in_runs_share, mean_episode_requests| Case {
        clustering: Some(Clustering {
            q: 0.99,
            autocorrelation: Vec::new(),
            in_runs_share,
            episodes: 1_012,
            mean_episode_requests,
        }),
        ..Case::default()
    };
    assert_eq!(
        case(0.84, 2_187.4).texts(),
        [
            "Slow requests come in bursts: 84 % of those above p99 come in runs, 1,012 bursts of \
          2,187 requests on average. Each burst is one event that delays many."
        ]
    );
    let mut single = case(0.84, 833.0);
    single.clustering.as_mut().unwrap().episodes = 1;
    assert!(single.texts()[0].contains(" 1 burst of 833 requests"));
    // next to each other, but no event that delays many
    assert!(case(1.0, 1.2).texts()[0].starts_with("Slow requests come next to each other: 100 %"));
    assert!(case(0.1, 1.0).texts()[0].starts_with("Slow requests come one at a time: only 10 %"));
}

#[test]
fn uneven_workers_matter_only_where_requests_wait_for_them() {
    let worker = |tid, requests, busy_share| WorkerShare {
        tid,
        name: "nginx".to_owned(),
        requests,
        busy_share,
        mean_sojourn_ns: 0.0,
    };
    let mut case = Case {
        workers: vec![worker(11, 750, 0.9), worker(12, 250, 0.3)],
        ..Case::default()
    };
    assert!(case.texts().is_empty());
    case.causes = vec![share(Cause::Imbalance, None, 0.5)];
    let texts = case.texts();
    assert_eq!(
        texts[1],
        "The workers are uneven: nginx (thread 11) served 75 % of the requests and was busy 90 % \
         of the time, nginx (thread 12) 25 % and 30 %."
    );
}

#[test]
fn overtaking_is_told_with_its_share() {
    let mut case = Case {
        causes: vec![share(Cause::Order, None, 0.0)],
        inversions: Inversions {
            overtaken: 5_120,
            share: 0.041,
            pairs: vec![(21, 22, 1_300)],
        },
        ..Case::default()
    };
    let findings = case.findings();
    assert_eq!(
        findings[0].text,
        "5,120 requests (4 %) were overtaken by a later one of the same worker."
    );
    assert_eq!(
        findings[0].advice.as_deref(),
        Some("It accounts for 0 % of the excess above p99: there is no need to change it.")
    );
    // withdrawn causes leave nothing to say about its share
    case.causes.clear();
    assert_eq!(case.findings()[0].advice, None);
}

#[test]
fn a_spell_of_stalls_is_named_with_its_times() {
    let spell = HypervisorSpell {
        from_ns: Nanos::from_secs(4),
        length_ns: Nanos::from_secs(3),
        stalls: 75,
        share: 0.05,
    };
    let case = |spells, share| Case {
        hypervisor: Some(TakenByHypervisor {
            share,
            stalls: 1_076,
            spells,
        }),
        ..Case::default()
    };
    assert_eq!(
        case(vec![spell], 0.0153).texts(),
        [
            "The hypervisor took the server's CPU in a spell: from 4.00 s to 7.00 s (75 stalls, 5 %); \
          in all 2 % of the time."
        ]
    );
    assert_eq!(
        case(Vec::new(), 0.07).texts(),
        ["The hypervisor took 7 % of the server's CPU time throughout, in 1,076 stalls."]
    );
    assert!(case(Vec::new(), 0.002).texts().is_empty());
    assert!(case(vec![spell], 0.002).texts().is_empty());
}
