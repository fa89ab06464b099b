//! `taillab reproduce`: a paper's figures, and its claims next to our numbers. (Instruments add
//! papers that they reproduce as a whole.)

mod all;
mod deconstructing;
mod list;
mod live;
mod panel;
mod simulated;
mod tales;

use std::time::Instant;

use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::instrument::Instrument;
use taillab_console::print::style;
use taillab_console::rendered::{Rendered, save_figure};
use taillab_console::rundir::RunDir;
use taillab_host::environment::{Virtualization, kernel_release};
use taillab_host::{Interrupt, Roots, cpus};
use taillab_report::figures::counted;
use taillab_report::json;
use taillab_simulator::paper::{self, Claim, Expected};

use crate::args::Paper;
use crate::result::{JudgedClaim, ReproducedFigure, Reproduction, SCHEMA_VERSION, Verdict, stated};
use crate::{page, terminal};

/// Reproduces a paper, or lists what can be reproduced with the instruments that are built in.
pub fn run(paper: Paper, built_in: &[Instrument]) -> Result<Exit, Failure> {
    match paper {
        Paper::List(args) => list::run(args, built_in),
        Paper::Tales(args) => tales::run(args),
        Paper::Deconstructing(args) => deconstructing::run(args),
        Paper::All(args) => all::run(args),
    }
}

/// What a figure becomes.
pub enum Made {
    /// It is there; and whether it is partial.
    Figure(Box<ReproducedFigure>, bool),
    /// It is left out, and why.
    Omitted(String),
}

impl From<(ReproducedFigure, bool)> for Made {
    fn from((figure, partial): (ReproducedFigure, bool)) -> Self {
        Self::Figure(Box::new(figure), partial)
    }
}

/// The machine in one line.
fn machine(roots: &Roots) -> String {
    let kernel = kernel_release(roots).map(|release| format!("Linux {release}"));
    let cpus = cpus::online(roots).map(|cpus| counted(cpus.len() as u64, "CPU", "CPUs"));
    let hypervisor = Virtualization::read(roots).hypervisor();
    let inside = hypervisor.map(|name| format!("a guest of {name}"));
    let facts: Vec<String> = [kernel, cpus, inside].into_iter().flatten().collect();
    facts.join(", ")
}

/// What is reproduced together.
struct PaperPage {
    /// The name of its files.
    name: &'static str,
    /// The paper, as people cite it.
    paper: &'static str,
}

/// Makes the figures one by one until Ctrl-C or a failure, then writes and prints them.
fn reproduce<F>(
    about: PaperPage,
    figures: Vec<F>,
    (mut dir, common): (Option<RunDir>, Output),
    interrupt: &Interrupt,
    mut make: impl FnMut(F) -> Result<Made, Failure>,
) -> Result<Reproduction, Failure> {
    let mut reproduction = Reproduction {
        schema_version: SCHEMA_VERSION,
        command: "reproduce",
        paper: about.paper,
        machine: machine(&Roots::default()),
        partial: false,
        figures: Vec::new(),
        left_out: Vec::new(),
    };
    let mut ended = None;
    for figure in figures {
        if interrupt.is_raised() {
            reproduction.partial = true;
            break;
        }
        let began = Instant::now();
        let (mut figure, partial) = match make(figure) {
            Ok(Made::Figure(figure, partial)) => (*figure, partial),
            Ok(Made::Omitted(what)) => {
                reproduction.left_out.push(what);
                continue;
            }
            // what was measured before a failure took an hour, perhaps
            Err(failure) if !reproduction.figures.is_empty() => {
                reproduction.partial = true;
                ended = Some(failure);
                break;
            }
            Err(failure) => return Err(failure),
        };
        figure.took_s = began.elapsed().as_secs_f64();
        if let Some(dir) = &mut dir {
            let written = save_figure(dir, &figure.figure, &figure.chart());
            dir.note(written);
        }
        reproduction.figures.push(figure);
        reproduction.partial |= partial;
    }
    let rendered = Rendered {
        name: about.name,
        json: json::of(&reproduction).or_exit(Exit::Failed)?,
        page: page::render(&reproduction),
        text: terminal::render(&reproduction, style()),
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
        lo: None,
        hi: None,
        unit,
        verdict: match ours.map(|ours| claim.judge(ours)) {
            Some(paper::ClaimVerdict::Agrees) => Verdict::Agrees,
            Some(paper::ClaimVerdict::DisagreesAsKnown) => Verdict::TheoryDisagrees,
            Some(paper::ClaimVerdict::Disagrees) => Verdict::Disagrees,
            None => missing,
        },
        explanation: claim.known_disagreement.map(str::to_owned),
        why: None,
    }
}
