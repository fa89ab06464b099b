//! Finds the peak of a server: one closed loop, whose answers are divided into blocks that follow the service time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use taillab_load::Hooks;
use taillab_model::Nanos;

/// The capacity is the median of this many blocks.
pub const BLOCKS: u32 = 7;
/// The shortest block.
const SHORTEST: Nanos = Nanos::from_millis(300);
/// Answers in a block: a slow server makes it longer.
const ANSWERS: u64 = 30;
/// A block of this length ends with fewer, if there is more than one.
const LONGEST: Nanos = Nanos::from_secs(10);
/// Before the first block, to fill the server's queue.
const WARM_UP: Nanos = Nanos::from_millis(50);

/// Divides the answers of a closed loop into blocks while it runs.
pub struct CapacityBlocks<'a, A> {
    answers: A,
    began: Instant,
    pace: AnswerPace,
    /// The number of blocks so far, for others to see.
    done: &'a AtomicU64,
}

/// Lets the server finish what a closed loop has left it to do, `outstanding` requests at this peak, so that the
/// measurement does not wait behind it. Ends early when `is_over`.
pub fn let_finish(outstanding: usize, peak_per_s: f64, is_over: impl Fn() -> bool) {
    /// A server that needs less has done it before the measurement begins.
    const NOTABLE: Duration = Duration::from_millis(50);
    /// Between two looks.
    const NAP: Duration = Duration::from_millis(20);
    let left = Duration::try_from_secs_f64(outstanding as f64 / peak_per_s).unwrap_or_default();
    let until = Instant::now() + left;
    while left > NOTABLE && Instant::now() < until && !is_over() {
        thread::sleep(NAP);
    }
}

/// How fast answers come.
struct AnswerPace {
    /// No answer for so long ends it.
    patience: Nanos,
    /// When the block began, and the answers until then.
    block: Option<(Nanos, u64)>,
    /// When the last answer was seen, and how many there were.
    last: (Nanos, u64),
    rates: Vec<f64>,
}

impl<'a, A: Fn() -> u64> CapacityBlocks<'a, A> {
    /// Watches a loop that begins now; `answers` says how many it has had. It ends after [`BLOCKS`] blocks, or when
    /// no answer comes for `patience`.
    pub fn new(answers: A, patience: Nanos, done: &'a AtomicU64) -> Self {
        Self {
            answers,
            began: Instant::now(),
            pace: AnswerPace::new(patience),
            done,
        }
    }

    /// The answers per second of each block; `None` if it ended before the last.
    pub fn rates_per_s(self) -> Option<Vec<f64>> {
        self.pace.is_complete().then_some(self.pace.rates)
    }

    fn elapsed(&self) -> Nanos {
        Nanos::new(self.began.elapsed().as_nanos() as u64)
    }
}

impl<A: Fn() -> u64> Hooks for CapacityBlocks<'_, A> {
    fn idle(&mut self, _until_next: Nanos) {
        let (at, answers) = (self.elapsed(), (self.answers)());
        self.pace.look(at, answers);
        self.done.store(self.pace.rates.len() as u64, Relaxed);
    }

    fn should_stop(&mut self) -> bool {
        self.pace.is_complete() || self.pace.is_silent(self.elapsed())
    }
}

impl AnswerPace {
    fn new(patience: Nanos) -> Self {
        Self {
            patience,
            block: None,
            last: (Nanos::ZERO, 0),
            rates: Vec::new(),
        }
    }

    /// A block begins and ends with an answer: so it has neither more nor fewer than its length allows.
    fn look(&mut self, at: Nanos, answers: u64) {
        if answers == self.last.1 || self.is_complete() {
            return;
        }
        self.last = (at, answers);
        let Some((from, before)) = self.block else {
            self.block = (at >= WARM_UP).then_some((at, answers));
            return;
        };
        let length = at.saturating_sub(from);
        let come = answers.saturating_sub(before);
        let is_full = length >= SHORTEST && come >= ANSWERS;
        if is_full || length >= LONGEST && come > 1 {
            self.rates.push(come as f64 / length.as_secs_f64());
            self.block = Some((at, answers));
        }
    }

    fn is_complete(&self) -> bool {
        self.rates.len() >= BLOCKS as usize
    }

    fn is_silent(&self, at: Nanos) -> bool {
        at.saturating_sub(self.last.0) > self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of a server that answers `together` requests every so many milliseconds, looked at once in 7 ms.
    fn found(every_ms: u64, together: u64) -> Vec<f64> {
        let mut pace = AnswerPace::new(Nanos::from_secs(30));
        let mut ms = 0;
        while !pace.is_complete() {
            ms += 7;
            let at = Nanos::from_millis(ms);
            pace.look(at, ms / every_ms * together);
            assert!(!pace.is_silent(at) && ms < 1_000_000, "{ms} ms");
        }
        pace.rates
    }

    #[test]
    fn blocks_follow_the_service_time() {
        for (every_ms, together) in [
            (1, 20),
            (20, 1),
            (40, 1),
            (50, 1),
            (1_000, 1),
            (9_000, 1),
            (40, 8),
        ] {
            let rates = found(every_ms, together);
            let wanted = 1_000.0 / every_ms as f64 * together as f64;
            assert_eq!(rates.len(), BLOCKS as usize);
            for rate in &rates {
                let off = (rate / wanted - 1.0).abs();
                assert!(off < 0.025, "{every_ms} ms: {rate} for {wanted}");
            }
        }
    }

    #[test]
    fn silence_ends_it() {
        let mut pace = AnswerPace::new(Nanos::from_secs(1));
        assert!(!pace.is_silent(Nanos::from_millis(1_000)));
        assert!(pace.is_silent(Nanos::from_millis(1_001)));
        pace.look(Nanos::from_millis(900), 1);
        assert!(!pace.is_silent(Nanos::from_millis(1_900)));
    }
}
