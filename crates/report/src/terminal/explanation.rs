//! Where the excess came from and what would remove it: findings, composition, culprits,
//! forecasts.

use taillab_model::Nanos;
use taillab_model::explanation::{
    Band, Cause, CauseShare, Explanation, Finding, Prediction, WorkerShare,
};

use super::text::{Ink, Side, Table, clean, columns, wrap};
use super::{INDENT, Page};
use crate::Document;
use crate::explained::{self, Composition, Part};
use crate::figures::{self, count, counted, micros, micros_f64, percent};

/// How much of it to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// What fits a screen, the most important first.
    Chief,
    /// All of it.
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

/// The heading of what it consists of.
const EXCESS: &str = "Where the excess comes from";
/// Causes in the bars beside `unexplained` and the others: as many as there are colours.
const CAUSES: usize = 5;
/// Marks of the parts, so that the bars read without colours.
const MARKS: [char; CAUSES] = ['█', '▓', '▒', '░', '╱'];
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
        let (ink, mark) = match finding.inconclusive {
            true => (Ink::Notable, "?"),
            false => (Ink::Title, "•"),
        };
        let mut lead = format!("{:INDENT$}{} ", "", self.style.paint(ink, mark));
        for line in wrap(&clean(&finding.text), self.style.width - INDENT - 2) {
            self.line(&format!("{lead}{line}"));
            lead = " ".repeat(INDENT + 2);
        }
        if let Some(advice) = &finding.advice {
            self.advice("Try:", advice);
        }
    }

    /// A line under an item: what it is, then the text, further in.
    fn advice(&mut self, word: &str, text: &str) {
        let further_in = INDENT + 2 + columns(word) + 1;
        let text = clean(text);
        let text = text.trim_start_matches(word).trim_start();
        let mut lead = format!(
            "{:1$}{2} ",
            "",
            INDENT + 2,
            self.style.paint(Ink::Good, word)
        );
        for line in wrap(text, self.style.width - further_in) {
            self.line(&format!("{lead}{}", self.style.paint(Ink::Title, &line)));
            lead = " ".repeat(further_in);
        }
    }

    /// Composition, culprits, forecasts, and what else is known of the slow requests.
    pub(super) fn causes(&mut self, document: &Document<'_>) {
        let result = &document.report.server;
        match &result.explanation {
            Some(explanation) => self.composition(&explanation.bands),
            None => {
                self.heading(EXCESS, "");
                self.paragraph(Ink::Notable, explained::NOT_EXPLAINED);
            }
        }
        self.culprits(&result.causes, Extent::Chief);
        if let Some(explanation) = &result.explanation {
            let fit = result.model_fit.as_ref();
            self.heading("What would help", "");
            let ink = match fit {
                Some(fit) if fit.good => Ink::Quiet,
                _ => Ink::Notable,
            };
            self.paragraph(ink, &clean(&explained::fit_sentence(fit)));
            self.predictions(&result.predictions, Extent::Chief);
            self.slow_requests(explanation);
        }
    }

    /// What [`Self::causes`] only counts.
    pub(super) fn all_causes(&mut self, document: &Document<'_>) {
        let result = &document.report.server;
        let (shown, all) = shown_culprits(&result.causes, Extent::Chief);
        if shown.len() < all {
            self.culprits(&result.causes, Extent::All);
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

    fn composition(&mut self, bands: &[Band]) {
        let Some(composition) = Composition::of(bands, CAUSES) else {
            return;
        };
        let style = self.style;
        self.heading(EXCESS, "by percentile of the sojourn");
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
        self.composition_table(&composition, &names);
    }

    /// The legend of the bars, with the share of each part in each band.
    fn composition_table(&mut self, composition: &Composition<'_>, names: &[String]) {
        let full = composition_table(composition, names, self.gap(), 1);
        if full.width() <= self.style.width {
            self.table(&full);
            return;
        }
        let short: Vec<String> = (composition.bands.iter())
            .map(|band| match band.from_q {
                q if q <= 0.0 => format!("≤{}", figures::quantile_name(band.to_q)),
                q => format!(">{}", figures::quantile_name(q)),
            })
            .collect();
        self.table(&composition_table(composition, &short, 1, 0));
    }

    fn culprits(&mut self, causes: &[CauseShare], extent: Extent) {
        let (shown, all) = shown_culprits(causes, extent);
        if all == 0 {
            return;
        }
        self.heading("What did it", "share of the excess above p99");
        let head = ["share", "", "times", "each lasts", "delays", "what"];
        let mut rows: Vec<[String; 6]> = vec![head.map(str::to_owned)];
        for row in &shown {
            let happened = row.episodes > 0;
            let or_dash = |text: String| if happened { text } else { "–".to_owned() };
            rows.push([
                percent(row.excess_share_above_p99.value, 1),
                explained::share_interval(row.excess_share_above_p99),
                or_dash(count(row.episodes)),
                or_dash(Nanos::new(row.mean_episode_ns.max(0.0).round() as u64).to_string()),
                or_dash(explained::mean_count(row.requests_per_episode)),
                clean(&explained::cause_and_culprit(
                    row.cause,
                    row.culprit.as_ref(),
                )),
            ]);
        }
        let sides = [
            Side::Right,
            Side::Left,
            Side::Right,
            Side::Right,
            Side::Right,
        ];
        let gaps = [INDENT, 1, 2, 2, 2];
        let widths: Vec<usize> = (0..sides.len())
            .map(|i| rows.iter().map(|row| columns(&row[i])).max().unwrap_or(0))
            .collect();
        let lead_width: usize = widths.iter().sum::<usize>() + gaps.iter().sum::<usize>() + 2;
        // without room beside the figures, what did it stands below them
        const LEAST_ROOM: usize = 28;
        let beside = lead_width + LEAST_ROOM <= self.style.width;
        let lead_width = if beside { lead_width } else { 2 * INDENT };
        let room = self.style.width.saturating_sub(lead_width);
        for (n, row) in rows.iter().enumerate() {
            let mut lead = String::new();
            for i in 0..sides.len() {
                let free = " ".repeat(widths[i] - columns(&row[i]));
                let ink = match (n, i) {
                    (0, _) | (_, 1) => Ink::Quiet,
                    (_, 0) => Ink::Title,
                    _ => Ink::Plain,
                };
                let text = self.style.paint(ink, &row[i]);
                lead.push_str(&" ".repeat(gaps[i]));
                match sides[i] {
                    Side::Left => lead.push_str(&format!("{text}{free}")),
                    Side::Right => lead.push_str(&format!("{free}{text}")),
                }
            }
            lead.push_str("  ");
            if !beside {
                self.line(&lead);
                lead = " ".repeat(lead_width);
                if n == 0 {
                    continue;
                }
            }
            for line in wrap(&row[5], room) {
                let ink = if n == 0 { Ink::Quiet } else { Ink::Plain };
                let line = self.style.paint(ink, &line);
                self.line(&format!("{lead}{line}"));
                lead = " ".repeat(lead_width);
            }
        }
        let left = all - shown.len();
        if left > 0 {
            let text = format!("and {} with less", counted(left as u64, "other", "others"));
            self.paragraph(Ink::Quiet, &text);
        }
    }

    fn predictions(&mut self, predictions: &[Prediction], extent: Extent) {
        let shown = shown_predictions(predictions, extent);
        if shown.is_empty() {
            return;
        }
        // as many intervals as there is room for: that of the far tail first
        let choices = [
            [true, true, true],
            [false, true, true],
            [false, false, true],
            [false; 3],
        ];
        let tables = choices.map(|intervals| predictions_table(&shown, intervals, self.gap()));
        let fitting = tables
            .iter()
            .find(|table| table.width() <= self.style.width);
        let Some(table) = fitting.or(tables.last()) else {
            return;
        };
        let mut lines = table.lines(self.style).into_iter();
        // the head, then what is measured, then a line for each forecast
        for line in lines.by_ref().take(2) {
            self.line(&line);
        }
        for (line, prediction) in lines.zip(&shown) {
            self.line(&line);
            let mut said = clean(&prediction.description);
            if let Some(cost) = &prediction.cost {
                said.push_str(&format!("; costs: {}", clean(cost)));
            }
            for line in wrap(&said, self.style.width - INDENT - 2) {
                let line = self.style.paint(Ink::Quiet, &line);
                self.line(&format!("{:1$}{line}", "", INDENT + 2));
            }
            if let Some(command) = &prediction.command {
                let line = self
                    .style
                    .paint(Ink::Good, &format!("$ {}", clean(command)));
                self.line(&format!("{:1$}{line}", "", INDENT + 2));
            }
        }
        let left = predictions.len() - shown.len();
        if left > 0 {
            let text = format!(
                "and {}: see the page or the JSON",
                counted(left as u64, "more change", "more changes")
            );
            self.paragraph(Ink::Quiet, &text);
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
            self.paragraph(Ink::Plain, &clean(&sentence));
        }
        if has_workers {
            self.workers(&explanation.workers, Extent::Chief);
        }
    }

    fn workers(&mut self, workers: &[WorkerShare], extent: Extent) {
        let mut workers: Vec<&WorkerShare> = workers.iter().collect();
        workers.sort_by(|a, b| b.mean_sojourn_ns.total_cmp(&a.mean_sojourn_ns));
        let shown = workers.len().min(extent.most(WORKERS_SHOWN));
        let gap = self.gap();
        let mut table = Table::new(&[
            (Side::Left, INDENT),
            (Side::Right, gap),
            (Side::Right, gap),
            (Side::Right, gap),
        ]);
        let head = ["worker", "requests", "busy", "mean sojourn in µs"];
        table.row(head.map(|name| (Ink::Quiet, name.to_owned())).to_vec());
        for worker in &workers[..shown] {
            table.row(vec![
                (
                    Ink::Plain,
                    clean(&format!("{} {}", worker.name, worker.tid)),
                ),
                (Ink::Plain, count(worker.requests)),
                (Ink::Plain, percent(worker.busy_share, 1)),
                (Ink::Plain, micros_f64(worker.mean_sojourn_ns)),
            ]);
        }
        self.table(&table);
        if shown < workers.len() {
            let left = counted((workers.len() - shown) as u64, "worker", "workers");
            self.paragraph(Ink::Quiet, &format!("and {left} with a shorter mean"));
        }
    }
}

fn composition_table(
    composition: &Composition<'_>,
    names: &[String],
    gap: usize,
    decimals: usize,
) -> Table {
    let mut sides = vec![(Side::Left, INDENT), (Side::Left, 1)];
    sides.extend(names.iter().map(|_| (Side::Right, gap)));
    let mut table = Table::new(&sides);
    let mut head = vec![(Ink::Quiet, String::new()); 2];
    head.extend(names.iter().map(|name| (Ink::Quiet, name.clone())));
    table.row(head);
    for (place, part) in composition.parts.iter().enumerate() {
        let (ink, mark) = mark(composition, place);
        let mut cells = vec![
            (ink, mark.to_string()),
            (Ink::Plain, part.label().to_owned()),
        ];
        for band in composition.bands {
            let share = composition.share(band, *part);
            let ink = match share {
                share if share >= 0.25 => Ink::Title,
                share if share.abs() < 0.005 => Ink::Quiet,
                _ => Ink::Plain,
            };
            cells.push((ink, percent(share, decimals)));
        }
        table.row(cells);
    }
    table
}

/// The culprits to show, and how many there are.
fn shown_culprits(causes: &[CauseShare], extent: Extent) -> (Vec<&CauseShare>, usize) {
    let mut culprits = explained::culprits(causes);
    let all = culprits.len();
    if extent == Extent::Chief {
        culprits.retain(|row| {
            row.excess_share_above_p99.value >= LEAST_SHARE || row.cause == Cause::Unexplained
        });
        // what is not explained is always shown, however many came before it
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

/// The forecasts to show, the best first: what a person can do has its place among them.
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

/// The colour and the mark of a part.
fn mark(composition: &Composition<'_>, place: usize) -> (Ink, char) {
    match composition.parts[place] {
        Part::Cause(Cause::Unexplained) => (Ink::Bad, '?'),
        Part::Others => (Ink::Quiet, '·'),
        Part::Cause(_) => {
            let n = place.min(CAUSES - 1);
            (Ink::Cause(n as u8), MARKS[n])
        }
    }
}

/// The quantiles of the forecasts.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

fn predictions_table(predictions: &[&Prediction], intervals: [bool; 3], gap: usize) -> Table {
    let mut sides = vec![(Side::Left, INDENT)];
    let mut head = vec![(Ink::Quiet, "µs, with 95 % intervals".to_owned())];
    let mut now = vec![(Ink::Plain, "as it is".to_owned())];
    let at = |prediction: &Prediction, q: f64| {
        let is_at =
            |point: &&taillab_model::explanation::PredictedPoint| (point.q - q).abs() < 1e-12;
        prediction.points.iter().find(is_at).copied()
    };
    for (i, q) in QUANTILES.into_iter().enumerate() {
        sides.push((Side::Right, gap));
        head.push((Ink::Quiet, figures::quantile_name(q)));
        let measured = predictions.iter().find_map(|p| at(p, q));
        now.push((
            Ink::Measured,
            measured.map_or_else(|| "–".to_owned(), |point| micros(point.measured_ns)),
        ));
        if intervals[i] {
            sides.push((Side::Left, 1));
            head.push((Ink::Quiet, String::new()));
            now.push((Ink::Quiet, String::new()));
        }
    }
    if intervals == [false; 3] {
        head[0].1 = "µs".to_owned();
    }
    let mut table = Table::new(&sides);
    table.row(head);
    table.row(now);
    for prediction in predictions {
        let mut cells = vec![(Ink::Title, clean(&prediction.change))];
        for (i, q) in QUANTILES.into_iter().enumerate() {
            let point = at(prediction, q);
            cells.push((
                Ink::Good,
                point.map_or_else(|| "–".to_owned(), |point| micros(point.predicted_ns)),
            ));
            if intervals[i] {
                let interval = point.and_then(|point| point.lo_ns.zip(point.hi_ns));
                cells.push((
                    Ink::Quiet,
                    interval
                        .map(|(lo, hi)| format!("{}–{}", micros(lo), micros(hi)))
                        .unwrap_or_default(),
                ));
            }
        }
        table.row(cells);
    }
    table
}
