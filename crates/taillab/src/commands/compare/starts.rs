//! `taillab compare --again`: both experiments started in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taillab_analysis::starts::{FEWEST_STARTS, LEVEL, judge, order};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::messages::Messages;
use taillab_experiment::definition::Experiment;
use taillab_model::Distribution;
use taillab_model::compare::{ComparedLatency, Starts};

use super::{Saved, latency_of, read};
use crate::cli::CompareArgs;

/// The experiment of a saved run, which repeats it.
const EXPERIMENT: &str = "experiment.toml";

/// Starts both as often as was asked for, and compares the starts; `None` if that was not asked for.
pub(super) fn again(
    args: &CompareArgs,
    saved: [&Saved; 2],
    latency: ComparedLatency,
) -> Result<Option<Starts>, Failure> {
    let Some(of_each) = args.again else {
        return Ok(None);
    };
    if (of_each as usize) < FEWEST_STARTS {
        return Err(Failure::usage(format!(
            "--again {of_each} proves nothing, however much they differ: at least {FEWEST_STARTS} starts of each \
             are needed"
        )));
    }
    let both = [&args.before, &args.after];
    let repeated = Repeated {
        experiments: [experiment_of(both[0])?, experiment_of(both[1])?],
        rates: rates(both, saved.map(rate_of))?,
        folder: folder_of(args)?,
        seed: args.seed,
        latency,
    };
    let messages = Messages::of(args.common);
    warn_of_root(&repeated.experiments, messages)?;
    let mut pairs = Vec::new();
    let order = order(args.seed, of_each as usize);
    for (pair, before_first) in order.into_iter().enumerate() {
        messages.note(&format!("pair {} of {of_each}", pair + 1));
        pairs.push(repeated.pair(pair, before_first)?);
    }
    Ok(Some(Starts {
        of_each,
        seed: args.seed,
        folder: repeated.folder.display().to_string(),
        level: LEVEL,
        quantiles: judge(&pairs),
    }))
}

/// What is started again.
struct Repeated {
    experiments: [PathBuf; 2],
    /// The rate of each, where it must be held.
    rates: [Option<f64>; 2],
    folder: PathBuf,
    seed: u64,
    latency: ComparedLatency,
}

impl Repeated {
    /// Starts both, and returns the latencies of the first and of the second experiment. Their loads have one seed.
    fn pair(
        &self,
        pair: usize,
        before_first: bool,
    ) -> Result<(Distribution, Distribution), Failure> {
        let first = usize::from(!before_first);
        let one = self.start(pair, first)?;
        let other = self.start(pair, 1 - first)?;
        Ok(match before_first {
            true => (one, other),
            false => (other, one),
        })
    }

    /// Runs experiment `which` in a process of its own.
    fn start(&self, pair: usize, which: usize) -> Result<Distribution, Failure> {
        let name = format!("{}-{}", ["before", "after"][which], pair + 1);
        let place = self.folder.join(&name);
        let mut command = Command::new(std::env::current_exe().or_exit(Exit::Failed)?);
        command
            .args(["run", "-q", "-f"])
            .arg(&self.experiments[which]);
        command.arg("-o").arg(&place);
        command.args(["--seed", &(self.seed + pair as u64).to_string()]);
        if let Some(rate) = self.rates[which] {
            command.args(["-R", &rate.to_string()]);
        }
        let output = command.stdin(Stdio::null()).output();
        let output = output.or_exit(Exit::Failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it said nothing");
            return Err(Failure::failed(format!(
                "start {name} failed ({}): {last}; the starts before it are in {}",
                output.status,
                self.folder.display()
            )));
        }
        let (file, saved) = read(&place)?;
        latency_of(&saved, self.latency)
            .cloned()
            .ok_or_else(|| Failure::failed(format!("{file} does not have the latency that is compared: compare two results of `taillab run` of this version")))
    }
}

/// Says which of these files have their server run as root, before that is done.
fn warn_of_root(files: &[PathBuf; 2], messages: Messages) -> Result<(), Failure> {
    let mut said = None;
    for file in files {
        let experiment = Experiment::resolve_on(None, None, Some(file), Vec::new())?;
        let warning = experiment
            .root_by_file(Some(file))
            .filter(|_| said != Some(file));
        if let Some(warning) = warning {
            messages.note(&format_args!("warning: {warning}"));
            said = Some(file);
        }
    }
    Ok(())
}

/// The experiment beside a result of `run`.
fn experiment_of(result: &Path) -> Result<PathBuf, Failure> {
    let folder = match result.is_dir() {
        true => result,
        false => result.parent().unwrap_or(Path::new(".")),
    };
    let file = folder.join(EXPERIMENT);
    match file.is_file() {
        true => Ok(file),
        false => Err(Failure::failed(format!(
            "{} has no {EXPERIMENT}: --again starts what taillab run has saved",
            folder.display()
        ))),
    }
}

/// The rate at which each is started, where its experiment does not say it. A load by utilisation follows the capacity
/// that each start finds, so the loads would differ: where both are so, both get the rate of the first result, and
/// else each that of its own.
fn rates(results: [&PathBuf; 2], measured: [Option<f64>; 2]) -> Result<[Option<f64>; 2], Failure> {
    let says = [says_rate(results[0])?, says_rate(results[1])?];
    Ok(match says {
        [false, false] => [measured[0]; 2],
        [first, second] => [
            measured[0].filter(|_| !first),
            measured[1].filter(|_| !second),
        ],
    })
}

/// The rate of the load that a result was measured with.
fn rate_of(saved: &Saved) -> Option<f64> {
    saved.load.as_ref().map(|load| load.target_rate_per_s)
}

/// Whether the experiment of a result has its load in requests per second.
fn says_rate(result: &Path) -> Result<bool, Failure> {
    let file = experiment_of(result)?;
    let experiment = Experiment::resolve_on(None, None, Some(&file), Vec::new())?;
    Ok(experiment.workload.rate_per_s.is_some())
}

/// Makes the folder for the results of the starts.
fn folder_of(args: &CompareArgs) -> Result<PathBuf, Failure> {
    let folder = args
        .output
        .clone()
        .unwrap_or_else(|| "taillab-again".into());
    fs::create_dir(&folder).map_err(|error| {
        Failure::failed(format!(
            "cannot make {}: {error}; name another one with -o",
            folder.display()
        ))
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates of two experiments with these loads, measured with 1,000 and with 900 requests per second.
    fn rates_of(loads: [&str; 2]) -> [Option<f64>; 2] {
        let place = tempfile::tempdir().unwrap();
        let results = [0, 1].map(|which| {
            let result = place.path().join(which.to_string());
            fs::create_dir(&result).unwrap();
            let text = format!(
                "[server]\nkind = \"memcached\"\n[workload]\n{}\n",
                loads[which]
            );
            fs::write(result.join(EXPERIMENT), text).unwrap();
            result
        });
        rates([&results[0], &results[1]], [Some(1_000.0), Some(900.0)]).unwrap()
    }

    /// The second one is slower, and a load by its own capacity would hide it.
    #[test]
    fn two_loads_by_utilisation_are_held_at_the_rate_of_the_first() {
        let by_share = "utilization = 0.7";
        assert_eq!(rates_of([by_share; 2]), [Some(1_000.0); 2]);
    }

    #[test]
    fn a_rate_that_an_experiment_says_is_its_own() {
        let (by_share, by_rate) = ("utilization = 0.7", "rate_per_s = 800.0");
        assert_eq!(rates_of([by_rate; 2]), [None; 2]);
        assert_eq!(rates_of([by_rate, by_share]), [None, Some(900.0)]);
        assert_eq!(rates_of([by_share, by_rate]), [Some(1_000.0), None]);
    }
}
