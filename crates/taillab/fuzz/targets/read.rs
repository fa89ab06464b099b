//! A recording, read and analysed as `taillab explain` does.

use std::io::Cursor;
use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::matcher::{InOrder, MatchOptions};
use taillab_analysis::{Analysis, AnalysisOptions, Window, Windows, service_time};
use taillab_model::{Event, Monotonic, Nanos, RecordingReader};

/// Few requests in a window, so that many go on from one window to the next, which is a case of its own.
const REQUESTS: usize = 100;

pub(crate) fn recording(bytes: Vec<u8>) {
    let Ok(mut reader) = RecordingReader::open_whole(Cursor::new(bytes)) else {
        return;
    };
    let context = reader.context().clone();
    let Ok(options) = MatchOptions::of(&context) else {
        return;
    };
    let base = reader.base();
    let from = context
        .measure_from_ns
        .map_or(base, Monotonic::from_nanos_since_boot);
    let mut windows = Windows::new(options, &context, REQUESTS);
    let mut analysis: Option<Analysis<'_>> = None;
    let mut take = |window: Window| {
        let workers = context
            .workers
            .and_then(NonZeroU32::new)
            .unwrap_or(NonZeroU32::MIN);
        let analysis = analysis.get_or_insert_with(|| {
            let estimate = service_time::estimate(&window.matched, &window.timeline, from, workers);
            let t = context
                .service_time_ns
                .or(estimate.map(|estimate| estimate.service_time))
                .unwrap_or(Nanos::from_micros(10));
            Analysis::new(&context, AnalysisOptions::new(t, workers, from))
        });
        analysis.push(&Arc::new(window), |_, _| {});
    };
    let mut events = InOrder::new(reader.recorded(), options.disorder);
    for event in events.by_ref() {
        let event: Event = event.into();
        if let Some(window) = windows.observe(&event) {
            take(window);
        }
    }
    take(windows.finish(events.late()));
    let lost = reader.lost().total();
    if let Some(Ok(sums)) = analysis.map(|analysis| analysis.finish(lost)) {
        let _ = sums.unjudged();
    }
}
