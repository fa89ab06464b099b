//! Analyses a stream of events, a window at a time: `trace --live` takes one every second.

use std::sync::Arc;

use taillab_analysis::matcher::MatchOptions;
use taillab_analysis::{Windows, streaming};
use taillab_console::args::AnalysisArgs;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_model::{Event, Monotonic, Nanos, RecordingContext};

use super::analyse::{Analysed, End, MeasurementFacts, Pass};

/// The windows of a recording that is still being made.
///
/// Requests, threads and the state of the matcher carry over from window to window. A request belongs to
/// the window in which everything before it is settled.
pub struct LiveWindows {
    windows: Windows,
    /// Earlier requests are not measured.
    from: Monotonic,
}

impl LiveWindows {
    /// The longest wait for a response: a request without one holds up the requests behind it.
    const LONGEST: Nanos = Nanos::from_secs(1);

    /// The first window begins with the first event.
    ///
    /// # Errors
    /// When the recording names an unknown framing.
    pub fn new(context: &RecordingContext, from: Monotonic) -> Result<Self, Failure> {
        let mut options = MatchOptions::of(context).or_exit(Exit::Failed)?;
        options.stale_after = options.stale_after.min(Self::LONGEST);
        Ok(Self {
            windows: Windows::new(options, context, usize::MAX),
            from,
        })
    }

    /// Takes the next events, which are in order of time, and analyses what they settle: the
    /// report and the sojourns of its requests; `None` while nothing is settled.
    pub fn next(
        &mut self,
        events: &[Event],
        context: &RecordingContext,
        args: &AnalysisArgs,
    ) -> Option<Result<(Analysed, Vec<Nanos>), Failure>> {
        for event in events {
            self.windows.observe(event);
        }
        let mut window = self.windows.cut_now(events.last()?.at)?;
        // the others belong to the next window
        window.matched.blind.retain(|blind| blind.to < window.upto);
        let from = window.from.max(self.from);
        let (matched, upto) = (&window.matched, window.upto);
        let sojourns = matched.measured_places(from);
        let sojourns = sojourns
            .map(|place| matched.requests.sojourn(place))
            .collect();
        let report = || {
            let mut pass =
                Pass::begin(args, context, &window, from, streaming::EXACT, (None, None))?;
            pass.push(&Arc::new(window));
            let facts = MeasurementFacts {
                command: "trace",
                ..MeasurementFacts::default()
            };
            let end = End {
                last: Some(upto),
                ..End::default()
            };
            pass.conclude(end, facts)
        };
        Some(report().map(|analysed| (analysed, sojourns)))
    }
}
