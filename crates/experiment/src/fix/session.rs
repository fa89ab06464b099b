//! All trials, one after the other: the control, then each candidate on top of what was kept.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use taillab_analysis::paired::Pairs;
use taillab_analysis::untouched::ReplayedBlock;
use taillab_console::exit::Failure;
use taillab_model::fix::{CONTROL, Fix, FixOutcome, TailAt};
use taillab_model::summary::ServerResult;

use super::candidates::{self, Candidate};
use super::consent::Consent;
use super::decide::{self, Judgement, Trial};
use super::export::Winner;
use super::kept::{self, KeptMitigation};
use super::level::{self, Level};
use super::trial::Bench;
use super::{FixRequest, Setting};
use crate::changes::{HeldMitigation, NotApplied};

/// A trial may take this share of the remaining time, so that a trial without a decision leaves time for the
/// others.
const SHARE: f64 = 0.4;

/// The trials and their results.
pub struct Session<'a, 'r> {
    bench: Bench<'r>,
    setting: &'a Setting<'a>,
    consent: Consent,
    /// Whether the winners stay applied at the end.
    keeps: bool,
    fixes: Vec<Fix>,
    winners: Vec<HeldMitigation>,
    exported: Vec<Winner>,
    left: Vec<KeptMitigation>,
    level: Level,
}

/// The number of a trial, and how many there are as far as is known.
#[derive(Clone, Copy)]
struct TrialNumber {
    number: usize,
    all: usize,
}

impl<'a, 'r> Session<'a, 'r> {
    /// A session that has tried nothing yet.
    pub const fn new(bench: Bench<'r>, asked: &FixRequest, setting: &'a Setting<'a>) -> Self {
        Self {
            bench,
            setting,
            consent: asked.consent,
            keeps: asked.keep,
            fixes: Vec::new(),
            winners: Vec::new(),
            exported: Vec::new(),
            left: Vec::new(),
            level: Level::full(),
        }
    }

    /// Tries the control and each candidate, until the budget is spent.
    ///
    /// # Errors
    /// A failure that ends the trials for good; the results so far are kept.
    pub fn try_all(&mut self) -> Result<(), Failure> {
        let candidates = candidates::of(&self.setting.report.server);
        let names: Vec<&str> = (candidates.iter())
            .map(|candidate| candidate.mitigation.is.name)
            .collect();
        self.setting.messages.note(&format_args!(
            "trying {} for at most {:.0} s, each for {:.0} s or more: {}",
            match names.len() {
                0 => "no mitigation, only the control,".to_owned(),
                1 => "one mitigation".to_owned(),
                many => format!("{many} mitigations"),
            },
            self.left().as_secs_f64(),
            self.bench
                .takes(level::fewest_pairs(self.level_for(names.len())))
                .as_secs_f64(),
            names.join(", ")
        ));
        let is_even = self.control()?;
        let (mut left, mut number) = (VecDeque::from(candidates), 0);
        while let Some(candidate) = left.pop_front() {
            number += 1;
            self.setting.messages.step(&format!(
                "trying {}: {}",
                candidate.mitigation.is.name, candidate.mitigation.is.description
            ));
            if !is_even {
                self.fixes.push(untried(
                    &candidate,
                    "not tried: the control \"improved\" with nothing changed, so this machine \
                     is too noisy now",
                ));
                continue;
            }
            let all = number + left.len();
            let (fix, with_it) = self.try_one(&candidate, TrialNumber { number, all })?;
            let is_kept = fix.outcome == FixOutcome::Kept;
            self.fixes.push(fix);
            if is_kept {
                left = self.rank_anew(left.into(), &with_it).into();
            }
        }
        self.fixes.extend(by_hand(&self.setting.report.server));
        Ok(())
    }

    /// The candidates that are left to try, ranked by forecasts from the blocks that were measured with the
    /// last winner.
    fn rank_anew(&mut self, left: Vec<Candidate>, with_it: &[ReplayedBlock]) -> Vec<Candidate> {
        let tried: Vec<String> = self
            .fixes
            .iter()
            .map(|fix| fix.mitigation.clone())
            .collect();
        let remaining = candidates::anew(left, &tried, with_it);
        let winners: Vec<&str> = self.winners.iter().map(HeldMitigation::name).collect();
        let reason = format!(
            "not tried: with {} kept, the forecast promises less than another 5 %",
            winners.join(" and ")
        );
        let dropped = remaining.dropped.iter();
        self.fixes
            .extend(dropped.map(|candidate| untried(candidate, &reason)));
        remaining.worth
    }

    /// Measures pairs with nothing changed; returns whether they show no gain, as they should.
    fn control(&mut self) -> Result<bool, Failure> {
        self.setting.messages.step("trying the control");
        let at_most = self.share().min(self.bench.takes(2 * decide::FEWEST_PAIRS));
        let trial = match self.bench.pairs(CONTROL, None, (level::ALL, at_most)) {
            Ok(trial) => trial,
            Err(NotApplied::Failed(failure)) => return Err(failure),
            // the control applies nothing, so this does not happen
            Err(NotApplied::Unavailable(_)) => return Ok(false),
        };
        let judgement = decide::judge(&trial);
        let is_even = judgement.outcome != FixOutcome::Kept;
        let (outcome, reason) = match is_even {
            true => (judgement.outcome, "nothing was changed"),
            false => (FixOutcome::Inconclusive, "nothing was changed and yet"),
        };
        let control = Fix::blank(CONTROL, "nothing is changed");
        let fix = Fix {
            outcome,
            reason: format!("{reason}: {}", judgement.reason),
            ..self.seen(&trial, &judgement, control)
        };
        self.fixes.push(fix);
        Ok(is_even)
    }

    /// Tries one mitigation; returns the result and the blocks that were measured with it.
    fn try_one(
        &mut self,
        candidate: &Candidate,
        TrialNumber { number, all }: TrialNumber,
    ) -> Result<(Fix, Vec<ReplayedBlock>), Failure> {
        let not_tried = |reason: &str| Ok((untried(candidate, reason), Vec::new()));
        let level = self.level_for(all - number + 1);
        let has_time = || self.left() >= self.bench.takes(level::fewest_pairs(level));
        if !level::can_prove(level) || !has_time() {
            return not_tried("not tried: the budget was already spent (--fix-budget)");
        }
        let mitigation = candidate.mitigation;
        if !self.is_wanted(candidate)? {
            return not_tried("not tried, since you said no");
        }
        let name = format!("{} ({number} of {all})", mitigation.is.name);
        let at_most = match self.level.is_all(level) {
            true => self.left(),
            false => self.share(),
        };
        let tried = self.bench.pairs(&name, Some(mitigation), (level, at_most));
        let trial: Trial = match tried {
            Ok(trial) => trial,
            Err(NotApplied::Failed(failure)) => return Err(failure),
            Err(NotApplied::Unavailable(reason)) => {
                let fix = Fix {
                    outcome: FixOutcome::Unavailable,
                    ..untried(candidate, &reason)
                };
                return Ok((fix, Vec::new()));
            }
        };
        self.level.spend(&trial);
        let judgement = decide::judge(&trial);
        let mut fix = self.seen(&trial, &judgement, untried(candidate, ""));
        if judgement.outcome == FixOutcome::Kept
            && let Err(failure) = self.keep(candidate, &judgement, &mut fix)
        {
            // the trial itself is finished, so its result stays
            fix.reason = format!(
                "{}; then it could not be left applied: {failure}",
                judgement.reason
            );
            let not_kept = || kept::not_applied(mitigation.is.name, &failure);
            fix.not_kept = self.keeps.then(not_kept);
            self.fixes.push(fix);
            return Err(failure);
        }
        Ok((fix, trial.changed.into()))
    }

    /// Whether the user agrees. The user is not asked about a mitigation that is impossible here.
    fn is_wanted(&self, candidate: &Candidate) -> Result<bool, Failure> {
        if self.consent == Consent::Given {
            return Ok(true);
        }
        let plan = self.bench.changes.plan(candidate.mitigation)?;
        let is_possible = plan.check(false).is_ok() && plan.changes().next().is_some();
        Ok(!is_possible || self.consent.is_given_for(candidate.mitigation, &plan)?)
    }

    /// Leaves a winner applied for the trials that follow.
    fn keep(
        &mut self,
        candidate: &Candidate,
        judgement: &Judgement,
        fix: &mut Fix,
    ) -> Result<(), Failure> {
        let kept = (self.bench.peak(candidate.mitigation))
            .and_then(|peak| Ok((peak, self.bench.changes.apply(candidate.mitigation)?)));
        match kept {
            Ok((peak, held)) => {
                fix.throughput = peak;
                self.exported.push(Winner {
                    mitigation: candidate.mitigation,
                    changes: held.changes(),
                    needs_a_holder: held.needs_a_holder(),
                    cpus: self.bench.changes.scope().cpus.clone().unwrap_or_default(),
                });
                self.winners.push(held);
                Ok(())
            }
            Err(NotApplied::Failed(failure)) => Err(failure),
            Err(NotApplied::Unavailable(why)) => {
                fix.outcome = FixOutcome::Unavailable;
                fix.reason = format!("{}; then it could not be applied: {why}", judgement.reason);
                Ok(())
            }
        }
    }

    /// The row `of`, filled with the results of a trial.
    fn seen(&self, trial: &Trial, judgement: &Judgement, of: Fix) -> Fix {
        let pairs = &trial.pairs;
        let (decided_at, decided_by) = judgement.decided.unzip();
        Fix {
            measured: decide::ratios(|q| pairs.ratio(q)),
            adjusted: decide::ratios(|q| trial.adjusted.ratio(q)),
            typical: decide::ratios(|q| pairs.typical(q)),
            by_pair: decide::by_pair(pairs),
            decided_at,
            decided_by,
            pairs: pairs.count() as u32,
            tail: self.tail(pairs, decided_at),
            outcome: judgement.outcome,
            reason: judgement.reason.clone(),
            ..of
        }
    }

    fn tail(&self, pairs: &Pairs, q: Option<f64>) -> Option<TailAt> {
        let q = q?;
        let (before_ns, after_ns) = pairs.quantiles(q)?;
        let ideal = &self.setting.report.server.ideal;
        let mut known = ideal.sojourn.quantiles.iter();
        let ideal = known.find(|known| (known.q - q).abs() < 1e-9);
        Some(TailAt {
            q,
            before_ns,
            after_ns,
            ideal_ns: ideal.and_then(|ideal| ideal.value),
        })
    }

    fn left(&self) -> Duration {
        self.bench.ends.saturating_duration_since(Instant::now())
    }

    /// The level of the next trial, with so many candidates.
    fn level_for(&self, candidates: usize) -> f64 {
        self.level.next(candidates, self.bench.room(self.left()))
    }

    fn share(&self) -> Duration {
        self.left().mul_f64(SHARE)
    }

    /// Puts everything back. Winners that are to be kept are then applied again for good, if possible.
    ///
    /// # Errors
    /// Something could not be put back or applied again.
    pub fn end(&mut self) -> Result<(), Failure> {
        let mut ended = Ok(());
        while let Some(held) = self.winners.pop() {
            // try all before returning the first failure
            ended = ended.and(self.bench.changes.take_back(held));
        }
        ended?;
        for winner in self.exported.iter().filter(|_| self.keeps) {
            let name = winner.mitigation.is.name;
            if winner.needs_a_holder {
                kept::note(&mut self.fixes, name, kept::needs_a_holder(name));
            } else if let Some(id) = self.bench.changes.leave_applied(winner.mitigation)? {
                self.left.push(KeptMitigation { name, id });
            }
        }
        Ok(())
    }

    /// What was tried, in order; what the winners changed; and which of them stay applied.
    pub fn into_results(self) -> (Vec<Fix>, Vec<Winner>, Vec<KeptMitigation>) {
        (self.fixes, self.exported, self.left)
    }
}

/// Changes with a good forecast that are not settings, so that taillab cannot make them.
fn by_hand(result: &ServerResult) -> impl Iterator<Item = Fix> {
    candidates::by_hand(result).map(|(prediction, cost, predicted)| Fix {
        predicted,
        outcome: FixOutcome::Unavailable,
        reason: format!("not a setting that taillab can change: {cost}"),
        ..Fix::blank(&prediction.change, &prediction.description)
    })
}

fn untried(candidate: &Candidate, reason: &str) -> Fix {
    let is = candidate.mitigation.is;
    Fix {
        predicted: candidate.predicted.clone(),
        reason: reason.to_owned(),
        ..Fix::blank(is.name, is.description)
    }
}
