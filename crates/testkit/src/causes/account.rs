//! What the ledger charged for an injection, computed from the recording: pure.

use std::borrow::Cow;
use std::sync::Arc;

use crate::attribution::{Charge, Row, Span, confusion, delays, imbalanced, lost, overtaken};
use crate::ground_truth::{GroundTruth, InjectedSource};
use taillab_analysis::{Analysis, AnalysisError, AnalysisOptions, Matched, Window};
use taillab_model::explanation::{Cause, Culprit, ModelFit, PredictedPoint, Prediction};
use taillab_model::{Nanos, RecordingContext};

use super::contaminated::{Machine, MachineEvidence};
use super::criteria::QUANTILES;
use super::setup::{BaseServer, Oracle, Promise, Setup};

/// One measurement, explained and compared with its ground truth.
pub struct Account {
    /// What each injection was charged to.
    pub rows: Vec<Row>,
    /// The same for the delay that would be missing without the injection, given everything else
    /// that disturbed the server; empty where the two cannot be separated.
    pub rows_together: Vec<Row>,
    /// Requests that were explained.
    pub requests: u64,
    /// Their excess over the ideal by cause, the largest first.
    pub excess: Vec<(Cause, Nanos)>,
    /// The same of the requests above p99 of the sojourn.
    pub excess_above_p99: Vec<(Cause, Nanos)>,
    /// Their sojourns, in order of length.
    pub sojourns: Vec<Nanos>,
    /// How well the replay reproduces them.
    pub model_fit: Option<ModelFit>,
    /// Forecasts of their sojourns without a cause.
    pub predictions: Vec<Prediction>,
    /// The injected culprits, with their causes.
    pub injected: Vec<(Cause, Culprit)>,
    /// What the machine did to the measurement.
    pub machine: Machine,
}

impl Account {
    /// The excess of all requests.
    pub fn total_excess(&self) -> Nanos {
        self.excess.iter().map(|(_, part)| *part).sum()
    }

    /// A cause's share of a list of excesses.
    pub fn share(of: &[(Cause, Nanos)], cause: Cause) -> f64 {
        let all: Nanos = of.iter().map(|(_, part)| *part).sum();
        let part = of.iter().find(|(other, _)| *other == cause);
        part.map_or(0.0, |(_, part)| {
            part.get() as f64 / (all.get() as f64).max(1.0)
        })
    }

    /// A forecast; `None` where there is none.
    pub fn forecast(&self, promise: &Promise) -> Option<Cow<'_, Prediction>> {
        let named = |found: &dyn Fn(&Prediction) -> bool| {
            self.predictions
                .iter()
                .find(|it| found(it))
                .map(Cow::Borrowed)
        };
        match promise {
            // Others may cause the same and stay after the fix: so the forecast without the culprit
            // counts, where there is one.
            Promise::Without(cause) => self
                .injected
                .iter()
                .filter(|(of, _)| of == cause)
                .find_map(|(_, culprit)| {
                    let change = format!("without {culprit}");
                    named(&|it| it.removes == [*cause] && it.change == change)
                })
                .or_else(|| {
                    let change = format!("without {}", cause.key());
                    named(&|it| it.removes == [*cause] && it.change == change)
                }),
            Promise::Mitigation(key) => named(&|it| it.change == *key),
            Promise::Same => Some(Cow::Owned(Prediction {
                change: "the same again".to_owned(),
                description: String::new(),
                command: None,
                removes: Vec::new(),
                cost: None,
                points: QUANTILES
                    .map(|q| PredictedPoint {
                        q,
                        measured_ns: self.sojourn(q),
                        predicted_ns: self.sojourn(q),
                        lo_ns: None,
                        hi_ns: None,
                    })
                    .to_vec(),
            })),
        }
    }

    /// A quantile of the sojourn.
    pub fn sojourn(&self, q: f64) -> Nanos {
        let rank = (q * self.sojourns.len() as f64).ceil() as usize;
        let place = rank.clamp(1, self.sojourns.len().max(1)) - 1;
        self.sojourns.get(place).copied().unwrap_or(Nanos::ZERO)
    }
}

/// Runs the ledger over what was matched and compares it with the truth.
pub(super) fn account(
    setup: &Setup,
    window: &Arc<Window>,
    context: &RecordingContext,
    options: &AnalysisOptions,
    truth: &GroundTruth,
    evidence: &MachineEvidence,
) -> Result<Account, AnalysisError> {
    let matched = &window.matched;
    let mut charges: Vec<Option<Vec<Charge>>> = vec![None; matched.requests.len()];
    let mut sojourns = Vec::new();
    let mut analysis = Analysis::new(context, *options);
    analysis.push(window, |entry, labels| {
        sojourns.push(Nanos::new(entry.sojourn_ns));
        charges[entry.place] = Some(
            entry
                .excess
                .iter()
                .map(|(label, excess_ns)| Charge {
                    cause: labels.cause(*label),
                    culprit: labels.culprit(*label),
                    excess_ns: *excess_ns,
                })
                .collect(),
        );
    });
    let explained = analysis.finish(0)?.server;
    sojourns.sort_unstable();
    let spans = spans(setup, matched);
    let injection = Injection::of(setup, &spans, truth, options.service_time);
    let [rows, rows_together] = [&injection.alone, &injection.together]
        .map(|delays| confusion(&injection.sources[..delays.len()], delays, &charges));
    let mut account = Account {
        rows,
        rows_together,
        requests: sojourns.len() as u64,
        excess: Vec::new(),
        excess_above_p99: Vec::new(),
        sojourns,
        model_fit: explained.model_fit,
        predictions: explained.predictions,
        injected: injected(truth),
        machine: Machine::of(
            evidence,
            &spans,
            [&injection.alone, &injection.together],
            options,
            matched.measured_places(options.measure_from).collect(),
        ),
    };
    let p99 = account.sojourn(0.99);
    let requests = &matched.requests;
    let sojourn = |place| requests.t6(place).saturating_since(requests.t1(place));
    account.excess = by_cause(charges.iter().flatten());
    account.excess_above_p99 = by_cause(
        charges
            .iter()
            .enumerate()
            .filter(|(place, _)| sojourn(*place) > p99)
            .filter_map(|(_, charges)| charges.as_ref()),
    );
    Ok(account)
}

/// The injected culprits under the names that forecasts use: the thread itself, or all threads of
/// its name and process.
fn injected(truth: &GroundTruth) -> Vec<(Cause, Culprit)> {
    let mut injected = Vec::new();
    for source in &truth.sources {
        let Some(culprit) = &source.culprit else {
            continue;
        };
        injected.push((source.cause, culprit.clone()));
        if let Culprit::Thread { name, pid, .. } = culprit {
            let all = Culprit::Thread {
                name: name.clone(),
                pid: *pid,
                tid: None,
            };
            injected.push((source.cause, all));
        }
    }
    injected
}

fn spans(setup: &Setup, matched: &Matched) -> Vec<Span> {
    let several = matches!(
        setup.server,
        BaseServer::Threads | BaseServer::Assigned | BaseServer::Pooled
    );
    (0..matched.requests.len())
        .map(|place| (place, matched.requests.stamps(place)))
        .map(|(place, stamps)| Span {
            t1: stamps.t1,
            t2: stamps.t2.unwrap_or(stamps.t1),
            t6: stamps.t6,
            // a single worker has also served the requests whose worker was not seen
            worker: if several { matched.workers[place] } else { 0 },
        })
        .collect()
}

/// What each source cost each request.
struct Injection {
    sources: Vec<InjectedSource>,
    /// By itself.
    alone: Vec<Vec<Nanos>>,
    /// Together with whatever else disturbed the server; empty where the two cannot be separated.
    together: Vec<Vec<Nanos>>,
}

impl Injection {
    fn of(setup: &Setup, spans: &[Span], truth: &GroundTruth, usual: Nanos) -> Self {
        let of_structure = |delays| {
            let source = InjectedSource {
                injected: setup.kind.name().to_owned(),
                cause: setup.cause.unwrap_or(Cause::Unexplained),
                culprit: None,
            };
            (vec![source], vec![delays])
        };
        let (sources, alone) = match setup.oracle {
            Oracle::Nothing => (Vec::new(), Vec::new()),
            Oracle::HeldBack => (truth.sources.clone(), delays(spans, truth, usual)),
            Oracle::Loss => (truth.sources.clone(), vec![lost(spans, truth)]),
            Oracle::Order => of_structure(overtaken(spans)),
            Oracle::Imbalance => of_structure(imbalanced(spans)),
        };
        let together = match setup.oracle {
            Oracle::HeldBack => delays(spans, truth, Nanos::MAX),
            _ => Vec::new(),
        };
        Self {
            sources,
            alone,
            together,
        }
    }
}

fn by_cause<'a>(charges: impl Iterator<Item = &'a Vec<Charge>>) -> Vec<(Cause, Nanos)> {
    let mut sums = [0_u64; Cause::ALL.len()];
    for charge in charges.flatten() {
        sums[charge.cause as usize] += charge.excess_ns;
    }
    let mut sums: Vec<(Cause, Nanos)> = Cause::ALL
        .into_iter()
        .map(|cause| (cause, Nanos::new(sums[cause as usize])))
        .filter(|(_, sum)| *sum > Nanos::ZERO)
        .collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    sums
}
