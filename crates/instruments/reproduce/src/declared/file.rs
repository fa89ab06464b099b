//! A file of `figures`: rows of the list, and perhaps a figure with its configurations and statements.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use taillab_experiment::definition::{Preset, overlay};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::discipline::Discipline;
use taillab_queueing::service::Service;
use taillab_simulator::paper::SERVICE_TIME;

use super::hardware::Hardware;
use super::region::Region;
use crate::judge::StatedQuantity;

/// The papers, in the order of the list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PaperName {
    /// Tales of the Tail.
    Tales,
    /// Deconstructing the Tail at Scale Effect.
    Deconstructing,
    /// Where Has My Time Gone?
    TimeGone,
    /// Slides about Tales of the Tail, and a thread by one of its authors.
    Slides,
}

impl PaperName {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Tales,
        Self::Deconstructing,
        Self::TimeGone,
        Self::Slides,
    ];

    /// What a person reads in a narrow column.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Tales => "Tales of the Tail",
            Self::Deconstructing => "Deconstructing the Tail",
            Self::TimeGone => "Where Has My Time Gone?",
            Self::Slides => "slides and thread",
        }
    }
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureFile {
    /// The paper that it is about.
    pub paper: PaperName,
    /// Its rows in the list.
    #[serde(rename = "row")]
    pub rows: Vec<DeclaredRow>,
    /// What is simulated or measured for it, and what the paper says about that.
    #[serde(default)]
    pub figure: Option<DeclaredFigure>,
}

/// A row of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredRow {
    /// The figure, table or claim: `fig5`.
    pub figure: String,
    /// What it shows.
    pub what: String,
    /// The command that shows it here.
    pub command: String,
    /// About how long that takes, in seconds, on two CPUs.
    pub seconds: u32,
    /// It is a model, which is simulated.
    #[serde(default)]
    pub simulated: bool,
    /// CPUs that it needs to be as in the paper.
    #[serde(default)]
    pub cpus: usize,
    /// Programs that must be installed.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Hardware that it needs to be as in the paper.
    #[serde(default)]
    pub hardware: Option<Hardware>,
    /// The instrument whose command it is, where it is another one than `reproduce`.
    #[serde(default)]
    pub instrument: Option<String>,
    /// What the command measures where that is missing.
    #[serde(default)]
    pub substitute: Option<String>,
}

/// A figure that is simulated or measured by its file alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredFigure {
    /// Its name on the command line: `fig7-ideal`.
    pub name: String,
    /// Its title and, after a colon, what all of it has in common.
    pub title: String,
    /// How it differs from the paper's.
    #[serde(default)]
    pub note: Option<String>,
    /// Pairs of axes, each with its curves.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    /// What the paper says about them.
    #[serde(rename = "statement")]
    pub statements: Vec<Statement>,
}

/// A pair of axes with its curves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Its name, if there are several.
    #[serde(default)]
    pub name: String,
    /// Its title, if there are several.
    #[serde(default)]
    pub title: Option<String>,
    /// What the horizontal axis is, where it is not the latency.
    #[serde(default)]
    pub along: Option<PanelAxis>,
    /// Where servers are measured: the experiment of `taillab run preset:NAME`, by its name.
    #[serde(default, rename = "preset", deserialize_with = "settings_of_preset")]
    pub preset_settings: Option<toml::Table>,
    /// Where servers are measured: the settings that all configurations share, above those of the preset, as in a file for
    /// `taillab run`.
    #[serde(default)]
    pub experiment: Option<toml::Table>,
    /// CPUs without which the panel is left out.
    #[serde(default)]
    pub cpus: usize,
    /// The fewest requests of a block.
    #[serde(default = "usual_requests")]
    pub requests: u32,
    /// Whether the peak of each configuration is measured, too.
    #[serde(default)]
    pub peaks: bool,
    /// It is left out of a quick run.
    #[serde(default)]
    pub full_only: bool,
    /// The curves.
    #[serde(rename = "configuration")]
    pub configurations: Vec<Configuration>,
}

/// What changes from one configuration of a panel to the next, where quantiles are drawn over that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PanelAxis {
    /// The utilisation.
    Utilization,
}

/// A curve.
#[derive(Clone, Debug, Deserialize)]
pub struct Configuration {
    /// Its name in the legend and in statements.
    pub name: String,
    /// Where its latencies come from.
    #[serde(flatten)]
    pub source: Source,
}

/// Where the latencies of a configuration come from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A simulated queue.
    Queue(SimulatedQueue),
    /// Simulated requests that wait for several servers.
    FanOut(FanOut),
    /// Simulated clients that wait for their answers.
    Closed(ClosedClients),
    /// A server of the panel's experiment that is measured.
    Live(Live),
}

impl Source {
    /// The utilisation, where it is a queue's.
    pub const fn utilization(&self) -> Option<f64> {
        match self {
            Self::Queue(queue) => Some(queue.utilization),
            _ => None,
        }
    }
}

/// A queue with random arrivals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedQueue {
    /// How requests arrive.
    #[serde(default = "poisson", deserialize_with = "parsed")]
    pub arrivals: ArrivalProcess,
    /// Their service times.
    #[serde(default = "usual_service", deserialize_with = "parsed")]
    pub service: Service,
    /// The workers.
    #[serde(default = "one")]
    pub workers: NonZeroU32,
    /// The utilisation.
    pub utilization: f64,
    /// The discipline.
    #[serde(default = "fifo", deserialize_with = "parsed")]
    pub discipline: Discipline,
}

/// Requests with a part for each of several servers, which all get it at the same time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanOut {
    /// The servers.
    pub parts: NonZeroU32,
    /// The utilisation of each.
    pub utilization: f64,
    /// The service times of parts.
    #[serde(default = "usual_service", deserialize_with = "parsed")]
    pub service: Service,
}

/// Clients that wait for their answer, think, and send again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedClients {
    /// How many there are.
    pub clients: NonZeroU32,
    /// The utilisation of the worker, from which follows how long they think.
    pub utilization: f64,
    /// The service times.
    #[serde(default = "usual_service", deserialize_with = "parsed")]
    pub service: Service,
}

/// How a configuration of a measured server differs from the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Mitigations that are applied for the length of each block.
    #[serde(default)]
    pub mitigations: Vec<String>,
    /// And those of these that are possible on the machine.
    #[serde(default)]
    pub where_possible: Vec<String>,
    /// Settings above those of the panel.
    #[serde(default)]
    pub experiment: Option<toml::Table>,
    /// It is not measured, but the ideal of this configuration's arrivals.
    #[serde(default)]
    pub ideal_of: Option<String>,
}

/// A statement of the paper: a ratio of quantiles, and where it agrees.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The panel that it is about; all of them if it names none.
    #[serde(default)]
    pub panel: Option<String>,
    /// The statement, in our words.
    pub says: String,
    /// Where it is.
    #[serde(rename = "where")]
    pub source: String,
    /// The paper's value.
    pub paper: String,
    /// The configuration whose quantile or peak is divided.
    pub of: String,
    /// The configuration by whose quantile it is divided.
    pub to: String,
    /// The quantile of both, or their peaks.
    #[serde(deserialize_with = "parsed")]
    pub at: StatedQuantity,
    /// The quantile of the second, where it is another one.
    #[serde(default, deserialize_with = "some_at")]
    pub to_at: Option<StatedQuantity>,
    /// The ratios that agree.
    pub agrees: Region,
    /// Why ours may differ, shown where it does.
    #[serde(default)]
    pub explanation: Option<Explanation>,
}

/// Why a ratio may not be one of those that agree.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Explanation {
    /// On whichever side it is.
    Either(String),
    /// Where it is above them, and where it is below.
    BySide {
        /// Above.
        #[serde(default)]
        above: Option<String>,
        /// Below.
        #[serde(default)]
        below: Option<String>,
    },
}

impl Statement {
    /// Why this ratio may not agree, if the statement says so.
    pub fn explained(&self, ratio: Option<f64>) -> Option<&str> {
        let (above, below) = match self.explanation.as_ref()? {
            Explanation::Either(text) => return Some(text),
            Explanation::BySide { above, below } => (above, below),
        };
        let ratio = ratio?;
        let side = match (ratio > self.agrees.hi, ratio < self.agrees.lo) {
            (true, _) => above,
            (_, true) => below,
            _ => return None,
        };
        side.as_deref()
    }
}

const fn usual_requests() -> u32 {
    2_000
}

const fn poisson() -> ArrivalProcess {
    ArrivalProcess::Poisson
}

const fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

const fn fifo() -> Discipline {
    Discipline::Fifo
}

fn usual_service() -> Service {
    Service::deterministic(SERVICE_TIME)
}

fn settings_of_preset<'de, D: Deserializer<'de>>(from: D) -> Result<Option<toml::Table>, D::Error> {
    use serde::de::Error;
    let name = String::deserialize(from)?;
    let preset =
        Preset::named(&name).ok_or_else(|| Error::custom(format!("there is no preset {name}")))?;
    preset.table().map(Some).map_err(Error::custom)
}

/// What is written as text.
fn parsed<'de, D: Deserializer<'de>, T: std::str::FromStr<Err: std::fmt::Display>>(
    from: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn some_at<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StatedQuantity>, D::Error> {
    parsed(from).map(Some)
}

impl Panel {
    /// The place of the configuration with this name.
    pub fn place(&self, name: &str) -> Option<usize> {
        let mut configurations = self.configurations.iter();
        configurations.position(|configuration| configuration.name == name)
    }

    /// Whether its servers are measured, and not simulated.
    pub const fn is_live(&self) -> bool {
        self.preset_settings.is_some() || self.experiment.is_some()
    }

    /// The settings of a configuration, as in a file for `taillab run`.
    pub fn settings(&self, live: &Live) -> toml::Table {
        let mut settings = self.preset_settings.clone().unwrap_or_default();
        overlay(&mut settings, self.experiment.clone().unwrap_or_default());
        overlay(&mut settings, live.experiment.clone().unwrap_or_default());
        settings
    }

    /// Checks that its configurations belong together.
    fn ensure_sound(&self) -> Result<(), String> {
        for configuration in &self.configurations {
            let live = match &configuration.source {
                Source::Live(live) => Some(live),
                _ => None,
            };
            let name = &configuration.name;
            if live.is_some() != self.is_live() {
                return Err(format!(
                    "`{name}` is measured if its panel has an experiment or a preset, and else not"
                ));
            }
            let of = live.and_then(|live| live.ideal_of.as_ref());
            if let Some(of) = of.filter(|of| self.place(of).is_none()) {
                return Err(format!("`{name}`: there is no configuration `{of}`"));
            }
        }
        Ok(())
    }
}

impl Statement {
    /// Whether it is about this panel.
    pub fn is_about(&self, panel: &Panel) -> bool {
        self.panel.as_ref().is_none_or(|name| *name == panel.name)
    }

    /// What is compared of the second configuration.
    pub fn second_at(&self) -> StatedQuantity {
        self.to_at.unwrap_or(self.at)
    }
}

impl FigureFile {
    /// Reads a file, and checks that its statements are about configurations that are there.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn read(text: &str) -> Result<Self, String> {
        let declared: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let Some(figure) = &declared.figure else {
            return Ok(declared);
        };
        for panel in &figure.panels {
            panel.ensure_sound()?;
        }
        for statement in &figure.statements {
            let mut about = figure
                .panels
                .iter()
                .filter(|panel| statement.is_about(panel))
                .peekable();
            if about.peek().is_none() {
                return Err(format!("`{}` is about no panel", statement.says));
            }
            for panel in about {
                let lacks = |name: &&String| panel.place(name).is_none();
                if let Some(name) = [&statement.of, &statement.to].into_iter().find(lacks) {
                    return Err(format!(
                        "`{}`: there is no configuration `{name}`",
                        statement.says
                    ));
                }
            }
        }
        Ok(declared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        paper = "slides"
        [[row]]
        figure = "x"
        what = "w"
        command = "taillab reproduce tales x"
        simulated = true
        seconds = 1
        [figure]
        name = "x"
        title = "t"
        [[figure.panel]]
        [[figure.panel.configuration]]
        name = "one"
        queue = { utilization = 0.5, discipline = "ps" }
        [[figure.panel.configuration]]
        name = "two"
        closed = { clients = 3, utilization = 0.5, service = "exponential:1ms" }
        [[figure.statement]]
        says = "s"
        where = "section 1"
        paper = "1"
        of = "one"
        to = "two"
        at = "p99.9"
        agrees = "above 1"
    "#;

    #[test]
    fn a_file_is_read_with_its_defaults() {
        let figure = FigureFile::read(GOOD).unwrap().figure.unwrap();
        let configurations = &figure.panels[0].configurations;
        let Source::Queue(queue) = &configurations[0].source else {
            panic!("{configurations:?}");
        };
        assert_eq!(queue.discipline, Discipline::ProcessorSharing);
        assert_eq!((queue.workers.get(), &queue.service), (1, &usual_service()));
        assert!(matches!(configurations[1].source, Source::Closed(_)));
        let statement = &figure.statements[0];
        let p999 = StatedQuantity::Quantile(0.999);
        assert_eq!((statement.at, statement.second_at()), (p999, p999));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |from: &str, to: &str| FigureFile::read(&GOOD.replace(from, to)).unwrap_err();
        assert!(wrong("of = \"one\"", "of = \"three\"").contains("three"));
        assert!(wrong("p99.9", "p98").contains("p98"));
        assert!(wrong("\"ps\"", "\"sp\"").contains("sp"));
        assert!(wrong("above 1", "more").contains("more"));
        assert!(wrong("says = ", "panel = \"p\"\nsays = ").contains("about no panel"));
        assert!(wrong("what = ", "wat = ").contains("wat"));
        assert!(wrong("queue = ", "cue = ").contains("configuration"));
        let preset = "[[figure.panel]]\n        preset = \"lunch\"";
        assert!(wrong("[[figure.panel]]", preset).contains("no preset lunch"));
    }

    #[test]
    fn an_explanation_may_be_for_one_side_only() {
        let explained = |explanation: &str, ratio| {
            let by = format!("agrees = \"0.5 to 1\"\n        explanation = {explanation}");
            let text = GOOD.replace("agrees = \"above 1\"", &by);
            let figure = FigureFile::read(&text).unwrap().figure.unwrap();
            figure.statements[0].explained(ratio).map(str::to_owned)
        };
        let sides = "{ above = \"slow\", below = \"fast\" }";
        let of_sides = [Some(2.0), Some(0.1), Some(0.7), None].map(|ratio| explained(sides, ratio));
        let [slow, fast] = ["slow", "fast"].map(|text| Some(text.to_owned()));
        assert_eq!(of_sides, [slow, fast, None, None]);
        assert_eq!(explained("{ above = \"slow\" }", Some(0.1)), None);
        assert_eq!(explained("\"noise\"", Some(0.1)).as_deref(), Some("noise"));
        let misspelt = GOOD.replace(
            "agrees = ",
            "explanation = { abov = \"x\" }\n        agrees = ",
        );
        assert!(FigureFile::read(&misspelt).is_err());
    }

    #[test]
    fn a_panel_lays_its_settings_over_those_of_its_preset() {
        let text = GOOD
            .replace("[[figure.panel]]", "[[figure.panel]]\n        preset = \"background\"\n        experiment.workload.utilization = 0.8")
            .replace("queue = { utilization = 0.5, discipline = \"ps\" }", "live = { experiment = { background = { processes = 5 } } }")
            .replace("closed = { clients = 3, utilization = 0.5, service = \"exponential:1ms\" }", "live = {}");
        let figure = FigureFile::read(&text).unwrap().figure.unwrap();
        let panel = &figure.panels[0];
        assert!(panel.is_live());
        let settings = |place: usize| match &panel.configurations[place].source {
            Source::Live(live) => panel.settings(live),
            other => panic!("{other:?}"),
        };
        assert_eq!(settings(0)["workload"]["utilization"].as_float(), Some(0.8));
        assert_eq!(settings(0)["server"]["kind"].as_str(), Some("memcached"));
        let processes = |place: usize| settings(place)["background"]["processes"].as_integer();
        assert_eq!((processes(0), processes(1)), (Some(5), Some(2)));
    }
}
