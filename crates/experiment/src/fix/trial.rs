//! One trial: pairs of blocks without and with a change, until its interval decides.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use taillab_analysis::paired::{changed_first, ratio_of_sums};
use taillab_analysis::untouched::{ReplayedBlock, untouched};
use taillab_console::exit::Failure;
use taillab_console::progress;
use taillab_host::tune::Mitigation;
use taillab_model::Nanos;
use taillab_model::explanation::Cause;
use taillab_model::fix::Ratio;

use super::decide::{self, Trial};
use super::level;
use super::load::{BlockResult, Load, interrupted};
use crate::changes::{Changes, NotApplied};

/// Pairs of closed-loop blocks for the effect on the peak.
const PEAK_PAIRS: u64 = 6;

/// The most pairs in a trial; more would add little about one mitigation.
const MOST_PAIRS: usize = 60;

/// How many blocks with a change are kept to forecast what else there is to gain: together they have as many
/// requests as a short measurement.
const MOST_CHANGED: usize = 12;

/// What the trials run with.
pub struct Bench<'r> {
    /// The server under load, block by block.
    pub load: Box<dyn Load + 'r>,
    /// Applies mitigations and takes them back.
    pub changes: Changes,
    /// The service time t of the measurement.
    pub service_time: Nanos,
    /// The seed of the arrivals and of the order of the blocks.
    pub seed: u64,
    /// Whether progress is shown.
    pub shows: bool,
    /// When all trials must be over.
    pub ends: Instant,
}

impl From<Failure> for NotApplied {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Bench<'_> {
    /// About how long a block takes, with everything around it.
    pub fn block_takes(&self) -> Duration {
        /// Applying and reverting, moving to the client's CPU, the replay.
        const AROUND: Duration = Duration::from_millis(200);
        Duration::from_nanos(self.load.takes().get()) + AROUND
    }

    fn pair_takes(&self) -> Duration {
        2 * self.block_takes()
    }

    /// The length of a trial of so many pairs.
    pub fn takes(&self, pairs: usize) -> Duration {
        self.pair_takes() * pairs as u32
    }

    /// How many pairs this time has room for.
    pub fn room(&self, time: Duration) -> usize {
        (time.as_secs_f64() / self.pair_takes().as_secs_f64()) as usize
    }

    /// Pairs without and with `change` (`None`: the control), for `at_most`, or longer where the fewest pairs that can
    /// prove anything at this `level` take longer.
    ///
    /// # Errors
    /// [`NotApplied`]; the change is put back then, too.
    pub fn pairs(
        &mut self,
        name: &str,
        change: Option<&'static Mitigation>,
        (level, at_most): (f64, Duration),
    ) -> Result<Trial, NotApplied> {
        let fewest = level::fewest_pairs(level);
        let most = self.room(at_most).min(MOST_PAIRS).max(fewest);
        let bar = self.bar(name, most, "pairs");
        let ends = Instant::now() + at_most.max(self.takes(fewest));
        let noise = untouched(change.map_or(&[], |change| change.is.treats));
        let mut trial = Trial::new(level, most);
        while !trial.is_settled() {
            let is_enough = trial.pairs.count() >= fewest;
            if is_enough && Instant::now() + self.pair_takes() > ends {
                trial.end();
                break;
            }
            let number = trial.pairs.count() as u64;
            // the same arrivals in both blocks of a pair
            let seed = self.seed ^ (number << 20);
            let (mut before, mut after) = (None, None);
            let changed_first = changed_first(self.seed, number);
            for changed in [changed_first, !changed_first] {
                let changes = change.filter(|_| changed);
                let seen = self.under(changes.as_slice(), |load| load.block(seed))?;
                *(if changed { &mut after } else { &mut before }) = Some(seen);
            }
            if let (Some(before), Some(after)) = (before, after) {
                self.add(&mut trial, before, after, &noise);
            }
            let far = decide::deciding(&trial.pairs)
                .map(|(q, ratio)| format!("p{} × {:.2}, ", q * 100.0, ratio.value));
            self.tell(&bar, trial.pairs.count(), far.unwrap_or_default());
        }
        bar.finish_and_clear();
        Ok(trial)
    }

    /// Adds the blocks of a pair.
    fn add(&self, trial: &mut Trial, before: BlockResult, after: BlockResult, noise: &[Cause]) {
        let replayed = |seen: &BlockResult| seen.recorded.as_ref()?.replayed(self.service_time);
        let (without, with) = (replayed(&before), replayed(&after));
        if let (Some(without), Some(with)) = (&without, &with) {
            let left = |block: &ReplayedBlock| block.sojourns_without(noise);
            trial.adjusted.push(left(without), left(with));
            trial.adjusted_of.push(trial.pairs.count());
        }
        if let Some(with) = with {
            if trial.changed.len() == MOST_CHANGED {
                trial.changed.pop_front();
            }
            trial.changed.push_back(with);
        }
        trial.cut.add(&before, &after);
        trial.pairs.push(before.latencies, after.latencies);
    }

    /// A progress bar for a trial of at most `most` pairs or rounds (`of`).
    pub fn bar(&self, name: &str, most: usize, of: &str) -> ProgressBar {
        let template =
            format!("{{prefix:<22}} [{{bar:24}}] {{pos:>2}} of at most {{len}} {of}, {{msg}}");
        let bar = progress::bar(name, Some(most as u64), &template, self.shows);
        self.tell(&bar, 0, String::new());
        bar
    }

    /// Updates a bar: how far the trial is, its result so far, and the remaining time for all trials.
    pub fn tell(&self, bar: &ProgressBar, count: usize, far: String) {
        bar.set_position(count as u64);
        let left = self.ends.saturating_duration_since(Instant::now());
        bar.set_message(format!(
            "{far}all trials: at most {} s left",
            left.as_secs()
        ));
    }

    /// The peak with the change ÷ the peak without it; `None` if the load is not ours.
    ///
    /// # Errors
    /// [`NotApplied`].
    pub fn peak(&mut self, change: &'static Mitigation) -> Result<Option<Ratio>, NotApplied> {
        let mut peaks = Vec::new();
        for pair in 0..PEAK_PAIRS {
            let (mut before, mut after) = (0.0, 0.0);
            let changed_first = changed_first(!self.seed, pair);
            for changed in [changed_first, !changed_first] {
                let seed = self.seed ^ (pair << 40);
                let changes = Some(change).filter(|_| changed);
                let peak = self.under(changes.as_slice(), |load| load.peak_per_s(seed))?;
                let Some(peak) = peak else { return Ok(None) };
                *(if changed { &mut after } else { &mut before }) = peak;
            }
            peaks.push((after, before));
        }
        Ok(ratio_of_sums(&peaks).map(decide::estimate))
    }

    /// Applies changes, one after the other, while `block` runs.
    ///
    /// # Errors
    /// [`NotApplied`]; everything is put back then too.
    pub fn under<T>(
        &mut self,
        changes: &[&'static Mitigation],
        block: impl FnOnce(&mut dyn Load) -> Result<T, Failure>,
    ) -> Result<T, NotApplied> {
        if self.load.interrupt().is_raised() {
            return Err(interrupted().into());
        }
        let (mut held, mut refused) = (Vec::new(), None);
        for change in changes {
            match self.changes.apply(change) {
                Ok(one) => held.push(one),
                Err(why) => {
                    refused = Some(why);
                    break;
                }
            }
        }
        let found = match refused {
            None => block(self.load.as_mut()).map_err(NotApplied::from),
            Some(why) => Err(why),
        };
        // the last one first; try all before returning the first failure
        let mut put_back = Ok(());
        while let Some(one) = held.pop() {
            put_back = put_back.and(self.changes.take_back(one));
        }
        put_back?;
        found
    }
}
