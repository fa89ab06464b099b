//! All trials, one after the other: the control, then each candidate on top of what was kept.

use std::time::{Duration, Instant};

use taillab_analysis::paired::Pairs;
use taillab_model::fix::{CONTROL, Fix, FixOutcome, TailAt};

use super::blocks::Blocks;
use super::candidates::{self, Candidate};
use super::changes::{Changes, Held, NotApplied, mitigations};
use super::decide::{self, Judgement};
use super::export::Winner;
use super::trial::Bench;
use super::{Asked, Setting};
use crate::exit::Failure;

/// A trial may take this share of the time that is left, so that one that decides nothing leaves
/// time for the others.
const SHARE: f64 = 0.4;

/// The trials and what has come of them.
pub struct Session<'a, 'r> {
    bench: Bench<'r>,
    setting: &'a Setting<'a>,
    ends: Instant,
    fixes: Vec<Fix>,
    winners: Vec<Held>,
    exported: Vec<Winner>,
}

impl<'a, 'r> Session<'a, 'r> {
    /// Nothing is tried yet.
    ///
    /// # Errors
    /// There is no place for the journal.
    pub fn new(
        blocks: Blocks<'r>,
        asked: Asked,
        setting: &'a Setting<'a>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            bench: Bench {
                changes: Changes::of(blocks.rig())?,
                blocks,
                seed: setting.experiment.workload.seed,
                shows: !setting.say.quiet,
            },
            setting,
            ends: Instant::now() + asked.budget,
            fixes: Vec::new(),
            winners: Vec::new(),
            exported: Vec::new(),
        })
    }

    /// Tries the control and each candidate, until the budget is spent.
    ///
    /// # Errors
    /// What ends the trials for good; what was tried before is kept.
    pub fn try_all(&mut self) -> Result<(), Failure> {
        let candidates = candidates::of(&self.setting.report.server);
        let names: Vec<&str> = (candidates.iter())
            .map(|candidate| candidate.mitigation.is.name)
            .collect();
        self.setting.say.note(&format_args!(
            "trying {} for at most {:.0} s: {}",
            match names.len() {
                0 => "no mitigation, only the control,".to_owned(),
                1 => "one mitigation".to_owned(),
                many => format!("{many} mitigations"),
            },
            self.left().as_secs_f64(),
            names.join(", ")
        ));
        let is_even = self.control()?;
        for candidate in candidates {
            self.setting.say.step(&format!(
                "trying {}: {}",
                candidate.mitigation.is.name, candidate.mitigation.is.description
            ));
            let fix = match is_even {
                true => self.try_one(&candidate)?,
                false => untried(
                    &candidate,
                    "not tried: the control \"improved\" with nothing changed, so this machine is too uneven now",
                ),
            };
            self.fixes.push(fix);
        }
        Ok(())
    }

    /// Pairs with nothing changed: whether they show nothing, as they should.
    fn control(&mut self) -> Result<bool, Failure> {
        self.setting.say.step("trying the control");
        let at_most = self.share().min(self.bench.shortest() * 2);
        let pairs = match self.bench.pairs(CONTROL, None, at_most) {
            Ok(pairs) => pairs,
            Err(NotApplied::Failed(failure)) => return Err(failure),
            // nothing is applied, so nothing is refused
            Err(NotApplied::Unavailable(_)) => return Ok(false),
        };
        let judgement = decide::judge(&pairs);
        let is_even = judgement.outcome != FixOutcome::Kept;
        let (outcome, reason) = match is_even {
            true => (judgement.outcome, "nothing was changed"),
            false => (FixOutcome::Inconclusive, "nothing was changed and yet"),
        };
        let fix = Fix {
            mitigation: CONTROL.to_owned(),
            description: "nothing is changed".to_owned(),
            predicted: Vec::new(),
            measured: decide::ratios(&pairs),
            decided_at: judgement.at,
            pairs: pairs.count() as u32,
            throughput: None,
            tail: self.tail(&pairs, judgement.at),
            outcome,
            reason: format!("{reason}: {}", judgement.reason),
        };
        self.fixes.push(fix);
        Ok(is_even)
    }

    fn try_one(&mut self, candidate: &Candidate) -> Result<Fix, Failure> {
        if self.left() < self.bench.shortest() {
            return Ok(untried(
                candidate,
                "not tried: the budget was spent before (--fix-budget)",
            ));
        }
        let mitigation = candidate.mitigation;
        let at_most = self.share();
        let tried = self
            .bench
            .pairs(mitigation.is.name, Some(mitigation), at_most);
        let pairs = match tried {
            Ok(pairs) => pairs,
            Err(NotApplied::Failed(failure)) => return Err(failure),
            Err(NotApplied::Unavailable(reason)) => {
                return Ok(Fix {
                    outcome: FixOutcome::Unavailable,
                    ..untried(candidate, &reason)
                });
            }
        };
        let judgement = decide::judge(&pairs);
        let mut fix = Fix {
            measured: decide::ratios(&pairs),
            decided_at: judgement.at,
            pairs: pairs.count() as u32,
            tail: self.tail(&pairs, judgement.at),
            ..untried(candidate, &judgement.reason)
        };
        fix.outcome = judgement.outcome;
        if judgement.outcome == FixOutcome::Kept {
            self.keep(candidate, &judgement, &mut fix)?;
        }
        Ok(fix)
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
                    cpus: self.bench.blocks.rig().placement().server.clone(),
                });
                self.winners.push(held);
                Ok(())
            }
            Err(NotApplied::Failed(failure)) => Err(failure),
            Err(NotApplied::Unavailable(why)) => {
                fix.outcome = FixOutcome::Unavailable;
                fix.reason = format!("{}; then it was refused: {why}", judgement.reason);
                Ok(())
            }
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
        self.ends.saturating_duration_since(Instant::now())
    }

    fn share(&self) -> Duration {
        self.left().mul_f64(SHARE)
    }

    /// Puts everything back; the winners are applied again for good where they are to be kept.
    ///
    /// # Errors
    /// Something could not be put back, or not be applied again.
    pub fn end(&mut self, keeps: bool) -> Result<(), Failure> {
        let winners = mitigations(&self.winners);
        let mut ended = Ok(());
        while let Some(held) = self.winners.pop() {
            // all are tried before the first failure is told
            ended = ended.and(self.bench.changes.take_back(held));
        }
        ended?;
        if keeps && !winners.is_empty() {
            for winner in &winners {
                self.bench.changes.leave_applied(winner)?;
            }
            let names: Vec<&str> = winners.iter().map(|winner| winner.is.name).collect();
            self.setting.say.note(&format_args!(
                "kept: {}; `taillab tune revert` puts them back. What belongs to the server's threads ends with \
                 this server",
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// What was tried, in this order, and what the winners changed.
    pub fn into_results(self) -> (Vec<Fix>, Vec<Winner>) {
        (self.fixes, self.exported)
    }
}

fn untried(candidate: &Candidate, reason: &str) -> Fix {
    Fix {
        mitigation: candidate.mitigation.is.name.to_owned(),
        description: candidate.mitigation.is.description.to_owned(),
        predicted: candidate.predicted.clone(),
        measured: Vec::new(),
        decided_at: None,
        pairs: 0,
        throughput: None,
        tail: None,
        outcome: FixOutcome::Inconclusive,
        reason: reason.to_owned(),
    }
}
