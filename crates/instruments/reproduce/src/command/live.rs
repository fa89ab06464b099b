//! Figures whose servers are measured: which of them run in which order, and what their blocks show.

use std::collections::BTreeMap;

use taillab_analysis::statistics::ccdf;
use taillab_console::exit::{Exit, Failure};
use taillab_console::messages::Messages;
use taillab_experiment::definition::Experiment;
use taillab_experiment::fix::rounds::{
    Condition, KnownServer, Round, RoundsPlan, measure_rounds, mitigation, order,
};
use taillab_host::Interrupt;
use taillab_host::tune::Mitigation;
use taillab_model::{Distribution, Nanos};
use taillab_report::rate;

use super::panel::{self, PanelData};
use crate::declared::{DeclaredFigure, Panel, Source};
use crate::judge::RoundBlocks;
use crate::result::ReproducedFigure;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct LiveEffort {
    /// Rounds; each has a block of every configuration.
    pub rounds: u64,
    /// The shortest block.
    pub block: Nanos,
    /// Whether calibrations are short, too.
    pub quick: bool,
    /// The seed of arrivals and orders.
    pub seed: u64,
}

impl LiveEffort {
    /// The usual one, or a short one.
    pub const fn new(quick: bool, seed: u64) -> Self {
        Self {
            rounds: if quick { 6 } else { 12 },
            block: Nanos::from_millis(if quick { 500 } else { 1_000 }),
            quick,
            seed,
        }
    }
}

/// A server that is started, with the configurations that are measured on it.
struct PlannedServer {
    experiment: Experiment,
    conditions: Vec<Condition>,
    /// For each condition the place of its configuration in the panel.
    places: Vec<usize>,
}

/// Some rounds on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RoundsStep {
    server: usize,
    first: u64,
    rounds: u64,
}

/// What is measured for a panel, and in which order.
struct LivePlan {
    servers: Vec<PlannedServer>,
    steps: Vec<RoundsStep>,
    /// Place of a configuration → places of those that are its ideal.
    ideals: BTreeMap<usize, Vec<usize>>,
}

impl LivePlan {
    /// The plan of a panel.
    ///
    /// # Errors
    /// An experiment of the panel is impossible on this machine.
    fn of(panel: &Panel, effort: LiveEffort) -> Result<Self, Failure> {
        let mut servers: Vec<PlannedServer> = Vec::new();
        let mut ideals: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, configuration) in panel.configurations.iter().enumerate() {
            let Source::Live(live) = &configuration.source else {
                continue;
            };
            if let Some(of) = live.ideal_of.as_deref().and_then(|name| panel.place(name)) {
                ideals.entry(of).or_default().push(place);
                continue;
            }
            let settings = panel.settings(live);
            let mut experiment = Experiment::resolve_above(settings, None, None, Vec::new())?;
            if effort.quick {
                experiment.calibration.pairs = 6;
                experiment.calibration.block = Nanos::from_millis(200);
            }
            let condition = Condition {
                mitigations: named(&live.mitigations)?,
                where_possible: named(&live.where_possible)?,
            };
            match servers
                .iter_mut()
                .find(|server| server.experiment == experiment)
            {
                Some(server) => {
                    server.conditions.push(condition);
                    server.places.push(place);
                }
                None => servers.push(PlannedServer {
                    experiment,
                    conditions: vec![condition],
                    places: vec![place],
                }),
            }
        }
        Ok(Self {
            steps: steps(servers.len(), effort),
            servers,
            ideals,
        })
    }

    /// About how long it takes, in seconds.
    fn seconds(&self, effort: LiveEffort) -> f64 {
        /// To start a server and to take it down.
        const START: f64 = 3.5;
        /// Around a block: its warm-up, what is changed and put back, the analysis.
        const AROUND: f64 = 0.6;
        let calibration = if effort.quick { 6.0 } else { 13.0 };
        let blocks = |step: &RoundsStep| {
            self.servers[step.server].conditions.len() as f64 * step.rounds as f64
        };
        let blocks: f64 = self.steps.iter().map(blocks).sum();
        self.servers.len() as f64 * calibration
            + self.steps.len() as f64 * START
            + blocks * (effort.block.as_secs_f64() + AROUND)
    }
}

/// One server stays for all rounds. Several are started in turn, in random order within each round.
fn steps(servers: usize, effort: LiveEffort) -> Vec<RoundsStep> {
    if servers == 1 {
        return vec![RoundsStep {
            server: 0,
            first: 0,
            rounds: effort.rounds,
        }];
    }
    let rounds = (0..effort.rounds).flat_map(|first| {
        let order = order(servers, effort.seed, first);
        order.into_iter().map(move |server| RoundsStep {
            server,
            first,
            rounds: 1,
        })
    });
    rounds.collect()
}

fn named(names: &[String]) -> Result<Vec<&'static Mitigation>, Failure> {
    let find = |name: &String| {
        let found = mitigation(name);
        found.ok_or_else(|| Failure::failed(format!("there is no mitigation {name}")))
    };
    names.iter().map(find).collect()
}

/// What the blocks of a panel have shown so far.
struct SeenBlocks {
    blocks: Vec<RoundBlocks>,
    lacks: Vec<Option<String>>,
}

impl SeenBlocks {
    fn new(configurations: usize) -> Self {
        Self {
            blocks: vec![RoundBlocks::default(); configurations],
            lacks: vec![None; configurations],
        }
    }

    /// Adds a round of a server.
    fn add(&mut self, server: &PlannedServer, ideals: &BTreeMap<usize, Vec<usize>>, round: Round) {
        for (place, block) in server.places.iter().zip(round) {
            let ideals = ideals.get(place).into_iter().flatten();
            match block {
                Ok(block) => {
                    for ideal in ideals {
                        self.blocks[*ideal]
                            .push_bounded(block.ideal.clone(), block.ideal_bounds.clone());
                    }
                    self.blocks[*place].push_measured(block.sojourns);
                    if let Some(per_s) = block.peak_per_s {
                        self.blocks[*place].set_peak(per_s);
                    }
                }
                Err(why) => {
                    for place in ideals.chain([place]) {
                        self.blocks[*place].push_none();
                        self.lacks[*place].get_or_insert_with(|| why.clone());
                    }
                }
            }
        }
    }

    fn shown(self) -> Vec<PanelData> {
        let all = self.blocks.into_iter().zip(self.lacks);
        all.map(|(blocks, lacks)| {
            let mut latencies: Vec<Nanos> = blocks.all().collect();
            latencies.sort_unstable();
            let points = ccdf(&latencies);
            PanelData {
                sojourn: Distribution::from_sorted(&latencies),
                points: (points.iter())
                    .map(|(latency, share)| (latency.get() as f64, *share))
                    .collect(),
                lacks: lacks.filter(|_| blocks.count() == 0),
                blocks,
            }
        })
        .collect()
    }
}

/// Measures a panel; the panel, and whether it was interrupted.
pub fn reproduce(
    figure: &DeclaredFigure,
    panel: &Panel,
    effort: LiveEffort,
    (interrupt, messages): (&Interrupt, Messages),
) -> Result<(ReproducedFigure, bool), Failure> {
    let plan = LivePlan::of(panel, effort)?;
    let name = panel::name(figure, panel);
    messages.note(&format_args!(
        "{name}: {} configurations in {} rounds, about {:.0} s",
        panel.configurations.len(),
        effort.rounds,
        plan.seconds(effort)
    ));
    let mut seen = SeenBlocks::new(panel.configurations.len());
    let mut known: Vec<Option<KnownServer>> = vec![None; plan.servers.len()];
    let mut partial = false;
    for step in &plan.steps {
        let server = &plan.servers[step.server];
        let rounds = RoundsPlan {
            first: step.first,
            rounds: step.rounds,
            of: effort.rounds,
            block: effort.block,
            requests: panel.requests,
            peaks: panel.peaks,
            seed: effort.seed,
        };
        let found = measure_rounds(
            (&server.experiment, &server.conditions),
            &rounds,
            known[step.server].clone(),
            (interrupt, messages),
            &mut |round| seen.add(server, &plan.ideals, round),
        );
        match found {
            Ok(found) => known[step.server] = Some(found),
            // what was measured before stays
            Err(failure) if failure.exit == Exit::Interrupted => {
                partial = true;
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    let note = note(&plan, &known);
    Ok((panel::shown(figure, panel, &seen.shown(), note), partial))
}

/// The service times and the rates of the servers.
fn note(plan: &LivePlan, known: &[Option<KnownServer>]) -> Option<String> {
    let said = plan
        .servers
        .iter()
        .zip(known)
        .filter_map(|(server, known)| {
            let known = known.as_ref()?;
            Some(format!(
                "{}: t is {}, {} requests per second",
                server.experiment.server.title(),
                known.ideal_service_time(),
                rate(known.rate_per_s)
            ))
        });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("{}.", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared;
    use taillab_experiment::fix::rounds::ConditionBlock;

    fn figure(name: &str) -> DeclaredFigure {
        let files = declared::all().unwrap().into_iter();
        let mut figures = files.filter_map(|file| file.figure);
        figures.find(|figure| figure.name == name).unwrap()
    }

    #[test]
    fn configurations_of_one_server_share_it_and_their_ideal_needs_none() {
        let figure = figure("fig5");
        let plan = LivePlan::of(&figure.panels[0], LiveEffort::new(true, 1)).unwrap();
        assert_eq!(plan.servers.len(), 1);
        assert_eq!(plan.servers[0].places, [0, 1, 2, 3]);
        let names: Vec<Vec<&str>> = (plan.servers[0].conditions.iter())
            .map(|condition| {
                condition
                    .mitigations
                    .iter()
                    .map(|one| one.is.name)
                    .collect()
            })
            .collect();
        let wanted: [&[&str]; 4] = [&[], &["nice"], &["rt-priority"], &["dedicated-cpus"]];
        assert_eq!(names, wanted);
        assert_eq!(plan.ideals, BTreeMap::from([(2, vec![4])]));
        let all = RoundsStep {
            server: 0,
            first: 0,
            rounds: 6,
        };
        assert_eq!(plan.steps, [all]);
    }

    #[test]
    fn several_servers_run_in_turn_in_every_round() {
        let figure = figure("fig7");
        let plan = LivePlan::of(&figure.panels[0], LiveEffort::new(true, 1)).unwrap();
        assert_eq!(plan.servers.len(), 3);
        let workers: Vec<_> = (plan.servers.iter())
            .map(|server| server.experiment.workers())
            .collect();
        assert_eq!(workers, [1, 4, 4]);
        assert_eq!(plan.steps.len(), 3 * 6);
        for round in 0..6 {
            let mut servers: Vec<usize> = (plan.steps.iter())
                .filter(|step| step.first == round)
                .map(|step| step.server)
                .collect();
            servers.sort_unstable();
            assert_eq!(servers, [0, 1, 2], "{round}");
        }
    }

    #[test]
    fn every_measured_panel_has_a_plan_and_names_mitigations_that_there_are() {
        let files = declared::all().unwrap();
        let mut seconds = [0.0, 0.0];
        let mut panels = 0;
        for figure in files.iter().filter_map(|file| file.figure.as_ref()) {
            for panel in figure.panels.iter().filter(|panel| panel.is_live()) {
                panels += 1;
                if panel.cpus > 2 {
                    continue;
                }
                for (place, quick) in [false, true].into_iter().enumerate() {
                    if quick && panel.full_only {
                        continue;
                    }
                    let effort = LiveEffort::new(quick, 1);
                    let plan = LivePlan::of(panel, effort);
                    let plan = plan.unwrap_or_else(|why| panic!("{}: {why}", figure.name));
                    seconds[place] += plan.seconds(effort);
                }
            }
        }
        assert!(panels > 10, "{panels}");
        // with the round trips and what is simulated, all takes at most 90 minutes, quickly at most 15
        assert!(seconds[0] < 60.0 * 60.0, "{seconds:?}");
        assert!(seconds[1] < 11.0 * 60.0, "{seconds:?}");
    }

    #[test]
    fn a_block_counts_for_its_configuration_and_its_ideal() {
        let figure = figure("fig5");
        let plan = LivePlan::of(&figure.panels[0], LiveEffort::new(true, 1)).unwrap();
        let mut seen = SeenBlocks::new(5);
        let block = |ns: u64| ConditionBlock {
            sojourns: vec![Nanos::new(ns); 100],
            ideal: vec![Nanos::new(1); 100],
            ideal_bounds: None,
            peak_per_s: None,
        };
        for _ in 0..2 {
            let refused = Err("not here".to_owned());
            let round = vec![Ok(block(10)), Ok(block(20)), Ok(block(30)), refused];
            seen.add(&plan.servers[0], &plan.ideals, round);
        }
        let shown = seen.shown();
        let counts: Vec<usize> = shown.iter().map(|shown| shown.blocks.count()).collect();
        assert_eq!(counts, [2, 2, 2, 0, 2]);
        assert_eq!(shown[3].lacks.as_deref(), Some("not here"));
        assert!(
            [0, 1, 2, 4]
                .iter()
                .all(|place| shown[*place].lacks.is_none())
        );
        assert_eq!(shown[1].sojourn.quantile(0.5), Some(Nanos::new(20)));
        assert_eq!(shown[4].sojourn.max, Some(Nanos::new(1)));
    }
}
