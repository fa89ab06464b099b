//! Which mitigations are worth a trial, the best first.

use taillab_analysis::paired::Pairs;
use taillab_analysis::untouched::ReplayedBlock;
use taillab_host::tune::{MITIGATIONS, Mitigation};
use taillab_model::explanation::Prediction;
use taillab_model::fix::{Ratio, RatioAt};
use taillab_model::summary::ServerResult;

use super::decide::{self, WORTH};

/// A cause with a smaller share of the excess above p99 does not justify a mitigation without a forecast.
const LEAST_SHARE: f64 = 0.05;

/// A mitigation to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The mitigation that a trial would apply.
    pub mitigation: &'static Mitigation,
    /// Latency with it ÷ latency now, as forecast.
    pub predicted: Vec<RatioAt>,
}

/// The mitigations that taillab can apply here. First come those whose forecast gain is worth keeping, in
/// the order of [`best_first`]; then those without a forecast that treat a main cause. If no cause is
/// known, every mitigation without a forecast is a candidate.
pub fn of(result: &ServerResult) -> Vec<Candidate> {
    let known = |name: &str| {
        let found = MITIGATIONS.iter().find(|row| row.is.name == name);
        found.copied()
    };
    let forecast: Vec<Candidate> = (result.predictions.iter())
        .filter_map(|prediction| {
            Some(Candidate {
                mitigation: known(&prediction.change)?,
                predicted: ratios(prediction),
            })
        })
        .collect();
    let has_forecast = |name: &str| {
        forecast
            .iter()
            .any(|other| other.mitigation.is.name == name)
    };
    let share = |row: &Mitigation| {
        let wholes = result.causes.iter().filter(|share| share.culprit.is_none());
        wholes
            .filter(|share| row.is.treats.contains(&share.cause))
            .map(|share| share.excess_share_above_p99.value)
            .fold(0.0, f64::max)
    };
    let mut others: Vec<(f64, Candidate)> = (MITIGATIONS.iter())
        .filter(|row| !has_forecast(row.is.name))
        .map(|row| (share(row), row))
        .filter(|(share, _)| result.causes.is_empty() || *share >= LEAST_SHARE)
        .map(|(share, row)| {
            let candidate = Candidate {
                mitigation: row,
                predicted: Vec::new(),
            };
            (share, candidate)
        })
        .collect();
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    let worth = forecast.into_iter().filter(is_worth_it);
    best_first(worth.collect())
        .into_iter()
        .chain(others.into_iter().map(|(_, candidate)| candidate))
        .collect()
}

/// The best forecast first. Of those that are no more than 5 % of the latency now apart, which is too little to
/// keep one for, the one comes first that changes least: [`MITIGATIONS`] lists a thread's own settings before
/// those that move others away.
fn best_first(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let rank = |candidate: &Candidate| {
        let mut rows = MITIGATIONS.iter();
        rows.position(|row| row.is == candidate.mitigation.is)
    };
    let gain = |candidate: &Candidate| candidate.predicted.last().map_or(1.0, |at| at.ratio.value);
    let mut ordered = Vec::with_capacity(candidates.len());
    while let Some(best) = candidates.iter().map(gain).min_by(f64::total_cmp) {
        let near = candidates.iter().enumerate();
        let near = near.filter(|(_, one)| gain(one) <= best + (1.0 - WORTH));
        let Some((place, _)) = near.min_by_key(|(_, one)| rank(one)) else {
            break;
        };
        ordered.push(candidates.remove(place));
    }
    ordered
}

/// Changes with a sufficient forecast that taillab has no setting for, such as another architecture of the
/// server, with the cost of each; the best first.
pub fn by_hand(result: &ServerResult) -> impl Iterator<Item = (&Prediction, &str, Vec<RatioAt>)> {
    let no_setting = result
        .predictions
        .iter()
        .filter(|one| one.command.is_none());
    no_setting.filter_map(|prediction| {
        let cost = prediction.cost.as_deref()?;
        let predicted = ratios(prediction);
        let is_enough = predicted.last()?.ratio.value <= WORTH;
        is_enough.then_some((prediction, cost, predicted))
    })
}

/// What is left to try after a winner.
#[derive(Clone, Debug, Default)]
pub struct Remaining {
    /// The mitigations that are still worth a trial, the best first.
    pub worth: Vec<Candidate>,
    /// Those that are no longer worth one, with their new forecasts.
    pub dropped: Vec<Candidate>,
}

/// Ranks anew the mitigations that were not `tried`, by forecasts from the `blocks` that were measured with
/// all winners, without the causes that the winners have removed. A mitigation without such a forecast
/// comes last, in the old order.
pub fn anew(left: Vec<Candidate>, tried: &[String], blocks: &[ReplayedBlock]) -> Remaining {
    let mut remaining = Remaining::default();
    let (mut forecast, mut at_most) = (Vec::new(), Vec::new());
    let is_tried = |row: &&&Mitigation| tried.iter().any(|name| name == row.is.name);
    for row in MITIGATIONS.iter().filter(|row| !is_tried(row)) {
        let Some((ratios, is_forecast)) = forecast_of(row, blocks) else {
            continue;
        };
        let gain = ratios.last().map_or(1.0, |at| at.ratio.value);
        let candidate = Candidate {
            mitigation: row,
            predicted: if is_forecast { ratios } else { Vec::new() },
        };
        let was_left = left.iter().any(|other| other.mitigation.is == row.is);
        match (gain <= WORTH, is_forecast) {
            (true, true) => forecast.push(candidate),
            (true, false) => at_most.push((gain, candidate)),
            (false, _) if was_left => remaining.dropped.push(candidate),
            (false, _) => {}
        }
    }
    remaining.worth = best_first(forecast);
    at_most.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at_most = at_most.into_iter().map(|(_, candidate)| candidate);
    remaining.worth.extend(at_most);
    let unknown = left.into_iter().filter(|candidate| {
        let mut known = remaining.worth.iter().chain(&remaining.dropped);
        !known.any(|other| other.mitigation.is == candidate.mitigation.is)
    });
    let unknown: Vec<Candidate> = unknown
        .map(|candidate| Candidate {
            predicted: Vec::new(),
            ..candidate
        })
        .collect();
    remaining.worth.extend(unknown);
    remaining
}

/// What a replay of the blocks says about a mitigation, and whether that is a forecast. If not, it bounds the
/// gain from above: the mitigation's causes were removed altogether. `None` if it says nothing.
fn forecast_of(row: &Mitigation, blocks: &[ReplayedBlock]) -> Option<(Vec<RatioAt>, bool)> {
    let mut pairs = Pairs::default();
    let mut is_forecast = true;
    for block in blocks {
        let with = match block.sojourns_with(row.is.name) {
            Some(with) => with,
            None if block.has_model_of(row.is.treats) => {
                is_forecast = false;
                block.sojourns_without(row.is.treats)
            }
            None => return None,
        };
        pairs.push(block.sojourns().iter().copied(), with);
    }
    let ratios = decide::ratios(|q| pairs.ratio(q));
    (!ratios.is_empty()).then_some((ratios, is_forecast))
}

/// Whether the forecast at the highest percentile, if there is one, promises enough.
fn is_worth_it(candidate: &Candidate) -> bool {
    let last = candidate.predicted.last();
    last.is_none_or(|at| at.ratio.value <= WORTH)
}

/// The forecast as ratios; their ends do not include the uncertainty of the sample itself.
fn ratios(prediction: &Prediction) -> Vec<RatioAt> {
    let points = prediction.points.iter();
    points
        .filter(|point| point.measured_ns.get() > 0)
        .map(|point| {
            let now = point.measured_ns.get() as f64;
            RatioAt {
                q: point.q,
                ratio: Ratio {
                    value: point.predicted_ns.get() as f64 / now,
                    lo: point.lo_ns.map(|lo| lo.get() as f64 / now),
                    hi: point.hi_ns.map(|hi| hi.get() as f64 / now),
                },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use taillab_analysis::untouched::RecordedBlock;
    use taillab_model::{Nanos, Recording};

    use super::*;

    fn candidates(names: &[&str]) -> Vec<Candidate> {
        let named = |name: &&str| {
            let row = MITIGATIONS.iter().find(|row| row.is.name == *name);
            Candidate {
                mitigation: row.unwrap(),
                predicted: vec![RatioAt {
                    q: 0.99,
                    ratio: Ratio {
                        value: 0.5,
                        lo: None,
                        hi: None,
                    },
                }],
            }
        };
        names.iter().map(named).collect()
    }

    fn names(of: &[Candidate]) -> Vec<&str> {
        of.iter()
            .map(|candidate| candidate.mitigation.is.name)
            .collect()
    }

    #[test]
    fn of_forecasts_that_are_nearly_alike_the_lightest_change_comes_first() {
        let mut all = candidates(&["cpu-quota", "dedicated-cpus", "rt-priority", "nice"]);
        for (candidate, gain) in all.iter_mut().zip([0.9, 0.008, 0.014, 0.3]) {
            candidate.predicted[0].ratio.value = gain;
        }
        let ordered = best_first(all);
        let expected = ["rt-priority", "dedicated-cpus", "nice", "cpu-quota"];
        assert_eq!(names(&ordered), expected);
    }

    /// Copies of one recording of a server on a real machine; it may contain any disturbance.
    fn blocks() -> Vec<ReplayedBlock> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../analysis/tests/golden/memcached_90_percent.tlc"
        );
        let block = |_| {
            let recording = Recording::read(File::open(path).unwrap()).unwrap();
            let block = RecordedBlock::of(recording).unwrap();
            block.replayed(Nanos::from_micros(15)).unwrap()
        };
        (0..6).map(block).collect()
    }

    #[test]
    fn after_a_winner_what_is_left_is_ranked_by_new_forecasts() {
        let left = candidates(&["dedicated-cpus", "numa", "nice", "cpu-quota"]);
        let blocks = blocks();
        let now = anew(left, &["rt-priority".to_owned()], &blocks);
        let all = [names(&now.worth), names(&now.dropped)].concat();
        assert!(!all.contains(&"rt-priority"), "{all:?}");
        for name in ["dedicated-cpus", "numa", "nice", "cpu-quota"] {
            let times = all.iter().filter(|other| **other == name).count();
            assert_eq!(times, 1, "{name} in {all:?}");
        }
        // this server was not throttled, so lifting a quota gains nothing
        assert!(names(&now.dropped).contains(&"cpu-quota"), "{all:?}");
        // the replay does not model it
        assert_eq!(names(&now.worth).last(), Some(&"numa"));
        let last = |candidate: &Candidate| Some(candidate.predicted.last()?.ratio.value);
        let gains: Vec<f64> = now.worth.iter().filter_map(last).collect();
        assert!(!gains.is_empty() && gains.iter().all(|gain| *gain <= WORTH));
        assert!(now.dropped.iter().filter_map(last).all(|gain| gain > WORTH));
    }

    #[test]
    fn where_the_replay_reproduces_no_block_the_old_order_stays_without_its_forecasts() {
        let left = candidates(&["nice", "dedicated-cpus"]);
        let now = anew(left, &["rt-priority".to_owned()], &[]);
        assert_eq!(names(&now.worth), ["nice", "dedicated-cpus"]);
        assert!(now.worth.iter().all(|one| one.predicted.is_empty()));
        assert!(now.dropped.is_empty());
    }
}
