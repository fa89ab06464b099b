//! What the benchmark found, and whether it is good enough. The shape of its JSON is
//! `schemas/bench-causes.schema.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use taillab_load::ground_truth::InjectedSource;
use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::block::{OccurrenceSum, RequestCharge};
use super::criteria::{CHARGE_TOLERANCE, IMPOSSIBLE, IMPOSSIBLE_TOLERANCE, MOST_BY_CHANCE};
use super::forecast::Forecast;
use super::judge::{Criterion, Verdict, overall};
use super::kind::{CauseKind, Fix, Oracle};
use super::pair::{Pair, PairResult};
use super::setup::Setup;

/// The version of the JSON's shape.
const SCHEMA_VERSION: u32 = 2;

/// The whole benchmark, as it is printed with `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BenchResult {
    /// Version of this shape.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    schema_version: u32,
    /// Always `causes`.
    #[schemars(extend("const" = "causes"))]
    command: &'static str,
    /// Each kind, in the order in which they ran.
    pub kinds: Vec<KindResult>,
    /// Kinds that ran.
    pub ran: u32,
    /// Those of them that passed.
    pub passed: u32,
    /// Those of them that failed; the others are inconclusive.
    pub failed: u32,
    /// Interrupted, or ended by a failure, before all had run.
    pub partial: bool,
}

/// One kind.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"not_run": {"type": "null"}}},
    "then" = {"required": ["verdict"]},
    "else" = {"properties": {"verdict": false}},
))]
pub struct KindResult {
    /// Its name on the command line.
    #[schemars(extend("enum" = CauseKind::names()))]
    pub kind: String,
    /// Why it could not be run here; `None` when it ran.
    pub not_run: Option<String>,
    /// What was measured; `None` when it did not run.
    #[serde(flatten)]
    pub measured: Option<Measured>,
}

/// One kind that ran.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// The worst of the criteria; inconclusive where most pairs are contaminated.
    pub verdict: Verdict,
    /// What was judged.
    pub criteria: Vec<Criterion>,
    /// What was injected, as it was asked for: `background:20ms,3ms`, with its right cause and
    /// culprit; empty for the control.
    pub injected: Vec<Injected>,
    /// Every pair of blocks, in the order in which they were measured.
    pub pairs: Vec<PairResult>,
    /// The share of the pairs that are contaminated.
    #[schemars(range(min = 0, max = 1))]
    pub contaminated_share: f64,
    /// t of the ideal queue.
    pub service_time_ns: Nanos,
    /// Events that the probe lost.
    pub lost_events: u64,
    /// By how much more was charged to each cause with the injection than without, as a share of the
    /// delay that the client saw; of the control, as a share of the excess. Causes without a charge
    /// are left out. The rest of the delay was seen by the client only.
    pub changes: BTreeMap<&'static str, f64>,
    /// Whether the right requests were charged; `None` where nothing says what it cost each.
    pub by_request: Option<ByRequest>,
    /// Predicted against measured, where asked for.
    pub forecast: Option<Forecast>,
}

/// One thing that was injected.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Injected {
    /// As it was asked for.
    pub injected: String,
    /// The right cause.
    pub cause: Cause,
    /// The right culprit's name; `None` where the cause says it all.
    pub culprit: Option<String>,
}

/// Charge and truth of single requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ByRequest {
    /// Σ |charged − truth| ÷ Σ truth.
    pub error: f64,
    /// The correlation of charge and truth.
    pub correlation: f64,
}

impl BenchResult {
    /// The result of these kinds.
    pub fn new(kinds: Vec<KindResult>, partial: bool) -> Self {
        let ran = kinds.iter().filter_map(|kind| kind.measured.as_ref());
        let count = |verdict| ran.clone().filter(|it| it.verdict == verdict).count() as u32;
        Self {
            schema_version: SCHEMA_VERSION,
            command: "causes",
            ran: ran.clone().count() as u32,
            passed: count(Verdict::Pass),
            failed: count(Verdict::Fail),
            partial,
            kinds,
        }
    }
}

impl Measured {
    /// Judges what was charged in these pairs and, where `fix` is given, what was predicted.
    pub fn judge(setup: &Setup, pairs: &[Pair], fix: Option<&Fix>) -> Self {
        let results: Vec<PairResult> = pairs.iter().map(|pair| pair.result(setup)).collect();
        let sums: Vec<(f64, f64)> = (results.iter())
            .map(|pair| (pair.charged_ns, pair.delay_ns))
            .collect();
        let requests: Vec<&[RequestCharge]> = pairs
            .iter()
            .map(|pair| pair.with.requests.as_slice())
            .collect();
        let mut criteria = match setup.oracle {
            Oracle::Nothing => control(pairs),
            Oracle::Outside => vec![Criterion::of_charge("charge", 0.0, &sums)],
            _ => vec![Criterion::of_charge("charge", 1.0, &sums)],
        };
        criteria.extend(second_ideal(setup, pairs, &results));
        criteria.extend(shadow(setup, pairs, &results));
        criteria.extend(told(setup, pairs));
        criteria.extend(by_source(&results));
        criteria.extend(placebo(&requests));
        let forecast = fix.map(|fix| Forecast::of(fix, pairs));
        criteria.extend(forecast.iter().flat_map(Forecast::criteria));
        let contaminated = results.iter().filter(|pair| pair.contaminated).count();
        let contaminated_share = contaminated as f64 / results.len().max(1) as f64;
        let delay: f64 = match setup.oracle {
            Oracle::Nothing => pairs.iter().map(Pair::excess).sum(),
            _ => sums.iter().map(|(_, delay)| delay).sum(),
        };
        let blocks = || pairs.iter().flat_map(|pair| [&pair.with, &pair.without]);
        let truth = pairs.first().map(|pair| &pair.with.truth.injected);
        Self {
            verdict: overall(&criteria, contaminated_share),
            criteria,
            injected: (truth.into_iter())
                .flat_map(|truth| setup.sources(truth))
                .map(Injected::from)
                .collect(),
            pairs: results,
            contaminated_share,
            service_time_ns: blocks()
                .next()
                .map_or(Nanos::ZERO, |block| block.service_time),
            lost_events: blocks().map(|block| block.lost_events).sum(),
            changes: changes(pairs, delay),
            by_request: ByRequest::of(&requests),
            forecast,
        }
    }
}

impl From<InjectedSource> for Injected {
    fn from(source: InjectedSource) -> Self {
        Self {
            injected: source.injected,
            cause: source.cause,
            culprit: source.culprit.map(|culprit| culprit.to_string()),
        }
    }
}

/// Criteria for two blocks without an injection, as shares of the excess: no cause may differ between
/// them, and what is impossible may be charged in neither.
fn control(pairs: &[Pair]) -> Vec<Criterion> {
    let of = |value: &dyn Fn(&Pair) -> f64| -> Vec<(f64, f64)> {
        pairs
            .iter()
            .map(|pair| (value(pair), pair.excess()))
            .collect()
    };
    let in_both = |pair: &Pair, cause| {
        f64::midpoint(pair.with.charged_to(cause), pair.without.charged_to(cause))
    };
    let differences = Cause::ALL.into_iter().map(|cause| {
        let pairs = of(&|pair| pair.change_of(cause));
        Criterion::of_nothing(cause.key(), CHARGE_TOLERANCE, &pairs)
    });
    let impossible = IMPOSSIBLE.into_iter().map(|cause| {
        let pairs = of(&|pair| in_both(pair, cause));
        let what = format!("{} in both", cause.key());
        Criterion::of_nothing(&what, IMPOSSIBLE_TOLERANCE, &pairs)
    });
    differences.chain(impossible).collect()
}

/// A criterion for the second ideal, where it must have the delay, too.
fn second_ideal(setup: &Setup, pairs: &[Pair], results: &[PairResult]) -> Option<Criterion> {
    let of = |(pair, result): (&Pair, &PairResult)| Some((pair.longer_ideal()?, result.delay_ns));
    let sums: Vec<(f64, f64)> = pairs.iter().zip(results).filter_map(of).collect();
    (setup.told.second_ideal).then(|| Criterion::of_second_ideal(&sums))
}

/// A criterion for the shadow of slow requests, where that must be the delay.
fn shadow(setup: &Setup, pairs: &[Pair], results: &[PairResult]) -> Option<Criterion> {
    let of = |(pair, result): (&Pair, &PairResult)| Some((pair.longer_shadow()?, result.delay_ns));
    let sums: Vec<(f64, f64)> = pairs.iter().zip(results).filter_map(of).collect();
    (setup.told.shadow).then(|| Criterion::of_shadow(&sums))
}

/// Criteria for what the result tells of the injection, besides its charge.
fn told(setup: &Setup, pairs: &[Pair]) -> Vec<Criterion> {
    let pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.with.is_told).collect();
    let of = |value: &dyn Fn(&OccurrenceSum) -> f64| -> Vec<(f64, f64)> {
        let both = pairs
            .iter()
            .map(|pair| (&pair.with.found, &pair.with.logged));
        both.map(|(found, logged)| (value(found), value(logged)))
            .collect()
    };
    let mut criteria = Vec::new();
    if setup.told.events {
        let times = of(&|happened| happened.times as f64);
        let lengths = of(&|happened| happened.length_ns);
        criteria.push(Criterion::of_events("events", &times));
        criteria.push(Criterion::of_events("length of events", &lengths));
        criteria.extend(by_asker(&pairs));
    }
    if setup.told.first {
        let first = pairs.iter().filter(|pair| pair.with.is_first).count();
        let what = "first finding";
        criteria.push(Criterion::of_intervals(
            what,
            first as u32,
            pairs.len() as u32,
        ));
    }
    criteria
}

/// A criterion for the log of a server that asks another one, where that has a log, too: single requests have their truth
/// from the first.
fn by_asker(pairs: &[&Pair]) -> Option<Criterion> {
    let of = |pair: &&Pair| {
        let asker = pair.with.logged_by_asker?;
        Some((asker.length_ns, pair.with.logged.length_ns))
    };
    let sums: Vec<(f64, f64)> = pairs.iter().filter_map(of).collect();
    (!sums.is_empty()).then(|| Criterion::of_events("length by the asker", &sums))
}

/// A criterion for each of several injections.
fn by_source(pairs: &[PairResult]) -> Vec<Criterion> {
    let several = pairs.iter().map(|pair| pair.by_source.len()).max();
    let one = |source: usize| {
        let of = pairs.iter().filter_map(|pair| pair.by_source.get(source));
        let cause = of.clone().next().map_or("", |it| it.cause.key());
        let sums: Vec<(f64, f64)> = of.map(|it| (it.charged_ns, it.delay_ns)).collect();
        Criterion::of_charge(&format!("charge to {cause}"), 1.0, &sums)
    };
    (0..several.unwrap_or(0)).map(one).collect()
}

fn changes(pairs: &[Pair], of: f64) -> BTreeMap<&'static str, f64> {
    let change = |cause: Cause| {
        let change: f64 = pairs.iter().map(|pair| pair.change_of(cause)).sum();
        (change != 0.0 && of != 0.0).then(|| (cause.key(), change / of))
    };
    Cause::ALL.into_iter().filter_map(change).collect()
}

/// The truth, shifted in time against the charges: any correlation is then chance. `None` if single
/// requests have no truth.
fn placebo(blocks: &[&[RequestCharge]]) -> Option<Criterion> {
    /// The number of shifts, from an eighth of a block to seven eighths. They are spread by the golden section, so that a
    /// periodic injection is in step with as few of them as by chance: of seven at even distances, an injection into each
    /// hundredth request was with three.
    const SHIFTS: usize = 64;
    const GOLDEN_SECTION: f64 = 0.618_033_988_75;
    blocks.iter().any(|requests| !requests.is_empty()).then(|| {
        let shifted = |requests: &&[RequestCharge]| {
            let of = |shift: usize| {
                let place = (shift as f64 * GOLDEN_SECTION).fract();
                let by = (requests.len() as f64 * (0.125 + 0.75 * place)) as usize;
                correlation(requests.iter().enumerate().map(|(place, request)| {
                    let truth = requests[(place + by) % requests.len()].truth;
                    RequestCharge { truth, ..*request }
                }))
            };
            let mean = (0..SHIFTS).map(of).sum::<f64>() / SHIFTS as f64;
            (mean, 1.0)
        };
        let shifted: Vec<(f64, f64)> = blocks.iter().map(shifted).collect();
        Criterion::of_nothing("placebo", MOST_BY_CHANCE, &shifted)
    })
}

impl ByRequest {
    fn of(blocks: &[&[RequestCharge]]) -> Option<Self> {
        let requests = || blocks.iter().copied().flatten();
        let truth: f64 = requests().map(|it| it.truth.get() as f64).sum();
        let wrong: f64 = requests()
            .map(|it| it.charged.get().abs_diff(it.truth.get()) as f64)
            .sum();
        (truth > 0.0).then(|| Self {
            error: wrong / truth,
            correlation: correlation(requests().copied()),
        })
    }
}

/// Pearson's correlation of charge and truth; 0 where one of them is always the same.
fn correlation(requests: impl Iterator<Item = RequestCharge>) -> f64 {
    let (mut n, mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for request in requests {
        let (charged, truth) = (request.charged.as_secs_f64(), request.truth.as_secs_f64());
        n += 1.0;
        x += charged;
        y += truth;
        xx += charged * charged;
        yy += truth * truth;
        xy += charged * truth;
    }
    let spread = ((n * xx - x * x) * (n * yy - y * y)).max(0.0).sqrt();
    if spread > 0.0 {
        (n * xy - x * y) / spread
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use taillab_load::ground_truth::GroundTruth;
    use taillab_model::explanation::Culprit;

    use super::super::block::{Block, BlockTruth, Charge, ClientBlock};
    use super::*;

    /// A block of 100 requests with these charges; each request took `us` µs at the client.
    fn block(us: u64, charges: &[(Cause, u64)], sources: &[InjectedSource]) -> Block {
        Block {
            truth: BlockTruth {
                injected: GroundTruth {
                    sources: sources.to_vec(),
                    ..GroundTruth::default()
                },
                client: ClientBlock {
                    sojourns_ns: vec![Some(Nanos::from_micros(us)); 100],
                    ..ClientBlock::default()
                },
                ..BlockTruth::default()
            },
            charges: (charges.iter())
                .map(|(cause, us)| Charge {
                    cause: *cause,
                    culprit: Some(Culprit::Softirq {
                        name: "NET_RX".to_owned(),
                    }),
                    excess: Nanos::from_micros(*us),
                })
                .collect(),
            ..Block::default()
        }
    }

    /// Eight pairs in which the injection cost 100 requests 10 µs each, with these charges.
    fn judged(charges: &[(Cause, u64)]) -> Measured {
        let setup = Setup::of(CauseKind::Background);
        let source = InjectedSource {
            injected: "background:1ms,1ms".to_owned(),
            cause: Cause::Background,
            culprit: None,
        };
        let pair = |pair: u64| Pair {
            with: block(30 + pair, charges, std::slice::from_ref(&source)),
            without: block(20 + pair, &[(Cause::Wakeup, 100)], &[]),
        };
        let pairs: Vec<Pair> = (0..8).map(pair).collect();
        Measured::judge(&setup, &pairs, None)
    }

    #[test]
    fn the_charge_must_be_what_the_client_saw() {
        let good = judged(&[(Cause::Background, 950), (Cause::Wakeup, 150)]);
        assert_eq!(good.verdict, Verdict::Pass);
        assert_eq!(good.changes["background"], 0.95);
        assert_eq!(good.changes["wakeup"], 0.05);
        assert_eq!(good.pairs[0].delay_ns, 1e6);
        for charges in [
            &[(Cause::Background, 1_150)][..],
            &[(Cause::Background, 800), (Cause::Wakeup, 300)],
            &[(Cause::Unobserved, 1_000)],
        ] {
            assert_eq!(judged(charges).verdict, Verdict::Fail, "{charges:?}");
        }
    }

    /// Bursts that cost 600 µs and slow requests that cost 400 µs, with these charges in µs.
    fn judged_two(background: u64, slow: u64) -> Measured {
        let source = |cause| InjectedSource {
            injected: "made up".to_owned(),
            cause,
            culprit: None,
        };
        let sources = [source(Cause::Background), source(Cause::SlowService)];
        let charges = [(Cause::Background, background), (Cause::SlowService, slow)];
        let pair = || Pair {
            with: Block {
                // twice as much by their own stamps; the client's delay is divided in proportion
                costs_ns: vec![1.2e6, 0.8e6],
                ..block(30, &charges, &sources)
            },
            without: block(20, &[], &[]),
        };
        let pairs: Vec<Pair> = (0..8).map(|_| pair()).collect();
        Measured::judge(&Setup::of(CauseKind::Two), &pairs, None)
    }

    #[test]
    fn of_two_each_must_be_charged_what_it_cost() {
        let good = judged_two(620, 390);
        assert_eq!(good.verdict, Verdict::Pass);
        let of = |measured: &Measured, what: &str| {
            let mut criteria = measured.criteria.iter();
            criteria.find(|it| it.what == what).unwrap().verdict
        };
        assert_eq!(good.pairs[0].by_source[1].delay_ns, 4e5);
        assert_eq!(of(&good, "charge to slow_service"), Verdict::Pass);
        // the sum is right, but each is charged for the other
        let mixed = judged_two(400, 600);
        assert_eq!(of(&mixed, "charge"), Verdict::Pass);
        assert_eq!(of(&mixed, "charge to background"), Verdict::Fail);
        assert_eq!(of(&mixed, "charge to slow_service"), Verdict::Fail);
        assert_eq!(mixed.verdict, Verdict::Fail);
    }

    #[test]
    fn what_a_server_is_charged_for_its_generator_fails() {
        let source = [InjectedSource {
            injected: "background:8ms,120ms".to_owned(),
            cause: Cause::Background,
            culprit: None,
        }];
        let judged = |with: &[(Cause, u64)]| {
            let pair = || Pair {
                with: block(30, with, &source),
                without: block(20, &[(Cause::Wakeup, 100)], &[]),
            };
            let pairs: Vec<Pair> = (0..8).map(|_| pair()).collect();
            Measured::judge(&Setup::of(CauseKind::Generator), &pairs, None).verdict
        };
        assert_eq!(judged(&[(Cause::Wakeup, 120)]), Verdict::Pass);
        // whatever the cause
        assert_eq!(judged(&[(Cause::Wakeup, 400)]), Verdict::Fail);
        assert_eq!(judged(&[(Cause::Hypervisor, 400)]), Verdict::Fail);
    }

    #[test]
    fn contamination_is_told_by_steal_and_the_generators_clock_alone_and_counts_all_the_same() {
        let pair = |stolen_share: f64, late_share: f64| {
            let mut with = block(30, &[(Cause::Background, 1_000)], &[]);
            with.truth.client.stolen_share = stolen_share;
            with.truth.client.late_share = late_share;
            // lost events are no evidence of contamination
            with.lost_events = 1_000;
            Pair {
                with,
                without: block(20, &[(Cause::Hypervisor, 900)], &[]),
            }
        };
        let of = |kind, pair: &Pair| pair.result(&Setup::of(kind)).contaminated;
        for (stolen, late, contaminated) in [
            (0.0, 0.0, false),
            (0.05, 0.05, false),
            (0.06, 0.0, true),
            (0.0, 0.06, true),
        ] {
            let pair = pair(stolen, late);
            assert_eq!(of(CauseKind::Background, &pair), contaminated);
            // the generator is late on purpose
            assert_eq!(of(CauseKind::Generator, &pair), stolen > 0.05);
        }
        let pairs = [pair(0.5, 0.0), pair(0.0, 0.0), pair(0.0, 0.0)];
        let measured = Measured::judge(&Setup::of(CauseKind::Background), &pairs, None);
        assert_eq!(measured.pairs.len(), 3);
        assert_eq!(measured.contaminated_share, 1.0 / 3.0);
    }

    /// Eight pauses of 8 ms each in a block, of which the explanation finds so many, of such a length.
    fn told_of_pauses(times: u64, each_ns: f64, is_first: bool, is_told: bool) -> Vec<Verdict> {
        let happened = |times: u64, each_ns: f64| OccurrenceSum {
            times,
            length_ns: times as f64 * each_ns,
        };
        let pair = |more: u64| Pair {
            with: Block {
                is_told,
                is_first,
                found: happened(times * (8 + more) / 8, each_ns),
                logged: happened(8 + more, 8e6),
                ..Block::default()
            },
            ..Pair::default()
        };
        let pairs: Vec<Pair> = (0..8).map(pair).collect();
        let criteria = told(&Setup::of(CauseKind::Pause), &pairs);
        criteria.into_iter().map(|it| it.verdict).collect()
    }

    #[test]
    fn events_are_those_of_the_log_and_the_first_finding_is_about_them() {
        let (pass, fail, unknown) = (Verdict::Pass, Verdict::Fail, Verdict::Inconclusive);
        assert_eq!(told_of_pauses(8, 8.1e6, true, true), [pass, pass, pass]);
        // cut in pieces
        assert_eq!(told_of_pauses(800, 8e4, true, true), [fail, pass, pass]);
        assert_eq!(told_of_pauses(8, 4e6, false, true), [pass, fail, fail]);
        // what is withdrawn tells nothing
        assert_eq!(told_of_pauses(0, 0.0, false, false), [unknown; 3]);
    }

    /// Eight pairs in which the client waited for 1 ms longer, of which slow requests cost so much.
    fn shadow_of(kind: CauseKind, with_ns: Option<f64>) -> Option<Verdict> {
        let block = |us: u64, shadow_ns| Block {
            shadow_ns,
            ..block(us, &[], &[])
        };
        let pair = |pair: u64| Pair {
            with: block(30 + pair, with_ns),
            without: block(20 + pair, Some(1e5)),
        };
        let pairs: Vec<Pair> = (0..8).map(pair).collect();
        let criteria = Measured::judge(&Setup::of(kind), &pairs, None).criteria;
        let found = criteria.into_iter().find(|it| it.what == "shadow");
        found.map(|it| it.verdict)
    }

    #[test]
    fn what_slow_requests_cost_must_be_what_the_client_saw() {
        let of = |with_ns| shadow_of(CauseKind::Slow, with_ns);
        // the block without the injection has 0.1 ms of it
        assert_eq!(of(Some(1.1e6)), Some(Verdict::Pass));
        assert_eq!(of(Some(0.9e6)), Some(Verdict::Fail));
        assert_eq!(of(Some(1.3e6)), Some(Verdict::Fail));
        // they are not told of
        assert_eq!(of(Some(0.0)), Some(Verdict::Fail));
        assert_eq!(of(None), Some(Verdict::Inconclusive));
        assert_eq!(shadow_of(CauseKind::Mixed, Some(1.1e6)), None);
    }

    #[test]
    fn two_logs_of_the_same_must_agree() {
        let verdict = |asker_ns: f64| {
            let sum = |length_ns| OccurrenceSum {
                times: 10,
                length_ns,
            };
            let pair = || Pair {
                with: Block {
                    is_told: true,
                    is_first: true,
                    found: sum(5e7),
                    logged: sum(5e7),
                    logged_by_asker: Some(sum(asker_ns)),
                    ..Block::default()
                },
                ..Pair::default()
            };
            let pairs: Vec<Pair> = (0..8).map(|_| pair()).collect();
            let criteria = told(&Setup::of(CauseKind::Upstream), &pairs);
            let missed = criteria.iter().find(|it| it.verdict != Verdict::Pass);
            missed.map(|it| it.what.clone())
        };
        assert_eq!(verdict(5.1e7), None);
        assert_eq!(verdict(4e7).as_deref(), Some("length by the asker"));
    }

    #[test]
    fn the_control_checks_every_cause() {
        let judged = |with: &[(Cause, u64)], without: &[(Cause, u64)]| {
            let pair = || Pair {
                with: block(20, with, &[]),
                without: block(20, without, &[]),
            };
            let pairs: Vec<Pair> = (0..8).map(|_| pair()).collect();
            Measured::judge(&Setup::of(CauseKind::Control), &pairs, None).verdict
        };
        let wakeups = [(Cause::Wakeup, 100)];
        assert_eq!(judged(&wakeups, &wakeups), Verdict::Pass);
        let slow = [(Cause::Wakeup, 80), (Cause::SlowService, 20)];
        assert_eq!(judged(&slow, &wakeups), Verdict::Fail);
        let lock = [(Cause::Wakeup, 90), (Cause::BlockedLock, 10)];
        assert_eq!(judged(&lock, &lock), Verdict::Fail);
        // no pair, no verdict
        assert_eq!(
            Measured::judge(&Setup::of(CauseKind::Control), &[], None).verdict,
            Verdict::Inconclusive
        );
    }

    #[test]
    fn charges_of_the_wrong_requests_are_seen_and_a_shifted_truth_finds_nothing() {
        let request = |charged, truth| RequestCharge {
            charged: Nanos::new(charged),
            truth: Nanos::new(truth),
        };
        let late = |place: usize| if place % 40 < 4 { 1_000 } else { 0 };
        let right: Vec<RequestCharge> = (0..400)
            .map(|place| request(late(place), late(place)))
            .collect();
        let found = ByRequest::of(&[&right]).unwrap();
        assert!(found.error == 0.0 && (found.correlation - 1.0).abs() < 1e-9);
        let blocks = [right.as_slice(); 8];
        assert_eq!(placebo(&blocks).unwrap().verdict, Verdict::Pass);
        let wrong: Vec<RequestCharge> = (0..400)
            .map(|place| request(late(place + 20), late(place)))
            .collect();
        let found = ByRequest::of(&[&wrong]).unwrap();
        assert!(found.error == 2.0 && found.correlation < 0.0, "{found:?}");
        // blocks without requests give no result
        assert_eq!(ByRequest::of(&[&[]]), None);
        assert!(placebo(&[&[], &[]]).is_none());
    }

    #[test]
    fn what_it_says_keeps_to_the_schema() {
        let schema = include_str!("../../../../schemas/bench-causes.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let not_run = KindResult {
            kind: "idle".to_owned(),
            not_run: Some("no power states".to_owned()),
            measured: None,
        };
        let ran = KindResult {
            kind: "background".to_owned(),
            not_run: None,
            measured: Some(judged(&[(Cause::Background, 1_150)])),
        };
        let result = serde_json::to_value(BenchResult::new(vec![not_run, ran], false)).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors = |result| -> Vec<String> {
            let errors = validator.iter_errors(result);
            errors.map(|error| error.to_string()).collect()
        };
        assert_eq!(errors(&result), [""; 0]);
        let mut both = result.clone();
        both["kinds"][1]["not_run"] = both["kinds"][0]["not_run"].clone();
        assert!(!errors(&both).is_empty());
    }
}
