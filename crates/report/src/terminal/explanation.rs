//! Where the excess came from and what would remove it: findings, composition, culprits,
//! forecasts.

use taillab_model::explanation::{
    Band, Cause, CauseShare, Explanation, Finding, Prediction, WorkerShare,
};

use super::page::Page;
use crate::causes::{composition_table, culprits_table, mark, workers_table};
use crate::document::{Document, SharedOut};
use crate::explained::{self, Composition};
use crate::figures::{counted, micros_f64};
use crate::split;
use crate::text::{INDENT, Ink, columns};

/// How much of the explanation to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// What fits a screen, the most important first.
    Chief,
    /// Everything.
    All,
}

impl Extent {
    const fn most(self, chief: usize) -> usize {
        match self {
            Self::Chief => chief,
            Self::All => usize::MAX,
        }
    }
}

/// Causes in the bars, not counting `unexplained` and the others: as many as there are colours.
const CAUSES: usize = 5;
/// Forecasts that the first screens show.
const PREDICTIONS: usize = 4;
/// Workers that the first screens show.
const WORKERS_SHOWN: usize = 4;
/// Culprits that the first screens show.
const CULPRITS: usize = 6;
/// Culprits with less than this of the tail's excess are only counted.
const LEAST_SHARE: f64 = 0.005;

impl Page {
    /// The findings in plain sentences, each with what to do next.
    pub(super) fn findings(&mut self, document: &Document<'_>) {
        let Some(explanation) = &document.report.server.explanation else {
            return;
        };
        if explanation.findings.is_empty() {
            return;
        }
        self.heading("What was found", "");
        for finding in &explanation.findings {
            self.finding(finding);
        }
    }

    fn finding(&mut self, finding: &Finding) {
        self.found_text(finding);
        if let Some(advice) = &finding.advice {
            self.advice(advice);
        }
    }

    /// What a finding says. A terminal has no other letters for names and commands.
    pub(super) fn found_text(&mut self, finding: &Finding) {
        let (ink, mark) = match finding.inconclusive {
            true => (Ink::Notable, "?"),
            false => (Ink::Title, "•"),
        };
        self.marked(ink, mark, &finding.text.replace('`', ""));
    }

    /// What to do next about it.
    pub(super) fn advice(&mut self, advice: &str) {
        let arrow = self.style.paint(Ink::Good, "→");
        let lead = format!("{:1$}{arrow} ", "", INDENT + 2);
        self.hanging(&lead, INDENT + 4, Ink::Title, advice);
    }

    /// Composition, culprits, forecasts, and what else is known about the slow requests.
    pub(super) fn causes(&mut self, document: &Document<'_>) {
        let result = &document.report.server;
        let of = document.shared_out();
        match &result.explanation {
            Some(explanation) => self.composition(&explanation.bands, of),
            None => {
                self.heading(of.heading(), "");
                self.paragraph(Ink::Notable, explained::NOT_EXPLAINED);
            }
        }
        self.culprits(&result.causes, of, Extent::Chief);
        if let Some(explanation) = &result.explanation {
            let fit = result.model_fit.as_ref();
            if document.is_compared() {
                self.heading("What would help", "");
                let ink = match fit {
                    Some(fit) if fit.good => Ink::Quiet,
                    _ => Ink::Notable,
                };
                let text = explained::fit_sentence(fit, &document.report.verdict);
                self.paragraph(ink, &text);
                self.predictions(&result.predictions, Extent::Chief);
            }
            self.slow_requests(explanation);
        }
    }

    /// The rows that [`Self::causes`] leaves out.
    pub(super) fn all_causes(&mut self, document: &Document<'_>) {
        let result = &document.report.server;
        let culprits = |extent| shown_culprits(&result.causes, extent).0.len();
        if culprits(Extent::Chief) < culprits(Extent::All) {
            self.culprits(&result.causes, document.shared_out(), Extent::All);
        }
        if shown_predictions(&result.predictions, Extent::Chief).len() < result.predictions.len() {
            self.heading("What would help", "");
            self.predictions(&result.predictions, Extent::All);
        }
        let workers = result.explanation.as_ref().map(|of| of.workers.as_slice());
        if let Some(workers) =
            workers.filter(|workers| workers.len() == 1 || workers.len() > WORKERS_SHOWN)
        {
            self.heading("Workers", "");
            self.workers(workers, Extent::All);
        }
    }

    fn composition(&mut self, bands: &[Band], of: SharedOut) {
        let Some(composition) = Composition::of(bands, CAUSES) else {
            return;
        };
        let style = self.style;
        self.heading(of.heading(), "by percentile of the sojourn");
        let names: Vec<String> = bands.iter().map(explained::band_name).collect();
        let means: Vec<String> = (bands.iter())
            .map(|band| format!("{} µs", micros_f64(explained::band_excess_ns(band))))
            .collect();
        let widest = |of: &[String]| of.iter().map(|text| columns(text)).max().unwrap_or(0);
        let (name, mean) = (widest(&names), widest(&means));
        let room = style.width.saturating_sub(INDENT + name + mean + 4).max(8);
        for (i, band) in bands.iter().enumerate() {
            let mut line = format!(
                "{:INDENT$}{}  {:>mean$}  ",
                "",
                style.paint(Ink::Title, &format!("{:<name$}", names[i])),
                means[i]
            );
            let mut end = 0.0;
            let mut drawn = 0;
            for (place, (_, length)) in composition.drawn(band).into_iter().enumerate() {
                end += length;
                let to = (end * room as f64).round() as usize;
                let (ink, mark) = mark(&composition, place);
                line.push_str(&style.paint(ink, &mark.to_string().repeat(to - drawn.min(to))));
                drawn = to.max(drawn);
            }
            self.line(&line);
        }
        let table = composition_table(&composition, false);
        let short = || composition_table(&composition, true);
        self.table(&table.fit(style, &[&|table| *table = short()]));
    }

    fn culprits(&mut self, causes: &[CauseShare], of: SharedOut, extent: Extent) {
        let (shown, all) = shown_culprits(causes, extent);
        if all == 0 {
            return;
        }
        self.heading("What did it", &format!("share of {}", of.above_p99()));
        self.table(&culprits_table(&shown));
        let left = all - shown.len();
        if left > 0 {
            let text = format!("and {} with less", counted(left as u64, "other", "others"));
            self.paragraph(Ink::Quiet, &text);
        }
        if let Some(doubt) =
            explained::doubt_sentence(causes, of).filter(|_| extent == Extent::Chief)
        {
            self.paragraph(Ink::Quiet, &doubt);
        }
    }

    fn predictions(&mut self, predictions: &[Prediction], extent: Extent) {
        let shown = shown_predictions(predictions, extent);
        if shown.is_empty() {
            return;
        }
        self.forecasts(&shown);
        let left = predictions.len() - shown.len();
        if left > 0 {
            let more = counted(left as u64, "more change", "more changes");
            self.paragraph(Ink::Quiet, &format!("and {more}: see the page or the JSON"));
        }
    }

    /// Bursts, fan-out, order and workers, a sentence each.
    fn slow_requests(&mut self, explanation: &Explanation) {
        let name_of = |tid| explained::worker_name(explanation, tid);
        let clustering = explanation.clustering.as_ref();
        let sentences: Vec<String> = [
            clustering.map(explained::clustering_sentence),
            explained::inversions_sentence(&explanation.inversions, name_of),
            explained::fan_out_sentence(&explanation.fan_out),
        ]
        .into_iter()
        .flatten()
        .collect();
        let has_workers = explanation.workers.len() > 1;
        if sentences.is_empty() && !has_workers {
            return;
        }
        self.heading("The slow requests", "");
        for sentence in sentences {
            self.paragraph(Ink::Plain, &sentence);
        }
        if has_workers {
            self.workers(&explanation.workers, Extent::Chief);
        }
    }

    fn workers(&mut self, workers: &[WorkerShare], extent: Extent) {
        let most = extent.most(WORKERS_SHOWN);
        if let Some(uneven) = split::sentence(workers) {
            self.paragraph(Ink::Plain, &uneven);
        }
        self.table(&workers_table(workers, most));
        if most < workers.len() {
            let left = counted((workers.len() - most) as u64, "worker", "workers");
            self.paragraph(Ink::Quiet, &format!("and {left} with a shorter mean"));
        }
    }
}

/// The culprits to show, and how many there are.
fn shown_culprits(causes: &[CauseShare], extent: Extent) -> (Vec<&CauseShare>, usize) {
    let mut culprits = explained::culprits(causes);
    let all = culprits.len();
    let least = match extent {
        Extent::Chief => LEAST_SHARE,
        Extent::All => explained::LEAST_IN_TABLE,
    };
    culprits
        .retain(|row| row.excess_share_above_p99.value >= least || row.cause == Cause::Unexplained);
    if extent == Extent::Chief {
        // the unexplained share is always shown, even below many others
        let unexplained = |row: &&CauseShare| row.cause == Cause::Unexplained;
        let last = culprits.iter().copied().find(unexplained);
        culprits.truncate(CULPRITS);
        if let Some(last) = last.filter(|last| !culprits.contains(last)) {
            culprits.pop();
            culprits.push(last);
        }
    }
    (culprits, all)
}

/// The forecasts to show, the best first. Few of them lack a command, so that there is room for what a
/// person can do.
fn shown_predictions(predictions: &[Prediction], extent: Extent) -> Vec<&Prediction> {
    const WHAT_IFS: usize = 2;
    let mut what_ifs = 0;
    (predictions.iter())
        .filter(|prediction| {
            what_ifs += usize::from(prediction.command.is_none());
            prediction.command.is_some() || what_ifs <= extent.most(WHAT_IFS)
        })
        .take(extent.most(PREDICTIONS))
        .collect()
}
