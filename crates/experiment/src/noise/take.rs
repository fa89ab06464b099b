//! Passes the loops' gaps to the analysis.

use taillab_analysis::gaps::{Gap, GapAnalysis};
use taillab_host::clock::now;
use taillab_host::noise::RawGap;
use taillab_host::noise::tsc::Anchor;
use taillab_model::RecordingContext;

use super::watch::Watch;

/// The analysis, and the probe that feeds it, if there is one.
pub struct GapRecording {
    pub analysis: GapAnalysis,
    watch: Option<Watch>,
    /// The clocks at the beginning, and when gaps were last taken.
    pub anchors: (Anchor, Anchor),
}

impl GapRecording {
    pub fn new(analysis: GapAnalysis, watch: Option<Watch>, first: Anchor) -> Self {
        Self {
            analysis,
            watch,
            anchors: (first, first),
        }
    }

    /// Takes all gaps since the last call, timed by the counter.
    pub fn raw_gaps(&mut self, loops: impl Iterator<Item = (u16, Vec<RawGap>)>) {
        let found: Vec<(u16, Vec<RawGap>)> = loops.collect();
        let (now, before) = (Anchor::take(), self.anchors.1);
        for (cpu, gaps) in found {
            for gap in gaps {
                self.analysis.gap(Gap {
                    cpu,
                    from: before.instant(now, gap.from),
                    to: before.instant(now, gap.to),
                });
            }
        }
        self.anchors.1 = now;
        self.drain();
    }

    /// Analyses what is settled.
    pub fn drain(&mut self) {
        match &mut self.watch {
            Some(watch) => watch.drain(&mut self.analysis),
            // without a probe there are no events to wait for
            None => self.analysis.settle(now()),
        }
    }

    /// Ends the recording, if there was one; returns the names of threads and interrupts.
    pub fn finish(&mut self, notes: &mut Vec<String>) -> Option<RecordingContext> {
        let mut context = RecordingContext::default();
        let lost = self.watch.take()?.finish(&mut self.analysis, &mut context);
        if lost > 0 {
            notes.push(format!(
                "{lost} events were lost: what they would have explained counts as taken by \
                 nothing in this kernel"
            ));
        }
        Some(context)
    }
}
