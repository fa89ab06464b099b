//! A panel of a file's figure, once its configurations have been simulated or measured.

use taillab_model::Distribution;
use taillab_report::chart::{Axis, Curve};
use taillab_report::figures::quantile_name;

use crate::declared::{DeclaredFigure, Panel, Source, Statement};
use crate::judge::{self, Agreement, Judgement, RoundBlocks};
use crate::result::{JudgedClaim, ReproducedCurve, ReproducedFigure, Verdict};

/// What was simulated or measured of a configuration.
pub struct PanelData {
    /// Its blocks, one for each round.
    pub blocks: RoundBlocks,
    /// The distribution over all of them.
    pub sojourn: Distribution,
    /// Points (latency in nanoseconds, share of requests that take longer).
    pub points: Vec<(f64, f64)>,
    /// Why there are no blocks.
    pub lacks: Option<String>,
}

/// The name of a panel on its page and in the names of its files.
pub fn name(figure: &DeclaredFigure, panel: &Panel) -> String {
    match panel.name.as_str() {
        "" => figure.name.clone(),
        panel => format!("{}-{panel}", figure.name),
    }
}

/// The panel with its curves and the verdicts on its statements.
pub fn shown(
    figure: &DeclaredFigure,
    panel: &Panel,
    shown: &[PanelData],
    note: Option<String>,
) -> ReproducedFigure {
    let curves: Vec<ReproducedCurve> = (panel.configurations.iter().zip(shown))
        .map(|(configuration, of)| ReproducedCurve {
            label: configuration.name.clone(),
            sojourn: of.sojourn.clone(),
            points: without_start(&of.points),
        })
        .collect();
    let statements = figure.statements.iter();
    let claims = statements
        .filter(|statement| statement.is_about(panel))
        .filter_map(|statement| claim(statement, panel, shown))
        .collect();
    let along = along(panel, &curves);
    let knee = along.as_ref().and_then(|along| knee(&along.points));
    let notes = [figure.note.clone(), note, knee];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    ReproducedFigure {
        figure: name(figure, panel),
        title: panel.title.clone().unwrap_or_else(|| figure.title.clone()),
        axes: match along {
            Some(_) => (Axis::Utilisation, Axis::Latency),
            None => (Axis::Latency, Axis::Slower),
        },
        drawn: along.map(|along| along.curves).unwrap_or_default(),
        tabulated: true,
        curves,
        claims,
        note: (!notes.is_empty()).then(|| notes.join(" ")),
        show: match panel.is_live() {
            true => format!("sudo taillab reproduce tales {}", figure.name),
            false => format!("taillab reproduce tales {}", figure.name),
        },
        took_s: 0.0,
    }
}

/// The points of a curve without those of the fastest hundredth that would take up most of a logarithmic axis.
fn without_start(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    /// The longest latency that is left out, as a share of that which 1 % are faster than.
    const MUCH_FASTER: f64 = 0.2;
    let usual = points.iter().find(|(_, share)| *share <= 0.99);
    let least = usual.map_or(0.0, |(latency, _)| MUCH_FASTER * latency);
    let points = points.iter().filter(|(latency, _)| *latency >= least);
    points.copied().collect()
}

/// A statement with the verdict on it; `None` if it is about a configuration that the panel lacks.
fn claim(statement: &Statement, panel: &Panel, shown: &[PanelData]) -> Option<JudgedClaim> {
    let found = |name: &str| shown.get(panel.place(name)?);
    let (of, to) = (found(&statement.of)?, found(&statement.to)?);
    let names = [(&statement.of, of), (&statement.to, to)];
    let without = names.iter().find_map(|(name, shown)| {
        let why = shown.lacks.as_ref()?;
        Some(format!("“{name}” is not possible here: {why}"))
    });
    let judgement = match without {
        Some(why) => Judgement {
            ratio: None,
            judged: Agreement::Undecided,
            why,
        },
        None => judged(statement, &of.blocks, &to.blocks),
    };
    let is_ideal = panel.place(&statement.to).is_some_and(|place| {
        let to = &panel.configurations[place];
        matches!(&to.source, Source::Live(live) if live.ideal_of.is_some())
    });
    let judgement = match (is_ideal, panel.is_live()) {
        (true, _) => no_faster_than_ideal(judgement),
        (false, true) => no_time_outs(judgement),
        (false, false) => judgement,
    };
    let ratio = judgement.ratio;
    Some(JudgedClaim {
        statement: statement.says.clone(),
        source: statement.source.clone(),
        paper: statement.paper.clone(),
        ours: ratio.map(|ratio| ratio.value),
        lo: ratio.map(|ratio| ratio.lo),
        hi: ratio.map(|ratio| ratio.hi),
        unit: "×",
        verdict: match judgement.judged {
            Agreement::Agrees => Verdict::Agrees,
            Agreement::Differs => Verdict::Disagrees,
            Agreement::Undecided => Verdict::Undecided,
        },
        explanation: (statement.explained(ratio.map(|ratio| ratio.value))).map(str::to_owned),
        why: Some(judgement.why),
    })
}

/// What is faster than its ideal says only that t, or when the requests came, is not known well enough.
fn no_faster_than_ideal(judgement: Judgement) -> Judgement {
    match judgement.ratio {
        Some(ratio) if ratio.hi < 1.0 => Judgement {
            judged: Agreement::Undecided,
            why: "the server seems faster than the ideal one: t or the arrivals were disturbed"
                .to_owned(),
            ..judgement
        },
        _ => judgement,
    }
}

/// Measured latencies are the same to a thousandth, with certainty, only where both are the time-out, which stands for requests
/// without an answer.
fn no_time_outs(judgement: Judgement) -> Judgement {
    const ALIKE: f64 = 1e-3;
    let is_one = |ratio: f64| (ratio - 1.0).abs() < ALIKE;
    match judgement.ratio {
        Some(ratio) if is_one(ratio.lo) && is_one(ratio.hi) => Judgement {
            judged: Agreement::Undecided,
            why: "in both, more requests than that had no answer within the time-out".to_owned(),
            ..judgement
        },
        _ => judgement,
    }
}

fn judged(statement: &Statement, of: &RoundBlocks, to: &RoundBlocks) -> Judgement {
    let (at, second) = (statement.at, statement.second_at());
    let lacking = format!(
        "too few requests for an interval of {at} ÷ {second}: {} rounds have a block of both",
        of.count().min(to.count())
    );
    let ratios = judge::ratios((of, at), (to, second));
    judge::judge(statement.agrees, &ratios, &lacking)
}

/// Quantiles along a parameter.
struct Sweep {
    curves: Vec<Curve>,
    /// Utilisation and p99.
    points: Vec<(f64, f64)>,
}

fn along(panel: &Panel, curves: &[ReproducedCurve]) -> Option<Sweep> {
    /// The quantiles that are drawn.
    const DRAWN: [f64; 3] = [0.5, 0.99, 0.999];
    panel.along?;
    let points = |q: f64| -> Vec<(f64, f64)> {
        let pairs = panel.configurations.iter().zip(curves);
        pairs
            .filter_map(|(configuration, curve)| {
                let utilization = configuration.source.utilization()?;
                Some((utilization, curve.sojourn.quantile(q)?.get() as f64))
            })
            .collect()
    };
    Some(Sweep {
        curves: DRAWN
            .map(|q| Curve::new(quantile_name(q), points(q)).marked())
            .to_vec(),
        points: points(0.99),
    })
}

/// Where a rising curve bends most: the point farthest below the line between its ends (Satopää et al. 2011, *Finding a “Kneedle”
/// in a Haystack*), in a sentence with what it costs to go there and beyond.
fn knee(points: &[(f64, f64)]) -> Option<String> {
    let ((x0, y0), (x1, y1)) = (*points.first()?, *points.last()?);
    let below = |&(x, y): &(f64, f64)| (x - x0) / (x1 - x0) - (y - y0) / (y1 - y0);
    let &(x, y) = points.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
    (below(&(x, y)) > 0.0).then(|| {
        format!(
            "p99 bends most at {:.0} %: up to there it grows {:.1} times, from there to {:.0} % another {:.1} times.",
            100.0 * x,
            y / y0,
            100.0 * x1,
            y1 / y
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared;
    use taillab_model::Nanos;

    #[test]
    fn the_knee_is_where_the_curve_bends() {
        let points = [
            (0.1, 1.0),
            (0.5, 2.0),
            (0.8, 5.0),
            (0.9, 11.0),
            (0.95, 23.0),
        ];
        let text = knee(&points).unwrap();
        let wanted = "p99 bends most at 80 %: up to there it grows 5.0 times";
        assert!(text.starts_with(wanted), "{text}");
        assert_eq!(knee(&points[..1]), None);
        assert_eq!(knee(&[]), None);
        // a straight line has none
        assert_eq!(knee(&[(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]), None);
    }

    #[test]
    fn a_curve_begins_where_it_can_be_seen() {
        let points = [(1.0, 1.0), (10.0, 0.999), (100.0, 0.98), (200.0, 0.5)];
        assert_eq!(without_start(&points), points[2..]);
        // many requests take the same time
        let points = [(50.0, 1.0), (60.0, 0.3)];
        assert_eq!(without_start(&points), points);
        assert!(without_start(&[]).is_empty());
    }

    /// Blocks of a server whose latencies are this many times as long.
    fn of(factor: u64, lacks: Option<&str>) -> PanelData {
        let mut blocks = RoundBlocks::default();
        let rounds = if lacks.is_some() { 0 } else { 8 };
        for round in 0..rounds {
            let latencies = (1..=12_000).map(|n| Nanos::new(factor * (10_000 + n + round)));
            blocks.push_measured(latencies.collect());
        }
        let mut all: Vec<Nanos> = blocks.all().collect();
        all.sort_unstable();
        PanelData {
            sojourn: Distribution::from_sorted(&all),
            points: Vec::new(),
            lacks: lacks.map(str::to_owned),
            blocks,
        }
    }

    #[test]
    fn statements_about_measured_blocks_agree_differ_or_say_what_is_missing() {
        let files = declared::all().unwrap();
        let figure = files
            .iter()
            .filter_map(|file| file.figure.as_ref())
            .find(|figure| figure.name == "headline")
            .unwrap();
        let panel = &figure.panels[0];
        assert_eq!(panel.configurations.len(), 3);
        let verdicts = |of: [PanelData; 3]| -> Vec<Verdict> {
            let shown = shown(figure, panel, &of, None);
            shown.claims.iter().map(|claim| claim.verdict).collect()
        };
        use Verdict::{Agrees, Disagrees, Undecided};
        // the default, all cures, the ideal
        let found = verdicts([of(200, None), of(1, None), of(1, None)]);
        assert_eq!(found, [Agrees, Disagrees, Agrees, Undecided, Agrees]);
        let found = verdicts([of(3, None), of(1, None), of(1, None)]);
        assert_eq!(found, [Disagrees, Agrees, Agrees, Undecided, Disagrees]);
        let impossible = [of(200, None), of(1, Some("no such setting")), of(1, None)];
        let shown = shown(figure, panel, &impossible, Some("A note.".into()));
        let claims = &shown.claims;
        assert_eq!(claims[0].verdict, Undecided);
        let why = claims[0].why.as_ref().unwrap();
        assert_eq!(why, "“all cures” is not possible here: no such setting");
        assert_eq!(claims[4].verdict, Agrees);
        assert!(shown.note.unwrap().ends_with("A note."));
        // requests without an answer count with the time-out, in the default as with all cures
        let unanswered = || {
            let mut shown = of(1, None);
            shown.blocks = RoundBlocks::default();
            (0..8).for_each(|_| {
                shown
                    .blocks
                    .push_measured(vec![Nanos::from_secs(1); 12_000])
            });
            shown
        };
        let found = verdicts([unanswered(), unanswered(), of(1, None)]);
        assert_eq!(found[..2], [Undecided, Undecided]);
        // no server is faster than the ideal one
        let found = verdicts([of(200, None), of(1, None), of(3, None)]);
        assert_eq!(found[2], Undecided);
    }
}
