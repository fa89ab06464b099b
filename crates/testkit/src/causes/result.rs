//! What the benchmark found, and whether it is good enough. The shape of its JSON is
//! `schemas/bench-causes.schema.json`.

use std::collections::BTreeMap;

use crate::attribution::Row;
use schemars::JsonSchema;
use serde::Serialize;
use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Culprit};
use taillab_model::summary::Reason;

use super::account::Account;
use super::criteria::{
    IMPOSSIBLE, LEAST_RIGHT, LEAST_SHARE, MOST_CHARGED, MOST_UNEXPLAINED, MOST_WRONG, NEAR,
};
use super::forecast::{FixCheck, ForecastVerdict};
use super::kind::CauseKind;
use super::reason::ReasonKey;

/// The version of the JSON's shape.
const SCHEMA_VERSION: u32 = 1;
/// The whole benchmark, as it is printed with `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BenchResult {
    /// Version of this shape.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    schema_version: u32,
    /// Always `bench causes`.
    #[schemars(extend("const" = "bench causes"))]
    command: &'static str,
    /// Each kind, in the order in which they ran.
    pub kinds: Vec<KindResult>,
    /// Kinds that ran.
    pub ran: u32,
    /// Those of them that were found.
    pub found: u32,
    /// Interrupted before all had run.
    pub partial: bool,
}

/// One kind.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"not_run": {"type": "null"}}},
    "then" = {"required": ["service_time_ns"]},
    "else" = {"properties": {"service_time_ns": false}},
))]
pub struct KindResult {
    /// Its name on the command line.
    #[schemars(extend("enum" = CauseKind::ALL.map(CauseKind::name)))]
    pub kind: String,
    /// Why it could not be run here; `None` when it ran.
    pub not_run: Option<Reason>,
    /// What was measured; `None` when it did not run.
    #[serde(flatten)]
    pub measured: Option<Measured>,
}

/// One kind that ran.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// t of the ideal queue.
    pub service_time_ns: Nanos,
    /// Requests that were explained.
    pub requests: u64,
    /// The server's latency at p50.
    pub sojourn_p50_ns: Nanos,
    /// The server's latency at p99.
    pub sojourn_p99_ns: Nanos,
    /// The server's latency at p99.9.
    pub sojourn_p999_ns: Nanos,
    /// Events that the probe lost.
    pub lost_events: u64,
    /// Measurements made, up to the first that the machine did not contaminate.
    pub passes: u32,
    /// Why the last of them is contaminated too; `None` if it is not.
    pub contaminated: Option<Reason>,
    /// Each injection and what it was charged to.
    pub injected: Vec<Injected>,
    /// Excess over the ideal, of all requests.
    pub excess_ns: Nanos,
    /// Each cause's share of the excess.
    #[schemars(extend("additionalProperties" = {"type": "number", "minimum": 0, "maximum": 1}))]
    pub excess_shares: BTreeMap<&'static str, f64>,
    /// The share of the excess above p99 that is `unexplained`.
    #[schemars(range(min = 0, max = 1))]
    pub unexplained_above_p99: f64,
    /// The replay's largest error from p50 to p99.9; `None` without a replay.
    pub model_fit_error: Option<f64>,
    /// What is not good enough; empty for a kind that is `ok`.
    pub shortfalls: Vec<Reason>,
    /// Predicted against measured, where asked for.
    pub fix: Option<FixCheck>,
}

/// One injected cause.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Injected {
    /// The injection as it was asked for: `background:20ms,3ms`.
    pub injected: String,
    /// The number of times.
    pub occurrences: u64,
    /// The right cause.
    pub cause: Cause,
    /// The right culprit; `None` where the cause says it all.
    pub culprit: Option<Culprit>,
    /// Requests that it delayed.
    pub requests: u64,
    /// Their total delay.
    pub delay_ns: Nanos,
    /// The share of that delay that is charged to the right cause and culprit.
    #[schemars(range(min = 0, max = 1))]
    pub right_share: f64,
    /// The share of the delay that is charged to each cause.
    #[schemars(extend("additionalProperties" = {"type": "number", "minimum": 0, "maximum": 1}))]
    pub charged_shares: BTreeMap<&'static str, f64>,
    /// The share of the delay for which the ledger sees no excess.
    #[schemars(range(min = 0, max = 1))]
    pub unseen_share: f64,
    /// The delay that would be missing without it, given everything else that disturbed the server;
    /// `None` where the two cannot be separated.
    pub together_delay_ns: Option<Nanos>,
    /// The share of that delay that is charged to the right cause and culprit.
    #[schemars(range(min = 0, max = 1))]
    pub together_right_share: Option<f64>,
    /// All excess, of any request, that is charged to the right cause and culprit.
    pub charged_ns: Nanos,
    /// Whether it is too small to be judged.
    pub negligible: bool,
}

impl BenchResult {
    /// The result of these kinds.
    pub fn new(kinds: Vec<KindResult>, partial: bool) -> Self {
        let ran = kinds.iter().filter_map(|kind| kind.measured.as_ref());
        Self {
            schema_version: SCHEMA_VERSION,
            command: "bench causes",
            ran: ran.clone().count() as u32,
            found: ran.filter(|kind| kind.shortfalls.is_empty()).count() as u32,
            partial,
            kinds,
        }
    }
}

impl Measured {
    /// Judges what the ledger made of a run; `occurrences` are those of each source.
    pub fn new(
        account: &Account,
        service_time: Nanos,
        lost_events: u64,
        occurrences: &[u64],
    ) -> Self {
        let largest = (account.rows.iter())
            .map(|row| row.injected)
            .max()
            .unwrap_or(Nanos::ZERO);
        let injected: Vec<Injected> = account
            .rows
            .iter()
            .enumerate()
            .map(|(number, row)| {
                let few = row.injected.get() as f64 <= LEAST_SHARE * largest.get() as f64;
                let together = account.rows_together.get(number);
                Injected::new(
                    row,
                    together,
                    occurrences.get(number).copied().unwrap_or(row.requests),
                    few,
                )
            })
            .collect();
        let mut measured = Self {
            service_time_ns: service_time,
            requests: account.requests,
            sojourn_p50_ns: account.sojourn(0.5),
            sojourn_p99_ns: account.sojourn(0.99),
            sojourn_p999_ns: account.sojourn(0.999),
            lost_events,
            passes: 1,
            contaminated: None,
            excess_ns: account.total_excess(),
            excess_shares: (account.excess.iter())
                .map(|(cause, _)| (cause.key(), Account::share(&account.excess, *cause)))
                .collect(),
            unexplained_above_p99: Account::share(&account.excess_above_p99, Cause::Unexplained),
            injected,
            model_fit_error: account.model_fit.as_ref().map(|fit| fit.largest_error),
            shortfalls: Vec::new(),
            fix: None,
        };
        measured.shortfalls = measured.judge(account);
        measured
    }

    /// Adds the test of the forecasts and judges only that: its injection is not the one whose
    /// charges are judged. A missed forecast falls short. One that the noise leaves undecided, or that
    /// proves nothing, does not.
    pub fn with_fix(mut self, fix: Option<FixCheck>) -> Self {
        if let Some(fix) = &fix {
            self.shortfalls.clear();
            let missed =
                (fix.points.iter()).filter(|point| point.verdict == ForecastVerdict::Missed);
            self.shortfalls.extend(missed.map(|point| {
                ReasonKey::ForecastMissed.because(format!(
                    "the forecast `{}` for p{} is off by {:+.0} %; at most {:.0} % are allowed",
                    fix.change,
                    100.0 * point.q,
                    100.0 * point.error,
                    100.0 * NEAR
                ))
            }));
        }
        Self { fix, ..self }
    }

    fn judge(&self, account: &Account) -> Vec<Reason> {
        let mut shortfalls = Vec::new();
        for injected in self.injected.iter().filter(|injected| !injected.negligible) {
            shortfalls.extend(injected.undercharged());
            shortfalls.extend(injected.overcharged());
        }
        if self.injected.is_empty() {
            shortfalls.extend(IMPOSSIBLE.into_iter().filter_map(|cause| {
                let share = Account::share(&account.excess, cause);
                (share > MOST_WRONG).then(|| {
                    ReasonKey::ImpossibleCause.because(format!(
                        "{:.0} % of the excess is charged to {}, which this server cannot suffer from",
                        100.0 * share,
                        cause.key()
                    ))
                })
            }));
        }
        if self.unexplained_above_p99 > MOST_UNEXPLAINED {
            shortfalls.push(ReasonKey::Unexplained.because(format!(
                "{:.0} % of the excess above p99 is unexplained; at most {:.0} % are allowed",
                100.0 * self.unexplained_above_p99,
                100.0 * MOST_UNEXPLAINED
            )));
        }
        shortfalls
    }
}

impl Injected {
    /// Whether only the injection can be the culprit: a thread of ours, or a cause that this server
    /// cannot suffer from otherwise.
    fn is_ours_alone(&self) -> bool {
        matches!(self.culprit, Some(Culprit::Thread { .. })) || IMPOSSIBLE.contains(&self.cause)
    }

    fn undercharged(&self) -> Option<Reason> {
        (self.right_share < LEAST_RIGHT).then(|| {
            ReasonKey::Undercharged.because(format!(
                "{:.0} % of the delay that {} caused are charged to {} and the right culprit; \
                 {:.0} % are wanted",
                100.0 * self.right_share,
                self.injected,
                self.cause.key(),
                100.0 * LEAST_RIGHT
            ))
        })
    }

    fn overcharged(&self) -> Option<Reason> {
        let together = self.together_delay_ns.filter(|_| self.is_ours_alone())?;
        let too_much = self.charged_ns.as_secs_f64() > MOST_CHARGED * together.as_secs_f64();
        too_much.then(|| {
            ReasonKey::Overcharged.because(format!(
                "{} are charged to {}, but without it the requests would have been faster by only \
                 {together}",
                self.charged_ns, self.injected
            ))
        })
    }

    fn new(row: &Row, together: Option<&Row>, occurrences: u64, negligible: bool) -> Self {
        Self {
            injected: row.source.injected.clone(),
            occurrences,
            cause: row.source.cause,
            culprit: row.source.culprit.clone(),
            requests: row.requests,
            delay_ns: row.injected,
            right_share: row.right_share(),
            charged_shares: (row.charged.iter())
                .map(|(cause, _)| (cause.key(), row.share_of(*cause)))
                .collect(),
            unseen_share: row.unseen_share(),
            together_delay_ns: together.map(|row| row.injected),
            together_right_share: together.map(Row::right_share),
            charged_ns: row.in_all,
            negligible,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ground_truth::InjectedSource;

    use super::super::contaminated::Machine;
    use super::super::forecast::{FixPoint, PairMedian};
    use super::*;

    fn account(right: u64, excess: Vec<(Cause, Nanos)>) -> Account {
        let row = |cause, injected: u64, culprit: u64| Row {
            source: InjectedSource {
                injected: "background:1ms,1ms".to_owned(),
                cause,
                culprit: None,
            },
            requests: 5,
            injected: Nanos::new(injected),
            charged: vec![(cause, Nanos::new(culprit))],
            culprit: Nanos::new(culprit),
            unseen: Nanos::ZERO,
            in_all: Nanos::new(culprit),
        };
        Account {
            rows: match right {
                0 => Vec::new(),
                right => vec![row(Cause::Background, 1000, right), row(Cause::Irq, 15, 0)],
            },
            rows_together: vec![row(Cause::Background, 2000, 1000)],
            requests: 3,
            excess_above_p99: excess.clone(),
            excess,
            sojourns: [1, 2, 3].map(Nanos::from_micros).to_vec(),
            model_fit: None,
            injected: Vec::new(),
            predictions: Vec::new(),
            machine: Machine::default(),
        }
    }

    #[test]
    fn a_cause_found_for_the_most_part_is_found() {
        let excess = vec![(Cause::Background, Nanos::new(1000))];
        let good = Measured::new(&account(900, excess.clone()), Nanos::new(7), 0, &[4, 1]);
        assert!(good.shortfalls.is_empty(), "{:?}", good.shortfalls);
        assert!(good.injected[1].negligible);
        assert_eq!(good.injected[0].occurrences, 4);
        let bad = Measured::new(&account(890, excess), Nanos::new(7), 0, &[4, 1]);
        assert_eq!(bad.shortfalls.len(), 1);
        assert_eq!(bad.shortfalls[0].key, "undercharged");
        assert!(
            bad.shortfalls[0].text.starts_with("89 %"),
            "{:?}",
            bad.shortfalls
        );
    }

    #[test]
    fn too_much_is_charged_where_it_is_more_than_would_be_without_it() {
        let shortfalls = |cause, charged_ns: u64| {
            let mut account = account(900, vec![(Cause::Background, Nanos::new(1000))]);
            for row in account.rows.iter_mut().chain(&mut account.rows_together) {
                row.source.cause = cause;
                row.in_all = Nanos::new(charged_ns);
            }
            Measured::new(&account, Nanos::new(7), 0, &[4, 1]).shortfalls
        };
        assert!(shortfalls(Cause::BlockedLock, 2_200).is_empty());
        assert_eq!(shortfalls(Cause::BlockedLock, 2_201).len(), 1);
        // others do that as well
        assert!(shortfalls(Cause::Background, 9_000).is_empty());
    }

    #[test]
    fn what_it_says_keeps_to_the_schema() {
        let schema = include_str!("../../../../schemas/bench-causes.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();

        let excess = vec![(Cause::Background, Nanos::new(1000))];
        let mut account = account(100, excess);
        account.rows[0].source.culprit = Some(Culprit::Softirq {
            name: "NET_RX".to_owned(),
        });
        let mut judged = Measured::new(&account, Nanos::new(7), 0, &[4, 1]);
        assert!(!judged.shortfalls.is_empty());
        let middle = |median: u64| PairMedian {
            median_ns: Nanos::new(median),
            lo_ns: Nanos::new(median - 1),
            hi_ns: Nanos::new(median + 1),
        };
        judged.fix = Some(FixCheck {
            change: "without background".to_owned(),
            done: "the injection stops",
            pairs: 6,
            predicted_pairs: 6,
            contaminated_pairs: 1,
            points: vec![FixPoint {
                q: 0.99,
                with: middle(9),
                predicted: middle(3),
                measured: middle(4),
                error: -0.25,
                pair_error: -0.24,
                pair_error_lo: -0.3,
                pair_error_hi: -0.22,
                effect: 1.25,
                control_error: 0.1,
                within_interval: 2,
                verdict: ForecastVerdict::Missed,
            }],
        });
        let not_run = KindResult {
            kind: "idle".to_owned(),
            not_run: Some(ReasonKey::NoGroundTruth.because("no power states")),
            measured: None,
        };
        let ran = KindResult {
            kind: "background".to_owned(),
            not_run: None,
            measured: Some(judged),
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

    #[test]
    fn an_undisturbed_run_blames_nothing_that_is_not_there() {
        let excess = |lock: u64, unexplained: u64| {
            vec![
                (Cause::Wakeup, Nanos::new(100 - lock - unexplained)),
                (Cause::BlockedLock, Nanos::new(lock)),
                (Cause::Unexplained, Nanos::new(unexplained)),
            ]
        };
        let judged = |lock, unexplained| {
            Measured::new(
                &account(0, excess(lock, unexplained)),
                Nanos::new(7),
                0,
                &[],
            )
            .shortfalls
            .len()
        };
        assert_eq!(judged(5, 10), 0);
        assert_eq!(judged(6, 10), 1);
        assert_eq!(judged(6, 11), 2);
    }
}
