//! The state of a CPU while events come: who is current, what ran on top, and when it was silent.

use std::ops::Range;

use taillab_model::{Monotonic, Nanos, Tid};

use super::codes::pack_top;
use super::column::Column;
use super::line::{at as instant, ns};
use super::missed_interrupts::QuietTime;
use super::stalls::{self, Silence, Stall};
use super::state::Top;
use crate::id_map::Numbered;
use crate::spans::earlier;

/// With more meanings than this, those that no change has any more are forgotten now and then.
const MANY_MEANINGS: usize = 1 << 16;

/// The most meanings. Beyond that it is not told apart who was current.
const MOST_MEANINGS: usize = 1 << 21;

/// What is known about a CPU while events come.
#[derive(Default)]
pub(super) struct CpuBuilder {
    pub(super) changes: Column,
    pub(super) meanings: Vec<(Tid, Top)>,
    codes: Numbered<u64>,
    /// How many meanings there may be until the unused ones are forgotten.
    most_meanings: usize,
    /// The current thread, if one has been seen.
    pub(super) current: Option<Tid>,
    /// The code of that thread with nothing on top of it.
    pub(super) current_code: Option<u64>,
    /// The last event that proves who is current.
    pub(super) proven_ns: u64,
    /// The last event of any kind.
    pub(super) active_ns: u64,
    pub(super) silences: Vec<Silence>,
    /// The last stretch in which nothing was recorded here, whichever thread was current.
    pub(super) quiet: Option<QuietTime>,
    /// Stalls in which the CPU did not react to other CPUs.
    pub(super) missed_interrupts: Vec<Stall>,
    pub(super) last_stolen: Option<Monotonic>,
}

impl CpuBuilder {
    pub(super) fn code(&mut self, thread: Tid, top: Top) -> u64 {
        code_of(&mut self.meanings, &mut self.codes, (thread, top))
    }

    /// Something was recorded here in this span; `timer` if it was a tick of the local timer.
    /// `own` says whether a thread is the server's.
    pub(super) fn active(
        &mut self,
        span: Range<Monotonic>,
        timer: bool,
        own: impl Fn(Tid) -> bool,
    ) {
        let (from, at) = (span.start, span.end);
        let was_active = self.active_ns;
        self.active_ns = was_active.max(ns(at));
        if was_active > 0 && ns(from).saturating_sub(was_active) >= stalls::MIN_SILENCE.get() {
            self.quiet = Some(QuietTime {
                from: instant(was_active),
                to: from,
                interrupted: self.current == Some(0),
            });
        }
        let thread = match self.current {
            Some(thread) if was_active > 0 && thread != 0 => thread,
            _ => return,
        };
        if timer && let Some(last) = self.silences.last_mut() {
            last.ticked(from);
        }
        let mut note = |from_ns: u64, to_ns: u64| {
            if to_ns.saturating_sub(from_ns) >= stalls::MIN_SILENCE.get() {
                self.silences.push(Silence {
                    from: instant(from_ns),
                    to: instant(to_ns),
                    tick: timer.then_some(from),
                    own: own(thread),
                });
            }
        };
        note(was_active, ns(from));
        note(was_active.max(ns(from)), ns(at));
    }

    /// The CPU was active from `from` on, so it did not stand still.
    #[inline]
    pub(super) fn reacted(&mut self, from: Monotonic) {
        if let Some(last) = self.missed_interrupts.last_mut()
            && last.to > from
        {
            last.to = from;
            if from.saturating_since(last.from) < stalls::MIN_SILENCE {
                self.missed_interrupts.pop();
            }
        }
    }

    /// What was taken for silence since `from_ns` was none.
    pub(super) fn was_not_silent(&mut self, from_ns: u64) {
        let from = instant(from_ns);
        while let Some(mut last) = self.silences.pop_if(|silence| silence.to > from) {
            if last.from < from && from.saturating_since(last.from) >= stalls::MIN_SILENCE {
                (last.to, last.tick) = (from, None);
                self.silences.push(last);
                break;
            }
        }
        self.quiet.take_if(|quiet| quiet.to > from);
        while self
            .missed_interrupts
            .last()
            .is_some_and(|stall| stall.to > from)
        {
            self.reacted(from);
        }
    }

    /// Forgets the meanings that no change has any more: threads that have ended.
    pub(super) fn forget_meanings(&mut self) {
        if self.meanings.len() <= self.most_meanings.max(MANY_MEANINGS) {
            return;
        }
        let before = std::mem::take(&mut self.meanings);
        self.codes = Numbered::default();
        let (meanings, codes) = (&mut self.meanings, &mut self.codes);
        let mut new = |code: u64| code_of(meanings, codes, before[code as usize]);
        self.changes.recode(&mut new);
        self.current_code = self.current_code.map(new);
        self.most_meanings = self.meanings.len().saturating_mul(2);
    }

    pub(super) fn is_current(&mut self, at: Monotonic, thread: Tid) {
        self.current = Some(thread);
        self.proven_ns = ns(at);
        let code = self.code(thread, Top::Nothing);
        self.current_code = Some(code);
        self.changes.push(ns(at), code);
    }

    /// From `at` on it is not known what the CPU does, until a thread is seen there.
    pub(super) fn becomes_unknown(&mut self, at: Monotonic) {
        let code = self.forget_thread();
        self.changes.push(ns(at), code);
        self.current = None;
        self.active_ns = 0;
        self.quiet = None;
    }

    /// From now on it is not known which thread is current; returns the code for that.
    pub(super) fn forget_thread(&mut self) -> u64 {
        let code = self.code(0, Top::Blind);
        self.current_code = Some(code);
        code
    }

    /// Something ran for `lasted` until now, on top of the current thread.
    pub(super) fn ran(&mut self, at: Monotonic, lasted: Nanos, what: Top) {
        let from = earlier(at, lasted);
        let (from_ns, to_ns) = (ns(from), ns(at));
        // it takes time to leave a power state, except state 0, which only polls
        if what != (Top::Idle { state: 0 }) {
            self.reacted(from);
        }
        if self.changes.last_ns().is_none() {
            let code = self.code(0, Top::Nothing);
            self.changes.push(from_ns, code);
        }
        self.relabel(from_ns, to_ns, |(thread, top)| {
            let free = match what {
                Top::Idle { .. } => thread == 0 && top == Top::Nothing,
                _ => matches!(
                    top,
                    Top::Nothing | Top::Idle { .. } | Top::KernelLock | Top::Storage { .. }
                ),
            };
            (thread, if free { what } else { top })
        });
        let code = match self.current_code {
            Some(code) => code,
            None => self.code(0, Top::Nothing),
        };
        self.changes.push(to_ns, code);
    }

    pub(super) fn blind_between(&mut self, from: Monotonic, to: Monotonic) {
        self.relabel(ns(from), ns(to), |(thread, top)| match top {
            Top::Softirq { .. } | Top::Interrupt(_) => (thread, top),
            _ => (thread, Top::Blind),
        });
    }

    /// Whether the thread was current here at some time between the two.
    pub(super) fn had(&self, thread: Tid, from_ns: u64, to_ns: u64) -> bool {
        let is_thread = |code: u64| self.meanings[code as usize].0 == thread;
        self.changes.any(from_ns, to_ns, is_thread)
    }

    pub(super) fn relabel(
        &mut self,
        from_ns: u64,
        to_ns: u64,
        mut f: impl FnMut((Tid, Top)) -> (Tid, Top),
    ) {
        let (meanings, codes) = (&mut self.meanings, &mut self.codes);
        self.changes.rewrite(from_ns, to_ns, |code| {
            let before = meanings[code as usize];
            match f(before) {
                after if after == before => code,
                after => code_of(meanings, codes, after),
            }
        });
    }
}

/// The code of a meaning; a new one if it has none yet.
fn code_of(meanings: &mut Vec<(Tid, Top)>, codes: &mut Numbered<u64>, meaning: (Tid, Top)) -> u64 {
    let (thread, top) = match meanings.len() < MOST_MEANINGS {
        true => meaning,
        false => (0, Top::Blind),
    };
    let key = u64::from(thread) << 32 | u64::from(pack_top(top));
    codes.get_or_insert_with(key, || {
        meanings.push((thread, top));
        meanings.len() as u64 - 1
    })
}
