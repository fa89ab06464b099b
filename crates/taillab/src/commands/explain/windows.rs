//! Events that go on coming, analysed a window at a time.

use taillab_analysis::Windows as Parts;
use taillab_analysis::matcher::MatchOptions;
use taillab_model::{Event, Monotonic, Nanos, RecordingContext};

use super::evaluate::{Beside, Evaluated, window};
use crate::cli::AnalysisArgs;
use crate::exit::{Exit, Failure, OrExit};

/// The windows.
///
/// Requests, threads and all that the matcher has learnt go on from window to window. A
/// request belongs to the window in which everything that came in before it is settled.
pub struct Windows {
    parts: Parts,
    /// What comes in before is not measured.
    from: Monotonic,
}

impl Windows {
    /// For so long a response is waited for: a request without one holds up those behind it.
    const LONGEST: Nanos = Nanos::from_secs(1);

    /// The first window begins with the first event.
    ///
    /// # Errors
    /// When the recording names a framing that there is not.
    pub fn new(context: &RecordingContext, from: Monotonic) -> Result<Self, Failure> {
        let mut options = MatchOptions::of(context).or_exit(Exit::Failed)?;
        options.stale_after = options.stale_after.min(Self::LONGEST);
        Ok(Self {
            parts: Parts::new(options, context, usize::MAX),
            from,
        })
    }

    /// Takes the next events, which are in order of time, and analyses what they settle;
    /// `None` where that is nothing yet.
    pub fn next(
        &mut self,
        events: &[Event],
        context: &RecordingContext,
        args: &AnalysisArgs,
        beside: Beside,
    ) -> Option<Result<(Evaluated, Vec<Nanos>), Failure>> {
        for event in events {
            self.parts.observe(event);
        }
        let mut part = self.parts.cut_now(events.last()?.at)?;
        // the others are the next window's
        part.matched.blind.retain(|blind| blind.to < part.upto);
        let from = part.from.max(self.from);
        Some(window(&part, from, context, args, beside))
    }
}
