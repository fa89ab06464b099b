//! `taillab reproduce`: a paper's figures, and its claims next to our numbers. (`budget` shows the figures of
//! *Where Has My Time Gone?* next to its rows.)

mod deconstructing;
mod tales;

use taillab_host::Interrupt;
use taillab_report::reproduction::{
    JudgedClaim, ReproducedFigure, Reproduction, SCHEMA_VERSION, Verdict, stated,
};
use taillab_report::{html, json, terminal};
use taillab_simulator::paper::{self, Claim, Expected};

use crate::cli::Output;
use crate::exit::{Exit, Failure, OrExit};
use crate::pipeline::{Rendered, RunDir, save_figure, style};

pub use self::deconstructing::run as deconstructing;
pub use self::tales::run as tales;

/// Makes the figures one by one until Ctrl-C or a failure, then writes and prints them. `make` also says
/// whether its figure is partial.
fn reproduce<F>(
    (name, paper): (&'static str, &'static str),
    figures: Vec<F>,
    (mut dir, common): (Option<RunDir>, Output),
    interrupt: &Interrupt,
    mut make: impl FnMut(F) -> Result<(ReproducedFigure, bool), Failure>,
) -> Result<Reproduction, Failure> {
    let mut reproduction = Reproduction {
        schema_version: SCHEMA_VERSION,
        command: "reproduce",
        paper,
        partial: false,
        figures: Vec::new(),
    };
    let mut ended = None;
    for figure in figures {
        if interrupt.is_raised() {
            reproduction.partial = true;
            break;
        }
        let (figure, partial) = match make(figure) {
            Ok(made) => made,
            // what was measured before a failure took an hour, perhaps
            Err(failure) if !reproduction.figures.is_empty() => {
                reproduction.partial = true;
                ended = Some(failure);
                break;
            }
            Err(failure) => return Err(failure),
        };
        if let Some(dir) = &mut dir {
            let written = save_figure(dir, &figure.figure, &figure.chart());
            dir.note(written);
        }
        reproduction.figures.push(figure);
        reproduction.partial |= partial;
    }
    let rendered = Rendered {
        name,
        json: json::of(&reproduction).or_exit(Exit::Failed)?,
        page: html::render_reproduction(&reproduction),
        text: terminal::render_reproduction(&reproduction, style()),
    };
    rendered.save_and_print(dir.as_mut(), common)?;
    let written = dir.map_or(Ok(()), RunDir::outcome);
    ended.map_or(written, Err)?;
    Ok(reproduction)
}

/// A claim next to our number. If that is missing, `missing` says why.
fn judged<M>(
    claim: &Claim<M>,
    ours: Option<f64>,
    unit: &'static str,
    missing: Verdict,
) -> JudgedClaim {
    let write = |value| stated(value, unit);
    JudgedClaim {
        statement: claim.statement.to_owned(),
        source: claim.source.to_owned(),
        paper: match claim.expected {
            Expected::About { value, .. } | Expected::Near(value) => write(value),
            Expected::Below(bound) => format!("below {}", write(bound)),
            Expected::Above(bound) => format!("above {}", write(bound)),
        },
        ours,
        unit,
        verdict: match ours.map(|ours| claim.judge(ours)) {
            Some(paper::ClaimVerdict::Agrees) => Verdict::Agrees,
            Some(paper::ClaimVerdict::DisagreesAsKnown) => Verdict::TheoryDisagrees,
            Some(paper::ClaimVerdict::Disagrees) => Verdict::Disagrees,
            None => missing,
        },
        explanation: claim.known_disagreement.map(str::to_owned),
    }
}
