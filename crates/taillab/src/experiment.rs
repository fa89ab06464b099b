//! The experiment: every setting of a run, from defaults, a TOML file and flags.
//!
//! Three layers of one TOML table, the later over the earlier: built-in defaults, the
//! experiment file, the command line (whose flags may come from the environment).
//! What comes out is complete and is written as `experiment.toml` beside the result,
//! from which the same experiment can be run again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use taillab_model::Nanos;

use crate::exit::{Exit, Failure, OrExit};

/// Every setting of `taillab run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What is measured.
    pub server: Server,
    /// The generator.
    pub client: Client,
    /// What is asked of the server, and how fast.
    pub workload: Workload,
    /// Where both run.
    pub testbed: Testbed,
    /// How t and the probe's cost are found.
    pub calibration: Calibration,
    /// The kernel probe.
    pub probe: Probe,
}

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// `memcached`.
    pub kind: ServerKind,
    /// The program to start, a name on PATH or a path.
    pub program: PathBuf,
    /// Further arguments, after ours.
    pub args: Vec<String>,
    /// The user that it runs as.
    pub user: String,
    /// CPUs that it is pinned to, e.g. `0` or `0-2`.
    pub cpus: String,
    /// Worker threads.
    pub threads: u32,
    /// UDP port.
    pub port: u16,
    /// Receive buffer of its socket, so that a stall of some milliseconds drops no request;
    /// 0 leaves the server's own.
    pub receive_buffer_bytes: u32,
}

/// Servers that `taillab run` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// memcached over UDP.
    Memcached,
}

impl ServerKind {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
        }
    }
}

/// The generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// The CPU that its one spinning thread is pinned to.
    pub cpu: u32,
    /// UDP sockets, each with a port of its own.
    pub connections: u16,
    /// How long a response is waited for.
    #[serde(with = "length")]
    pub timeout: Nanos,
}

/// What is asked of the server, and how fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Length of the measurement.
    #[serde(with = "length")]
    pub duration: Nanos,
    /// Load before it, not measured.
    #[serde(with = "length")]
    pub warmup: Nanos,
    /// Load as a share of the calibrated capacity, in (0, 1). Used without a rate.
    pub utilization: f64,
    /// Load as requests per second; goes before `utilization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Seed of the schedule and of the mix.
    pub seed: u64,
    /// Share of gets; the others are sets.
    pub get_share: f64,
    /// Distinct keys, all stored before the run.
    pub keys: u32,
    /// Length of a key.
    pub key_bytes: u16,
    /// Length of a value.
    pub value_bytes: u32,
}

/// Where server and generator run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Testbed {
    /// How they are connected.
    pub kind: TestbedKind,
}

/// How server and generator are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TestbedKind {
    /// Two network namespaces and a veth pair, receive work steered to each side's CPU.
    Veth,
    /// The loopback device; receive work runs on the sender's CPU.
    Loopback,
}

/// How t and the probe's cost are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Interleaved pairs of closed-loop blocks, without and with the probe.
    pub pairs: u32,
    /// Length of a block.
    #[serde(with = "length")]
    pub block: Nanos,
    /// Requests kept outstanding in a block.
    pub outstanding: u16,
    /// A service time given instead of the measured one.
    #[serde(
        default,
        with = "optional_length",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_time: Option<Nanos>,
}

/// The kernel probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Ring buffer of each CPU, in bytes; a power of two.
    pub ring_bytes: u32,
}

/// A flag of the command line that was given: its key in the experiment and its value.
pub type Override = (&'static str, toml::Value);

impl Experiment {
    /// The defaults: the paper's memcached workload at 75 % for 20 s.
    pub fn defaults(kind: ServerKind) -> Self {
        Self {
            server: Server {
                kind,
                program: PathBuf::from(kind.name()),
                args: Vec::new(),
                user: "nobody".to_owned(),
                cpus: "0".to_owned(),
                threads: 1,
                port: 11_211,
                receive_buffer_bytes: 8 << 20,
            },
            client: Client {
                cpu: 1,
                connections: 16,
                timeout: Nanos::from_secs(1),
            },
            workload: Workload {
                duration: Nanos::from_secs(20),
                warmup: Nanos::from_secs(3),
                utilization: 0.75,
                rate_per_s: None,
                seed: 1,
                get_share: 0.9,
                keys: 10_000,
                key_bytes: 64,
                value_bytes: 1024,
            },
            testbed: Testbed {
                kind: TestbedKind::Veth,
            },
            calibration: Calibration {
                pairs: 9,
                block: Nanos::from_millis(400),
                outstanding: 32,
                service_time: None,
            },
            probe: Probe {
                ring_bytes: 4 << 20,
            },
        }
    }

    /// Defaults, then the file, then the flags; checked.
    ///
    /// # Errors
    /// A usage failure that names the key at fault and what it takes.
    pub fn resolve(
        kind: ServerKind,
        file: Option<&Path>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        let mut table = toml::Table::try_from(Self::defaults(kind)).or_exit(Exit::Failed)?;
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                usage(format!(
                    "cannot read the experiment file {}: {error}",
                    path.display()
                ))
            })?;
            let layer: toml::Table = text
                .parse()
                .map_err(|error| usage(at_line(path, &text, &error)))?;
            overlay(&mut table, layer);
        }
        // A load asked for as a utilisation replaces a rate that the file asked for.
        let asks = |wanted| flags.iter().any(|(key, _)| *key == wanted);
        if asks("workload.utilization") && !asks("workload.rate_per_s") {
            remove(&mut table, "workload", "rate_per_s");
        }
        for (key, value) in flags {
            set(&mut table, key, value);
        }
        let experiment: Self = serde_path_to_error::deserialize(table).map_err(
            |error: serde_path_to_error::Error<toml::de::Error>| {
                let place = file.map_or_else(String::new, |path| format!("{}: ", path.display()));
                let key = error.path().to_string();
                usage(format!("{place}{key}: {}", one_line(error.inner())))
            },
        )?;
        experiment.check()?;
        Ok(experiment)
    }

    /// The experiment as TOML, complete.
    ///
    /// # Errors
    /// Never in practice: every field has a TOML form.
    pub fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string_pretty(self).or_exit(Exit::Failed)
    }

    fn check(&self) -> Result<(), Failure> {
        let w = &self.workload;
        let cases = [
            (
                w.rate_per_s.is_some() || (w.utilization > 0.0 && w.utilization < 1.0),
                format!(
                    "workload.utilization must lie between 0 and 1, not {}: at 1 and above the \
                     queue grows without bound (use --rate to overload the server on purpose)",
                    w.utilization
                ),
            ),
            (
                w.rate_per_s.is_none_or(|r| r > 0.0 && r.is_finite()),
                "workload.rate_per_s must be a positive number of requests per second".to_owned(),
            ),
            (
                w.duration > Nanos::ZERO,
                "workload.duration must be longer than nothing, e.g. 20s".to_owned(),
            ),
            (
                (0.0..=1.0).contains(&w.get_share),
                format!("workload.get_share must lie in 0 to 1, not {}", w.get_share),
            ),
            (w.keys > 0, "workload.keys must be at least 1".to_owned()),
            (
                (16..=250).contains(&w.key_bytes),
                format!(
                    "workload.key_bytes must lie in 16 to 250 (memcached's limit), not {}",
                    w.key_bytes
                ),
            ),
            (
                self.server.threads > 0,
                "server.threads must be at least 1".to_owned(),
            ),
            (
                self.server.port > 0,
                "server.port must not be 0: the probe has to know it".to_owned(),
            ),
            (
                self.server.receive_buffer_bytes <= 1 << 30,
                "server.receive_buffer_bytes must be at most 1 GiB".to_owned(),
            ),
            (
                (1..=1024).contains(&self.client.connections),
                "client.connections must lie in 1 to 1024".to_owned(),
            ),
            (
                self.client.timeout > Nanos::ZERO,
                "client.timeout must be longer than nothing, e.g. 1s".to_owned(),
            ),
            (
                (6..=1000).contains(&self.calibration.pairs),
                "calibration.pairs must lie in 6 to 1000: fewer give no interval".to_owned(),
            ),
            (
                self.calibration.block >= Nanos::from_millis(20),
                "calibration.block must be at least 20ms".to_owned(),
            ),
            (
                self.calibration.outstanding > 0,
                "calibration.outstanding must be at least 1".to_owned(),
            ),
            (
                self.calibration.service_time != Some(Nanos::ZERO),
                "calibration.service_time must be longer than nothing".to_owned(),
            ),
            (
                self.probe.ring_bytes.is_power_of_two() && self.probe.ring_bytes >= 1 << 16,
                "probe.ring_bytes must be a power of two of at least 65536".to_owned(),
            ),
        ];
        match cases.into_iter().find(|(ok, _)| !ok) {
            Some((_, message)) => Err(usage(message)),
            None => Ok(()),
        }
    }
}

fn usage(message: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, message)
}

/// A TOML error in one line, without the excerpt.
fn one_line(error: &toml::de::Error) -> String {
    error.message().trim_end().replace('\n', ", ")
}

/// A TOML syntax error with its file and line.
fn at_line(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    format!(
        "{}, line {line}: not valid TOML: {}",
        path.display(),
        one_line(error)
    )
}

/// Puts `layer` over `table`, table by table.
fn overlay(table: &mut toml::Table, layer: toml::Table) {
    for (key, value) in layer {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Removes `section.key` from `table`.
fn remove(table: &mut toml::Table, section: &str, key: &str) {
    if let Some(toml::Value::Table(section)) = table.get_mut(section) {
        section.remove(key);
    }
}

/// Sets `section.key` in `table`.
fn set(table: &mut toml::Table, path: &str, value: toml::Value) {
    let (section, key) = path.split_once('.').expect("a flag's key has a section");
    let mut layer = toml::Table::new();
    layer.insert(key.to_owned(), value);
    let mut outer = toml::Table::new();
    outer.insert(section.to_owned(), toml::Value::Table(layer));
    overlay(table, outer);
}

mod length {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use taillab_model::Nanos;

    pub(super) fn serialize<S: Serializer>(length: &Nanos, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&length.to_exact_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Nanos, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

mod optional_length {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use taillab_model::Nanos;

    pub(super) fn serialize<S: Serializer>(
        length: &Option<Nanos>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match length {
            Some(length) => s.serialize_str(&length.to_exact_string()),
            None => s.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
        Option::<String>::deserialize(d)?
            .map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn resolve(text: &str, flags: Vec<Override>) -> Result<Experiment, Failure> {
        let file = file(text);
        Experiment::resolve(ServerKind::Memcached, Some(file.path()), flags)
    }

    #[test]
    fn flags_go_over_the_file_and_the_file_over_the_defaults() {
        let experiment = resolve(
            "[workload]\nduration = \"5s\"\nseed = 7\n",
            vec![("workload.seed", toml::Value::Integer(9))],
        )
        .unwrap();
        assert_eq!(experiment.workload.duration, Nanos::from_secs(5));
        assert_eq!(experiment.workload.seed, 9);
        assert_eq!(experiment.client.connections, 16);
    }

    #[test]
    fn a_utilisation_on_the_command_line_replaces_a_rate_in_the_file() {
        let experiment = resolve(
            "[workload]\nrate_per_s = 5000.0\n",
            vec![("workload.utilization", toml::Value::Float(0.5))],
        )
        .unwrap();
        assert_eq!(experiment.workload.rate_per_s, None);
    }

    #[test]
    fn what_is_written_runs_the_same_experiment_again() {
        let mut experiment = Experiment::defaults(ServerKind::Memcached);
        experiment.workload.rate_per_s = Some(1234.5);
        experiment.calibration.service_time = Some(Nanos::new(14_523));
        let again = resolve(&experiment.to_toml().unwrap(), vec![]).unwrap();
        assert_eq!(again, experiment);
    }

    #[test]
    fn a_wrong_setting_is_a_usage_error_that_names_it() {
        for (text, named) in [
            ("[workload]\nutilization = 1.0\n", "workload.utilization"),
            ("[workload]\nutilisation = 0.5\n", "utilisation"),
            ("[workload]\nduration = \"20\"\n", "20"),
            ("[workload]\nrate_per_s = -1\n", "rate_per_s"),
            ("[workload]\nrate_per_s = nan\n", "rate_per_s"),
            ("[server]\nport = 0\n", "server.port"),
            ("[server]\nport = 70000\n", "port"),
            ("[probe]\nring_bytes = 1000000\n", "ring_bytes"),
            ("[client\n", "TOML"),
        ] {
            let failure = resolve(text, vec![]).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{text}");
            assert!(failure.message.contains(named), "{text}: {failure}");
        }
    }
}
