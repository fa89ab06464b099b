//! `taillab agent`: one client of a larger experiment. A plan says what it sends and when; what it measures, and how,
//! is `taillab load`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::Parser;
use serde::Deserialize;
use serde_json::Value;
use taillab_console::exit::Failure;
use taillab_console::help::in_one_line;
use taillab_model::Nanos;

use super::appointment::{Appointment, PlannedStart};
use super::plan;
use crate::cli::{AgentArgs, Cli, Command, LoadArgs};
use taillab_console::exit::Exit;

/// A longer plan is none.
const LONGEST: u64 = 1 << 20;

/// What one client sends, and when it begins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentPlan {
    /// Version of the program that all clients run.
    taillab: String,
    /// Number of this client, from 0.
    client: u32,
    /// Clients of the experiment.
    clients: u32,
    target: String,
    /// Its share of the load in requests per second, or `"max"`: as fast as answers come.
    rate_per_s: Value,
    #[serde(default = "poisson")]
    arrivals: String,
    seed: u64,
    warmup_ns: u64,
    duration_ns: u64,
    start: PlannedStart,
    /// Other options of `taillab load`.
    #[serde(default)]
    options: Vec<String>,
}

fn poisson() -> String {
    "poisson".to_owned()
}

/// Waits for the start that the plan names, and loads the server as it says.
pub fn run(args: AgentArgs) -> Result<Exit, Failure> {
    let name = match args.plan.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => args.plan.display().to_string(),
    };
    let in_plan = |failure: Failure| Failure {
        message: format!("{name}: {}", failure.message),
        ..failure
    };
    let plan = AgentPlan::parse(&text(&args.plan).map_err(in_plan)?).map_err(in_plan)?;
    let mut load = plan.load().map_err(in_plan)?;
    let checked = plan::plan(&load).map_err(in_plan)?;
    let appointment = Appointment::keep(plan.start, plan.client, plan.clients).map_err(in_plan)?;
    load.common = args.common;
    load.output = args.output;
    super::carry_out(load, &checked, Some(&appointment))
}

fn text(path: &Path) -> Result<String, Failure> {
    let unread = |error: std::io::Error| {
        Failure::usage(format!(
            "the plan cannot be read: {error}; name its file, or - for standard input"
        ))
    };
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().take(LONGEST).read_to_string(&mut text),
        _ => File::open(path)
            .map_err(unread)?
            .take(LONGEST)
            .read_to_string(&mut text),
    };
    read.map_err(unread)?;
    Ok(text)
}

impl AgentPlan {
    fn parse(text: &str) -> Result<Self, Failure> {
        let plan: Self = serde_json::from_str(text).map_err(|error| {
            Failure::usage(format!(
                "this is no plan: {error}; `taillab agent --help-all` shows one"
            ))
        })?;
        let ours = env!("CARGO_PKG_VERSION");
        if plan.taillab != ours {
            return Err(Failure::usage(format!(
                "the plan is for taillab {}, and this is {ours}: install the same version on all hosts",
                plan.taillab
            )));
        }
        if plan.client >= plan.clients {
            return Err(Failure::usage(format!(
                "there is no client {} of {}: they are numbered from 0; correct `client` or `clients`",
                plan.client, plan.clients
            )));
        }
        Ok(plan)
    }

    /// The command line of `taillab load` that sends this.
    fn load(&self) -> Result<LoadArgs, Failure> {
        let rate = match &self.rate_per_s {
            Value::Number(rate) => rate.to_string(),
            Value::String(word) if word == "max" => word.clone(),
            other => {
                return Err(Failure::usage(format!(
                    "rate_per_s is {other}: give a number of requests per second, or \"max\""
                )));
            }
        };
        let length = |ns: u64| Nanos::new(ns).to_exact_string();
        let mut words = vec!["taillab".to_owned(), "load".to_owned()];
        words.extend([
            format!("--rate={rate}"),
            format!("--arrivals={}", self.arrivals),
            format!("--seed={}", self.seed),
            format!("--duration={}", length(self.duration_ns)),
            format!("--warmup={}", length(self.warmup_ns)),
        ]);
        words.push(self.target.clone());
        words.extend(self.options.iter().cloned());
        let parsed = Cli::try_parse_from(words).map_err(|error| {
            Failure::usage(
                in_one_line(&error).replace("; see --help", "; see `taillab load --help-all`"),
            )
        })?;
        let Command::Load(load) = parsed.command else {
            return Err(Failure::usage("options must be those of `taillab load`"));
        };
        match foreign(&load) {
            Some(option) => Err(Failure::usage(format!(
                "{option} cannot be among the options of a plan: all clients send one load at the rate that it \
                 states; leave it out"
            ))),
            None => Ok(*load),
        }
    }
}

/// The first option that would send something else than the plan says, or somewhere else.
fn foreign(load: &LoadArgs) -> Option<&'static str> {
    let (schedule, common) = (&load.load, &load.common);
    let given = [
        (schedule.utilization.is_some(), "--utilization"),
        (schedule.find.is_some(), "--find"),
        (schedule.profile.is_some(), "--profile"),
        (schedule.recorded.trace.is_some(), "--trace"),
        (load.output.is_some(), "--output"),
        (
            common.json || common.quiet || common.verbose > 0,
            "--json, --quiet or --verbose",
        ),
        (
            !load.limits.limits.is_empty() || load.limits.junit.is_some(),
            "--assert or --junit",
        ),
    ];
    given
        .into_iter()
        .find_map(|(given, option)| given.then_some(option))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use taillab_model::summary::ClientKind;

    use super::*;
    use crate::cli::{AGENT_EXAMPLE, Amounts};

    fn changed(change: impl FnOnce(&mut Value)) -> Result<LoadArgs, Failure> {
        let mut plan: Value = serde_json::from_str(AGENT_EXAMPLE).unwrap();
        change(&mut plan);
        AgentPlan::parse(&plan.to_string()).and_then(|plan| plan.load())
    }

    #[test]
    fn the_plan_in_the_help_is_a_load() {
        let load = changed(|_| {}).unwrap();
        assert_eq!(load.load.rate, Some(Amounts::Values(vec![5_000.0])));
        assert_eq!(
            (load.load.seed, load.load.duration),
            (17, Some(Nanos::from_secs(10)))
        );
        assert_eq!(load.load.warmup, Some(Nanos::from_secs(1)));
        assert_eq!(load.client.connections.unwrap().get(), 16);
        assert_eq!(load.client.clients, ClientKind::Independent);
    }

    #[test]
    fn a_closed_loop_and_no_warm_up_can_be_planned() {
        let load = changed(|plan| {
            plan["rate_per_s"] = json!("max");
            plan["warmup_ns"] = json!(0);
            plan.as_object_mut().unwrap().remove("options");
        });
        let load = load.unwrap();
        assert_eq!(load.load.rate, Some(Amounts::Max));
        assert_eq!(load.load.warmup, Some(Nanos::ZERO));
        assert_eq!(load.client.connections, None);
    }

    #[test]
    fn a_bad_plan_is_one_line_with_a_remedy() {
        for (key, value, part) in [
            (
                "rate_per_s",
                json!("fast"),
                "requests per second, or \"max\"",
            ),
            ("rate_per_s", json!(0), "is not a rate"),
            ("rate_per_s", json!([1]), "requests per second"),
            ("taillab", json!("0.0.1"), "the same version on all hosts"),
            ("client", json!(3), "numbered from 0"),
            ("client", json!(-1), "--help-all` shows one"),
            ("target", json!("dance://x"), "dance"),
            ("arrivals", json!("posson"), "is not an arrival process"),
            ("tempo", json!(1), "unknown field `tempo`"),
            ("start", json!({"clock": "sundial", "at_ns": 1}), "sundial"),
            ("start", json!({"clock": "tai"}), "at_ns"),
            ("options", json!(["--rate=5"]), "--rate"),
            (
                "options",
                json!(["-u", "50%"]),
                "--utilization cannot be among",
            ),
            ("options", json!(["--find", "p99<=1ms"]), "--find"),
            ("options", json!(["-o", "x"]), "--output cannot be"),
            ("options", json!(["--json"]), "--json"),
            ("options", json!(["--assert", "p99<=1ms"]), "--assert"),
            ("options", json!(["http://elsewhere/"]), "elsewhere"),
            ("options", json!(["--no-such"]), "taillab load --help-all"),
        ] {
            let failure = changed(|plan| plan[key] = value.clone()).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{key}: {failure}");
            assert!(failure.message.contains(part), "{key} {value}: {failure}");
            assert!(!failure.message.contains('\n'), "{failure}");
        }
        for text in ["", "{", "[]", "null", "{\"taillab\": 1}"] {
            let failure = AgentPlan::parse(text).unwrap_err();
            assert!(
                failure
                    .message
                    .contains("`taillab agent --help-all` shows one"),
                "{failure}"
            );
        }
    }
}
