//! A recording in slices against the full one, on a kernel whose truth is known: the requests of the
//! sample have the same accounts.

use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::common::slices::{regular, sliced};
use taillab_analysis::ledger::{Baseline, Entry, Labels};
use taillab_model::explanation::Share;
use taillab_model::summary::ServerResult;
use taillab_model::{MiddleStamps, RecordingContext};

/// What a request was charged.
#[derive(Debug)]
struct Account {
    parts: BTreeMap<(Cause, Option<Culprit>), u64>,
    carried_over: bool,
}

impl Account {
    fn of(entry: &Entry<'_>, labels: &Labels) -> Self {
        let mut parts = BTreeMap::new();
        for &(label, ns) in entry.parts {
            let who = (labels.cause(label), labels.culprit(label));
            *parts.entry(who).or_default() += ns;
        }
        Self {
            parts,
            carried_over: entry.carried_over,
        }
    }

    /// The sum of the differences of their parts.
    fn differs_by(&self, other: &Self) -> u64 {
        let who = self.parts.keys().chain(other.parts.keys());
        let who: BTreeSet<_> = who.collect();
        let of = |account: &Self, who| account.parts.get(who).copied().unwrap_or(0);
        who.into_iter()
            .map(|who| of(self, who).abs_diff(of(other, who)))
            .sum()
    }

    fn unobserved(&self) -> u64 {
        let parts = self.parts.iter();
        let unobserved = parts.filter(|((cause, _), _)| *cause == Cause::Unobserved);
        unobserved.map(|(_, ns)| ns).sum()
    }
}

struct InSlices {
    matched: Matched,
    server: ServerResult,
    baseline: Baseline,
    /// By T1, of the sample.
    accounts: HashMap<Monotonic, Account>,
    left_late: u64,
}

fn analysed(
    plan: &Plan,
    events: &[Event],
    stamps: MiddleStamps,
    baseline: Option<Baseline>,
) -> InSlices {
    let matching = MatchOptions {
        stamps,
        ..MatchOptions::default()
    };
    let context = RecordingContext {
        stamps,
        ..plan.context()
    };
    let matched = match_events(events.iter().copied(), &matching);
    let timeline = Timeline::build(events.iter().copied(), &context);
    let own = Baseline::of(&matched, &timeline, plan.service_time(), None);
    let options = AnalysisOptions {
        baseline,
        ..options(plan)
    };
    let mut analysis = Analysis::new(&context, options);
    let (mut accounts, mut left_late) = (HashMap::new(), 0);
    analysis.push(
        &Arc::new(Window::whole(matched.clone(), timeline)),
        |entry, labels| {
            if entry.asked {
                accounts.insert(entry.stamps.t1, Account::of(entry, labels));
            }
            left_late += u64::from(entry.left_late);
        },
    );
    InSlices {
        matched,
        server: analysis.finish(0).unwrap().unjudged().server,
        baseline: own,
        accounts,
        left_late,
    }
}

fn share_of(server: &ServerResult, cause: Cause) -> Share {
    let whole = |share: &&CauseShare| share.culprit.is_none() && share.cause == cause;
    server
        .causes
        .iter()
        .find(whole)
        .map_or_else(Share::default, |found| found.share)
}

const LENGTH: Nanos = Nanos::from_millis(100);

/// Receive work counts as work out of a pool that may be ahead by four packets of 2.9 µs. How full it is
/// when a slice begins is not known, and what it lacks is missing from one cause and added to another.
const POOLED_NS: u64 = 2 * 4 * 2_900;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever disturbs, and in whichever order the worker takes its requests: an account is that of the
    /// full recording, or says what was not observed, or that the worker was busy since before the slice.
    #[test]
    fn the_accounts_of_a_slice_are_those_of_the_full_recording(
        seed: u64,
        gap in prop::sample::select(vec![25_000.0, 40_000.0]),
        order in prop::sample::select(vec![Order::Fifo, Order::Any(10)]),
        disturbances in prop::sample::subsequence(vec![
            (What::Thread, 20_000_000, 2_000_000),
            (What::Interrupt, 3_000_000, 60_000),
            (What::Softirq(1), 9_000_000, 300_000),
            (What::Stall(true), 30_000_000, 1_500_000),
        ], 0..=3),
        trouble in prop::sample::select(vec![
            None,
            Some((300, Trouble::Slow(400_000))),
            Some((500, Trouble::Sleep { call: Some(202), uninterruptible: false, length: 300_000 })),
        ]),
    ) {
        let plan = Plan {
            seed,
            requests: 30_000,
            gaps: vec![gap],
            order,
            disturbances,
            trouble,
            ..Plan::default()
        };
        let traffic = plan.run();
        let full = analysed(&plan, &traffic.events, MiddleStamps::All, None);
        let slices = regular(&traffic.events, LENGTH, LENGTH * 2);
        let events = sliced(&traffic.events, &slices);
        let stamps = "sampled:1/2".parse().unwrap();
        let sample = analysed(&plan, &events, stamps, Some(full.baseline));
        prop_assert_eq!(sample.matched.requests.len(), full.matched.requests.len());
        prop_assert!(sample.accounts.len() > 1_000);
        let (mut same, mut differ) = (0, Vec::new());
        for (t1, account) in &sample.accounts {
            let of_full = &full.accounts[t1];
            match account.differs_by(of_full) <= POOLED_NS {
                true => same += 1,
                false if account.unobserved() > 0 || account.carried_over => {}
                false => differ.push((t1, account, of_full)),
            }
        }
        prop_assert!(
            differ.is_empty(),
            "{} of {}: {:#?}", differ.len(), sample.accounts.len(), &differ[..differ.len().min(3)]
        );
        // at this load, busy periods from before a slice do not fill half of it
        prop_assert!(same * 2 >= sample.accounts.len(), "{same} of {}", sample.accounts.len());
    }
}

#[test]
fn slices_charge_what_all_requests_are_charged() {
    let plan = Plan {
        requests: 120_000,
        disturbances: vec![
            (What::Thread, 20_000_000, 2_000_000),
            (What::Interrupt, 3_000_000, 60_000),
            (What::Softirq(1), 9_000_000, 300_000),
        ],
        trouble: Some((500, Trouble::Slow(400_000))),
        ..Plan::default()
    };
    let traffic = plan.run();
    let full = analysed(&plan, &traffic.events, MiddleStamps::All, None).server;
    for (text, period) in [("sampled:1/2", 2), ("sampled:1/4", 4)] {
        let stamps: MiddleStamps = text.parse().unwrap();
        let slices = regular(&traffic.events, LENGTH, LENGTH * period);
        let events = sliced(&traffic.events, &slices);
        let found = analysed(&plan, &events, stamps, None);
        let sample = found.server;
        assert_eq!(full.measured.sojourn, sample.measured.sojourn, "{text}");
        assert_eq!(full.ideal.sojourn, sample.ideal.sojourn, "{text}");
        let matching = &sample.matching;
        assert_eq!(matching.slices, slices.len() as u64, "{text}");
        assert_eq!(matching.left_late, found.left_late, "{text}");
        assert_eq!(matching.asked(), found.accounts.len() as u64, "{text}");
        assert_eq!(sample.stages.t2_t3.count, matching.complete, "{text}");
        assert!(
            matching.complete * 1_000 >= matching.asked() * 995,
            "{matching:?}"
        );
        let (one, other) = (full.measured.utilization, sample.measured.utilization);
        assert!(
            (one.unwrap() - other.unwrap()).abs() < 0.02,
            "{one:?} {other:?}"
        );
        for cause in Cause::ALL {
            let (one, other) = (share_of(&full, cause), share_of(&sample, cause));
            let wide = |share: Share| share.hi.unwrap_or(1.0) - share.lo.unwrap_or(0.0);
            let off = (one.value - other.value).abs();
            assert!(
                off <= wide(one).hypot(wide(other)) / 2.0 + 0.002,
                "{text}: {cause:?} is {one:?} of all and {other:?} of the slices"
            );
        }
        let fit = sample.model_fit.as_ref().map(|fit| fit.largest_error);
        assert!(fit.is_some_and(|error| error < 0.15), "{text}: {fit:?}");
    }
}

/// A request that takes longer than the rest of its slice is not lost: what was not seen is unobserved.
#[test]
fn a_request_that_outlasts_its_slice_says_so() {
    let plan = Plan {
        requests: 12_000,
        // not in the rhythm of the slices
        trouble: Some((
            1_300,
            Trouble::Sleep {
                call: Some(202),
                uninterruptible: false,
                length: 60_000_000,
            },
        )),
        gaps: vec![200_000.0],
        ..Plan::default()
    };
    let traffic = plan.run();
    let stamps = "sampled:1/2".parse().unwrap();
    let slices = regular(&traffic.events, LENGTH, LENGTH * 2);
    let found = analysed(&plan, &sliced(&traffic.events, &slices), stamps, None);
    assert!(found.left_late > 0);
    let of_slice = |t1: Monotonic| slices.iter().find(|slice| slice.contains(&t1));
    let requests = &found.matched.requests;
    let mut outlasted = 0;
    for place in 0..requests.len() {
        let (t1, t6) = (requests.t1(place), requests.t6(place));
        let Some(account) = found.accounts.get(&t1) else {
            continue;
        };
        let beyond = t6.saturating_since(of_slice(t1).unwrap().end);
        assert!(
            account.unobserved() + 10_000 >= beyond.get(),
            "{beyond} of {account:?}"
        );
        outlasted += u64::from(beyond.get() > 10_000);
    }
    assert!(outlasted > 0, "{} left late", found.left_late);
}
