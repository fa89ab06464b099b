//! The experiment: every setting of a run, from defaults, a TOML file and flags.
//!
//! Three layers of one TOML table, the later over the earlier: built-in defaults, the
//! experiment file, the command line (whose flags may come from the environment).
//! What comes out is complete and is written as `experiment.toml` beside the result,
//! from which the same experiment can be run again.

mod check;
mod defaults;
mod layers;
mod server;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use serde::{Deserialize, Serialize};
use taillab_load::serve::Architecture;
use taillab_model::Nanos;
use taillab_probe::Disturbances;

use self::defaults::Choice;
use self::layers::{name, one_line, overlay, remove, set, usage};
use self::text::{length, optional_length, words};
use crate::exit::{Exit, Failure, OrExit};

pub use self::layers::Override;
pub use self::server::{Protocol, Server, ServerKind, Transport};

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

/// The generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// CPUs, e.g. `1` or `4-7`; on each a thread that spins and has its share of the
    /// connections and of the rate.
    pub cpus: String,
    /// TCP connections, or UDP sockets; each has a port of its own.
    pub connections: u16,
    /// More TCP connections, which take a request only when no other one is idle; 0 over UDP.
    pub reserve: u16,
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
    /// Share of gets; the others are sets. Of key-value stores, as the next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub get_share: Option<f64>,
    /// Distinct keys, all stored before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u32>,
    /// Length of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_bytes: Option<u16>,
    /// Length of a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<u32>,
    /// What is asked for over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Length of a request: of an echo's, or what a header fills an HTTP request up to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u32>,
    /// Length of a response, where the server lets us choose: of an echo's, and of our nginx's
    /// with its header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
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
    /// The kinds of disturbance to record: `all`, `none`, or a list.
    #[serde(with = "words")]
    pub disturbances: Disturbances,
}

impl Client {
    /// Connections that are open, those in reserve included.
    pub fn all_connections(&self) -> u32 {
        u32::from(self.connections) + u32::from(self.reserve)
    }
}

impl Experiment {
    /// Defaults, then the file, then the flags; checked. The server is the one named, or the
    /// file's.
    ///
    /// # Errors
    /// A usage failure that names the key at fault and what it takes.
    pub fn resolve(
        kind: Option<ServerKind>,
        file: Option<&Path>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        let mut asked = match file {
            Some(path) => layers::read(path)?,
            None => toml::Table::new(),
        };
        // A load asked for as a utilisation replaces a rate that the file asked for.
        let asks = |wanted| flags.iter().any(|(key, _)| *key == wanted);
        if asks("workload.utilization") && !asks("workload.rate_per_s") {
            remove(&mut asked, "workload", "rate_per_s");
        }
        for (key, value) in flags {
            set(&mut asked, key, value);
        }
        let choice = choose(kind, &asked)?;
        let mut table = toml::Table::try_from(Self::defaults(choice)).or_exit(Exit::Failed)?;
        overlay(&mut table, asked);
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

    /// How many requests the server can have in hand at once, whatever its CPUs.
    pub fn workers(&self) -> u32 {
        self.server
            .workers
            .unwrap_or_else(|| self.client.all_connections())
            .max(1)
    }

    /// What is asked of the server, in the terms of the generator.
    pub fn requests(&self) -> taillab_load::Workload {
        let w = &self.workload;
        let mut asked = taillab_load::Workload::default();
        let length = |bytes: Option<u32>, usual| bytes.map_or(usual, |bytes| bytes as usize);
        asked.store.keys = w.keys.unwrap_or(asked.store.keys);
        asked.store.get_share = w.get_share.unwrap_or(asked.store.get_share);
        asked.store.key_bytes = length(w.key_bytes.map(u32::from), asked.store.key_bytes);
        asked.store.value_bytes = length(w.value_bytes, asked.store.value_bytes);
        asked.http.path = w.path.clone().unwrap_or(asked.http.path);
        asked.http.request_bytes = w.request_bytes.map(|bytes| bytes as usize);
        asked.echo.request_bytes = length(w.request_bytes, asked.echo.request_bytes);
        asked.echo.response_bytes = length(w.response_bytes, asked.echo.response_bytes);
        asked
    }
}

/// The server, and what it speaks unless a later layer says something that makes no sense.
fn choose(kind: Option<ServerKind>, asked: &toml::Table) -> Result<Choice, Failure> {
    let in_file = name::<ServerKind>(asked, "server", "kind");
    let kind = match (kind, in_file) {
        (Some(kind), Some(in_file)) if kind != in_file => {
            return Err(usage(format!(
                "server.kind: the experiment file is about {}, not {}: name one of them",
                in_file.name(),
                kind.name()
            )));
        }
        (Some(kind), _) | (None, Some(kind)) => kind,
        (None, None) => {
            return Err(usage(
                "which server? Name null-rpc, memcached or nginx, give your own with \
                 --server 'COMMAND', or an experiment file with -f",
            ));
        }
    };
    let architecture = name::<String>(asked, "server", "architecture")
        .and_then(|name| name.parse::<Architecture>().ok());
    let said = |key| {
        asked
            .get("server")
            .and_then(|server| server.get(key))
            .is_some()
    };
    if kind == ServerKind::Custom && !said("protocol") {
        return Err(usage(format!(
            "server.protocol is missing: say with --protocol what your server speaks: {}",
            taillab_load::Protocol::names().join(", ")
        )));
    }
    let usual = Choice::of(kind, architecture);
    Ok(Choice {
        transport: name(asked, "server", "transport").unwrap_or(usual.transport),
        protocol: name(asked, "server", "protocol").unwrap_or(usual.protocol),
        ..usual
    })
}
