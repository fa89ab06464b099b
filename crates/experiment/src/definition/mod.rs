//! The experiment: every setting of a run, from defaults, a TOML file and flags.
//!
//! Three layers of one TOML table, the later over the earlier: built-in defaults, the
//! experiment file, the command line (whose flags may come from the environment).
//! What comes out is complete and is written as `experiment.toml` with the result,
//! from which the same experiment can be run again.

mod check;
mod defaults;
mod kind;
mod layers;
mod options;
mod preset;
mod server;
mod setting;
mod settings;
#[cfg(test)]
mod tests;
mod text;

use std::num::NonZeroU32;
use std::path::Path;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_host::{CpuSet, Placement, RequestedCpus, Roots, User};
use taillab_load::serve::Architecture;
use taillab_load::{EchoWorkload, Habits, Resource, StoreWorkload};
use taillab_model::summary::ClientKind;

use self::defaults::Choice;
use self::layers::{has, name, one_line, remove, set, whence};

pub use self::defaults::OURSELVES;
pub use self::kind::{Protocol, ServerKind};
pub use self::layers::{Override, overlay};
pub use self::options::SettingArgs;
pub use self::preset::{PRESETS, Preset};
pub use self::setting::Setting;
pub use self::settings::{Client, Experiment, TestbedKind};
pub use taillab_model::Transport;

impl Client {
    /// Connections that are open, those in reserve included.
    pub fn all_connections(&self) -> u32 {
        u32::from(self.connections) + u32::from(self.reserve)
    }

    /// How they use their connections; `reserve` is the thread's own share of it.
    pub fn habits(&self, reserve: usize) -> Habits {
        Habits {
            kind: self.kind,
            pipeline: NonZeroU32::new(self.pipeline.into()),
            reserve,
            connect: self.connect,
        }
    }

    /// Threads of the generator, each of which needs a connection.
    fn threads(&self) -> usize {
        self.cpus.parse::<CpuSet>().map_or(1, |cpus| cpus.len())
    }
}

/// Chooses CPUs where they are not named: for one side some beside those of the other, for both some that
/// share no core.
fn place(asked: &mut toml::Table) -> Result<(), Failure> {
    let cpus = |side| name::<CpuSet>(asked, side, "cpus");
    let (server, client) = (cpus("server"), cpus("client"));
    let roots = Roots::default();
    let placement = match (has(asked, "server", "cpus"), has(asked, "client", "cpus")) {
        (true, true) => return Ok(()),
        // the mask may leave too few, which would not matter to CPUs that are named
        (false, false) => Some(Placement::choose(&roots, RequestedCpus::default()).map_err(host)?),
        _ if server.is_none() && client.is_none() => None,
        _ => {
            let requested = RequestedCpus {
                server: server.as_ref(),
                client: client.as_ref(),
            };
            Some(Placement::choose_for_load(&roots, requested).map_err(host)?)
        }
    };
    // what is no list of CPUs is refused when it is used
    if let Some(placement) = placement {
        set(asked, "server.cpus", placement.server.to_string().into());
        set(asked, "client.cpus", placement.client.to_string().into());
    }
    Ok(())
}

impl Experiment {
    /// Defaults, then the file, then the flags; checked. The server is the one named, or the
    /// file's.
    ///
    /// # Errors
    /// A usage failure that names the wrong key and its allowed values.
    pub fn resolve(
        kind: Option<ServerKind>,
        file: Option<&Path>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        Self::resolve_on(None, kind, file, flags)
    }

    /// The same with a preset below the file.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_on(
        preset: Option<Preset>,
        kind: Option<ServerKind>,
        file: Option<&Path>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        let preset = preset.map(Preset::table).transpose()?;
        Self::resolve_above(preset.unwrap_or_default(), kind, file, flags)
    }

    /// The same above these settings.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_above(
        mut asked: toml::Table,
        kind: Option<ServerKind>,
        file: Option<&Path>,
        flags: Vec<Override>,
    ) -> Result<Self, Failure> {
        if let Some(path) = file {
            overlay(&mut asked, layers::read(path)?);
        }
        // a utilisation on the command line replaces a rate in the file
        let asks = |wanted| flags.iter().any(|(key, _)| *key == wanted);
        if asks("workload.utilization") && !asks("workload.rate_per_s") {
            remove(&mut asked, "workload", "rate_per_s");
        }
        for (key, value) in flags {
            set(&mut asked, key, value);
        }
        place(&mut asked)?;
        let choice = choose(kind, &asked)?;
        let mut table = toml::Table::try_from(Self::usual(choice)).or_exit(Exit::Failed)?;
        let usual_connections = !has(&asked, "client", "connections");
        overlay(&mut table, asked);
        let mut experiment: Self = serde_path_to_error::deserialize(table).map_err(
            |error: serde_path_to_error::Error<toml::de::Error>| {
                let key = error.path().to_string();
                let place = whence(file, &key);
                Failure::usage(format!("{place}{key}: {}", one_line(error.inner())))
            },
        )?;
        // this follows from other settings, whatever says them
        if usual_connections {
            let least = u16::try_from(experiment.client.threads()).unwrap_or(u16::MAX);
            experiment.client.connections = experiment.client.connections.max(least);
        }
        experiment.check()?;
        Ok(experiment)
    }

    /// A warning if the experiment file, which somebody else may have written, has its server run as root.
    pub fn root_by_file(&self, file: Option<&Path>) -> Option<String> {
        let server = &self.server;
        let is_root = User::find(&Roots::default(), &server.user).is_ok_and(|user| user.uid == 0);
        let by_file = layers::read(file?).ok()?;
        let by_file = name::<String>(&by_file, "server", "user");
        (is_root && by_file.as_ref() == Some(&server.user)).then(|| {
            format!(
                "{}server.user is {}, so {} runs with all the rights of root: see that you trust the file, or add \
                 --server-user nobody",
                whence(file, "server.user"),
                server.user,
                server.program.display()
            )
        })
    }

    /// The experiment as TOML, complete.
    ///
    /// # Errors
    /// Never in practice: every field has a TOML form.
    pub fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string_pretty(self).or_exit(Exit::Failed)
    }

    /// How many requests the server can work on at once, regardless of its CPUs.
    pub fn workers(&self) -> u32 {
        self.server
            .workers
            .unwrap_or_else(|| self.client.all_connections())
            .max(1)
    }

    /// The requests, in the terms of the generator.
    pub fn requests(&self) -> taillab_load::Workload {
        let w = &self.workload;
        let usual = taillab_load::Workload::default();
        let length = |bytes: Option<u32>, usual| bytes.map_or(usual, |bytes| bytes as usize);
        taillab_load::Workload {
            store: StoreWorkload {
                keys: w.keys.unwrap_or(usual.store.keys),
                get_share: w.get_share.unwrap_or(usual.store.get_share),
                key_bytes: length(w.key_bytes.map(u32::from), usual.store.key_bytes),
                value_bytes: length(w.value_bytes, usual.store.value_bytes),
                ..usual.store
            },
            resource: Resource {
                path: w.path.clone().unwrap_or(usual.resource.path),
                request_bytes: w.request_bytes.map(|bytes| bytes as usize),
                ..usual.resource
            },
            echo: EchoWorkload {
                request_bytes: length(w.request_bytes, usual.echo.request_bytes),
                response_bytes: length(w.response_bytes, usual.echo.response_bytes),
            },
        }
    }
}

/// Who the clients are. Only a pool has a reserve, so who gives one means a pool.
fn clients(asked: &toml::Table) -> ClientKind {
    let reserve = name::<u16>(asked, "client", "reserve");
    let with_reserve = match reserve {
        Some(1..) => ClientKind::Pooled,
        _ => ClientKind::Independent,
    };
    name(asked, "client", "kind").unwrap_or(with_reserve)
}

/// The server, and its transport and protocol as far as the layers name valid ones.
fn choose(kind: Option<ServerKind>, asked: &toml::Table) -> Result<Choice, Failure> {
    let in_file = name::<ServerKind>(asked, "server", "kind");
    let kind = match (kind, in_file) {
        (Some(kind), Some(in_file)) if kind != in_file => {
            return Err(Failure::usage(format!(
                "server.kind: the experiment file measures {}, and the command line names {}: leave out the latter, or choose another \
                 file (-f)",
                in_file.name(),
                kind.name()
            )));
        }
        (Some(kind), _) | (None, Some(kind)) => kind,
        (None, None) => {
            return Err(Failure::usage(
                "which server? Name null-rpc, memcached or nginx, give your own with \
                 --server 'COMMAND', or an experiment file with -f",
            ));
        }
    };
    let architecture = name::<String>(asked, "server", "architecture")
        .and_then(|name| name.parse::<Architecture>().ok());
    if kind == ServerKind::Custom && !has(asked, "server", "protocol") {
        return Err(Failure::usage(format!(
            "server.protocol is missing: say with --protocol what your server speaks: {}",
            taillab_load::Protocol::names().join(", ")
        )));
    }
    let usual = Choice::of(kind, architecture);
    Ok(Choice {
        transport: name(asked, "server", "transport").unwrap_or(usual.transport),
        protocol: name(asked, "server", "protocol").unwrap_or(usual.protocol),
        clients: clients(asked),
        ..usual
    })
}
