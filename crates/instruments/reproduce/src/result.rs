//! The results of `taillab reproduce`: a paper's figures and claims.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_model::Distribution;
use taillab_report::chart::{Axis, Chart, Curve, MOST_CURVES};
use taillab_report::figures::{grouped, interval_by, quantile_name};
use taillab_report::table::{Column, Table, cell, length, name};
use taillab_report::text::Ink;

/// Version of the shape of the JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// One call of `taillab reproduce`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reproduction {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `reproduce`.
    #[schemars(extend("const" = "reproduce"))]
    pub command: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The machine: its kernel, its CPUs, and what it runs in.
    pub machine: String,
    /// It was interrupted, or a figure failed; some curves are missing or short.
    pub partial: bool,
    /// The figures, in the paper's order.
    pub figures: Vec<ReproducedFigure>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReproducedFigure {
    /// `fig1` …
    pub figure: String,
    /// Its title.
    pub title: String,
    /// The curves, in the order of the legend.
    pub curves: Vec<ReproducedCurve>,
    /// The paper's statements, each with our number.
    pub claims: Vec<JudgedClaim>,
    /// How our curves differ from the paper's, or what agrees.
    pub note: Option<String>,
    /// The command that shows it.
    pub show: String,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// The axes of the chart.
    #[serde(skip)]
    pub axes: (Axis, Axis),
    /// What is drawn instead of the curves, where the horizontal axis is no latency.
    #[serde(skip)]
    pub drawn: Vec<Curve>,
    /// Whether the quantiles of the curves are also shown as a table.
    #[serde(skip)]
    pub tabulated: bool,
}

/// One curve.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReproducedCurve {
    /// Its label in the legend.
    pub label: String,
    /// The simulated sojourns, or the measured round trips.
    pub sojourn: Distribution,
    /// Points (time in nanoseconds, share of requests that take longer).
    #[serde(skip)]
    pub points: Vec<(f64, f64)>,
}

/// One statement.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JudgedClaim {
    /// The statement, in our words.
    pub statement: String,
    /// Where in the paper it is.
    pub source: String,
    /// The paper's number, e.g. `10×` or `above 1×`.
    pub paper: String,
    /// Our number; `None` if a quantile is missing.
    pub ours: Option<f64>,
    /// Lower end of its interval of 95 %; `None` where it was simulated to a precision beyond that of the paper.
    pub lo: Option<f64>,
    /// Upper end of its interval.
    pub hi: Option<f64>,
    /// `µs`, or `×` for a ratio.
    pub unit: &'static str,
    /// Whether our number agrees.
    pub verdict: Verdict,
    /// Why our number may differ: exact theory, or what has changed since the paper.
    pub explanation: Option<String>,
    /// What the verdict rests on; `None` where a number is compared with a number.
    pub why: Option<String>,
}

/// Whether a claim agrees with our number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our number agrees with the paper.
    Agrees,
    /// It disagrees, and so does exact theory.
    TheoryDisagrees,
    /// It disagrees.
    Disagrees,
    /// The interval is too wide to say.
    Undecided,
    /// The sample is too small for a quantile that is needed.
    Unsupported,
    /// What was measured cannot be compared with the paper; the figure's note says why.
    NotJudged,
    /// A curve was not measured.
    NotMeasured,
}

impl Verdict {
    /// What a person reads, with its colour and its mark.
    const fn look(self) -> (Ink, &'static str) {
        match self {
            Self::Agrees => (Ink::Good, "✓ agrees"),
            Self::TheoryDisagrees => (Ink::Notable, "! theory disagrees"),
            Self::Disagrees => (Ink::Bad, "✗ disagrees"),
            Self::Undecided => (Ink::Notable, "– undecided"),
            Self::Unsupported => (Ink::Notable, "– sample too small"),
            Self::NotJudged => (Ink::Notable, "– not judged"),
            Self::NotMeasured => (Ink::Notable, "– not measured"),
        }
    }
}

/// A number of the paper with its unit, as a [`JudgedClaim`] shows it.
pub fn stated(value: f64, unit: &str) -> String {
    let number = grouped(value, usize::from(value.fract() != 0.0));
    match unit {
        "×" => format!("{number}{unit}"),
        unit => format!("{number} {unit}"),
    }
}

impl JudgedClaim {
    /// Why our number differs from the paper's, if it does; or why nothing is decided.
    fn disagreement(&self) -> Option<&str> {
        match self.verdict {
            Verdict::TheoryDisagrees | Verdict::Disagrees => {
                self.explanation.as_deref().or(self.why.as_deref())
            }
            Verdict::Undecided => self.why.as_deref(),
            _ => None,
        }
    }

    /// The interval of our number.
    fn interval(&self) -> String {
        interval_by(|end| grouped(end, decimals(end)), self.lo, self.hi)
    }

    /// Our number with its unit.
    fn ours_text(&self) -> String {
        let Some(ours) = self.ours else {
            return "–".to_owned();
        };
        let number = grouped(ours, decimals(ours));
        match self.unit {
            "×" => format!("{number}×"),
            unit => format!("{number} {unit}"),
        }
    }
}

/// The decimals with which a ratio or a time is written.
const fn decimals(value: f64) -> usize {
    match value.abs() {
        ..0.1 => 3,
        ..20.0 => 2,
        _ => 1,
    }
}

impl ReproducedFigure {
    /// The figure's chart.
    pub fn chart(&self) -> Chart {
        let (title, subtitle) = self.title.split_once(": ").unwrap_or((&self.title, ""));
        let number = self.figure.strip_prefix("fig");
        let number = number.filter(|number| number.parse::<u32>().is_ok());
        let curves = || -> Vec<Curve> {
            let curves = self.curves.iter().take(MOST_CURVES);
            curves
                .map(|curve| Curve::new(&curve.label, curve.points.clone()))
                .collect()
        };
        Chart {
            title: match number {
                Some(number) => format!("Figure {number}: {title}"),
                None => title.to_owned(),
            },
            subtitle: subtitle.to_owned(),
            x: self.axes.0,
            y: self.axes.1,
            curves: match self.drawn.is_empty() {
                true => curves(),
                false => self.drawn.clone(),
            },
            rule: None,
        }
    }

    /// Where it comes from, in a sentence.
    pub(crate) fn provenance(&self) -> String {
        format!("{} took {:.1} s.", self.show, self.took_s)
    }

    /// The quantiles of the curves, if they are shown.
    pub(crate) fn quantiles_table(&self) -> Option<Table> {
        /// Those that statements are about.
        const SHOWN: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
        let heads = SHOWN.map(|q| Column::right(quantile_name(q)).gap(2));
        let columns = [Column::left("")].into_iter().chain(heads);
        let mut table = Table::new("Latency at each percentile", columns);
        for curve in &self.curves {
            let values = SHOWN.map(|q| length(curve.sojourn.quantile(q)));
            table.row([name(&curve.label)].into_iter().chain(values));
        }
        self.tabulated.then_some(table)
    }

    /// The paper's statements and our numbers.
    pub(crate) fn claims_table(&self) -> Table {
        /// The maximum width of a statement in a terminal.
        const STATEMENT: usize = 60;
        let columns = [
            Column::left("the paper says").wrapped(STATEMENT),
            Column::right("paper").gap(2),
            Column::right("ours").gap(2).notes(),
            Column::left("verdict").gap(2),
            Column::left("where").on_page(),
        ];
        let mut table =
            Table::new("What the paper says, and what we find", columns).class("claims");
        for claim in &self.claims {
            let (ink, verdict) = claim.verdict.look();
            let row = table.row([
                cell(&claim.statement),
                cell(&claim.paper),
                name(claim.ours_text()).note(claim.interval()),
                cell(verdict).ink(ink),
                cell(&claim.source),
            ]);
            if let Some(text) = claim.disagreement() {
                row.below(Ink::Notable, format!("! {text}"));
            }
        }
        table
    }
}

impl Reproduction {
    /// Whether every claim agrees with our number, or disagrees for a known reason.
    pub fn succeeded(&self) -> bool {
        self.claims()
            .all(|claim| matches!(claim.verdict, Verdict::Agrees | Verdict::TheoryDisagrees))
    }

    /// The number of claims with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.claims()
            .filter(|claim| claim.verdict == verdict)
            .count()
    }

    fn claims(&self) -> impl Iterator<Item = &JudgedClaim> {
        self.figures.iter().flat_map(|figure| &figure.claims)
    }

    /// All verdicts in one sentence.
    pub fn tally(&self) -> String {
        let all = self.claims().count();
        let mut text = format!("{} of {all} claims agree", self.count(Verdict::Agrees));
        for (verdict, words) in [
            (
                Verdict::TheoryDisagrees,
                "where exact theory disagrees with the paper’s text, as explained",
            ),
            (Verdict::Disagrees, "that we do not confirm"),
            (Verdict::Undecided, "undecided"),
            (Verdict::Unsupported, "for which the sample is too small"),
            (Verdict::NotJudged, "not judged, as the notes explain"),
            (Verdict::NotMeasured, "not measured"),
        ] {
            let n = self.count(verdict);
            if n > 0 {
                text.push_str(&format!("; {n} {words}"));
            }
        }
        text.push('.');
        text
    }
}
