//! One trial: pairs of blocks without and with a change, until its interval decides.

use std::time::{Duration, Instant};

use taillab_analysis::paired::{Pairs, changed_first, ratio_of_sums};
use taillab_host::tune::Mitigation;
use taillab_model::fix::Ratio;

use super::blocks::{Blocks, interrupted};
use super::changes::{Changes, NotApplied};
use super::decide;
use crate::exit::Failure;
use crate::progress;

/// Pairs of closed-loop blocks for the effect on the peak.
const PEAK_PAIRS: u64 = 6;

/// More pairs than this say no more about one mitigation.
const MOST_PAIRS: usize = 60;

/// Where the trials run.
pub struct Bench<'r> {
    /// The load.
    pub blocks: Blocks<'r>,
    /// The settings.
    pub changes: Changes,
    /// Of the arrivals and of the order of the blocks.
    pub seed: u64,
    /// Whether progress is shown.
    pub shows: bool,
}

impl From<Failure> for NotApplied {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Bench<'_> {
    /// About how long a pair takes.
    pub fn pair_takes(&self) -> Duration {
        /// Applying and reverting, twice the connection to the client's CPU.
        const AROUND: Duration = Duration::from_millis(100);
        Duration::from_nanos(2 * self.blocks.takes().get()) + AROUND
    }

    /// The fewest pairs of a trial take this long.
    pub fn shortest(&self) -> Duration {
        self.pair_takes() * decide::FEWEST_PAIRS as u32
    }

    /// Pairs without and with `change` (`None`: the control), for `at_most`.
    ///
    /// # Errors
    /// [`NotApplied`]; the change is put back then, too.
    pub fn pairs(
        &mut self,
        name: &'static str,
        change: Option<&'static Mitigation>,
        at_most: Duration,
    ) -> Result<Pairs, NotApplied> {
        let most = (at_most.as_secs_f64() / self.pair_takes().as_secs_f64()) as usize;
        let most = most.clamp(decide::FEWEST_PAIRS, MOST_PAIRS);
        let template = "{prefix:<22} [{bar:32}] {pos:>2} of at most {len} pairs, {elapsed}, at most {eta} left {msg}";
        let bar = progress::bar(name, Some(most as u64), template, self.shows);
        bar.tick();
        let ends = Instant::now() + at_most.max(self.shortest());
        let mut pairs = Pairs::default();
        while pairs.count() < most && !decide::is_settled(&pairs) {
            let is_enough = pairs.count() >= decide::FEWEST_PAIRS;
            if is_enough && Instant::now() + self.pair_takes() > ends {
                break;
            }
            let number = pairs.count() as u64;
            // the same arrivals in both blocks of a pair
            let seed = self.seed ^ (number << 20);
            let (mut before, mut after) = (Vec::new(), Vec::new());
            let changed_first = changed_first(self.seed, number);
            for changed in [changed_first, !changed_first] {
                let change = change.filter(|_| changed);
                let latencies = self.under(change, |blocks| blocks.latencies(seed))?;
                *(if changed { &mut after } else { &mut before }) = latencies;
            }
            pairs.push(before, after);
            bar.set_position(pairs.count() as u64);
            if let Some((q, ratio)) = decide::deciding(&pairs) {
                let far = format!("p{} × {:.2}", q * 100.0, ratio.value);
                bar.set_message(far);
            }
        }
        bar.finish_and_clear();
        Ok(pairs)
    }

    /// The peak with the change ÷ the peak without it.
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
                let change = Some(change).filter(|_| changed);
                let peak = self.under(change, |blocks| blocks.peak_per_s(seed))?;
                *(if changed { &mut after } else { &mut before }) = peak;
            }
            peaks.push((after, before));
        }
        Ok(ratio_of_sums(&peaks).map(decide::estimate))
    }

    /// Applies a change for the time of `block`.
    fn under<T>(
        &mut self,
        change: Option<&'static Mitigation>,
        block: impl FnOnce(&mut Blocks<'_>) -> Result<T, Failure>,
    ) -> Result<T, NotApplied> {
        if self.blocks.interrupt().is_raised() {
            return Err(interrupted().into());
        }
        let held = change
            .map(|change| self.changes.apply(change))
            .transpose()?;
        let found = block(&mut self.blocks);
        if let Some(held) = held {
            self.changes.take_back(held)?;
        }
        Ok(found?)
    }
}
