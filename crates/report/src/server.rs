//! The server's side of a result, whoever sent the requests: what runs and traces share.

use taillab_model::summary::{Calibration, LoadSummary, Observer, ServerResult, Verdict};
use taillab_model::{Distribution, Nanos};

use crate::{Curve, RunReport, Series, TraceReport};

/// What the outputs of runs and of traces have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerSide<'a> {
    pub(crate) result: &'a ServerResult,
    /// The load, where the client is ours.
    pub(crate) load: Option<&'a LoadSummary>,
    /// How the peak was measured, where it was.
    pub(crate) calibration: Option<&'a Calibration>,
    /// What watching cost, where it is known.
    pub(crate) observer: Option<&'a Observer>,
    /// Length of what was measured.
    pub(crate) duration: Nanos,
    pub(crate) verdict: &'a Verdict,
    /// It ended before its time.
    pub(crate) partial: bool,
    pub(crate) curves: &'a [Curve],
}

impl<'a> From<&RunReport<'a>> for ServerSide<'a> {
    fn from(report: &RunReport<'a>) -> Self {
        let summary = report.summary;
        Self {
            result: &summary.result,
            load: Some(&summary.load),
            calibration: Some(&summary.calibration),
            observer: None,
            duration: summary.load.duration_ns,
            verdict: &summary.verdict,
            partial: summary.partial,
            curves: report.curves,
        }
    }
}

impl<'a> From<&TraceReport<'a>> for ServerSide<'a> {
    fn from(report: &TraceReport<'a>) -> Self {
        let summary = report.summary;
        Self {
            result: &summary.result,
            load: None,
            calibration: None,
            observer: summary.observer.as_ref(),
            duration: summary.duration_ns,
            verdict: &summary.verdict,
            partial: summary.partial,
            curves: report.curves,
        }
    }
}

impl<'a> ServerSide<'a> {
    /// The views that there are, each with its distribution, in the order of [`Series::ALL`].
    pub(crate) fn views(&self) -> Vec<(Series, &'a Distribution)> {
        let mut views = vec![
            (Series::Ideal, &self.result.ideal.sojourn),
            (Series::Measured, &self.result.measured.sojourn),
        ];
        views.extend(self.load.map(|load| (Series::Client, &load.response_time)));
        views
    }

    /// What the views are, in one sentence.
    pub(crate) const fn views_explained(&self) -> &'static str {
        match self.load {
            Some(_) => crate::EXPLANATION,
            None => crate::SERVER_EXPLANATION,
        }
    }
}
