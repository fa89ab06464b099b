//! The settings of an experiment, section by section.

use clap::builder::{EnumValueParser, StringValueParser, TypedValueParser};
use clap::{ValueEnum, value_parser};
use serde::{Deserialize, Serialize};
use taillab_console::args::{count, limit, rate, share, size};
use taillab_model::summary::{ClientKind, Connect};
use taillab_model::{MiddleStamps, Nanos};
use taillab_probe::Disturbances;
use taillab_simulator::simulation::Precision;

use super::defaults::{Choice, RING_BYTES};
use super::server::Server;
use super::setting::Heading::{
    Calibration as IN_CALIBRATION, Load as IN_LOAD, Server as IN_SERVER,
};
use super::setting::{
    Hyphens, RunOption, Setting, length as as_length, reader, section, text, whole,
};
use super::text::{length, optional_length, words};
use crate::args::{disturbances_help, load_share};
use crate::rings::ring_bytes_per_cpu;

/// Every setting of `taillab run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What is measured.
    pub server: Server,
    /// The generator.
    pub client: Client,
    /// The requests, and how fast they are sent.
    pub workload: Workload,
    /// What else uses the server's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// Where both run.
    pub testbed: Testbed,
    /// How t and the probe's cost are found.
    pub calibration: Calibration,
    /// The kernel probe.
    pub probe: Probe,
}

impl Experiment {
    /// What is usual for this choice.
    pub(super) fn usual(choice: Choice) -> Self {
        Self {
            server: Server::usual(choice),
            client: Client::usual(choice),
            workload: Workload::usual(choice),
            background: None,
            testbed: Testbed::usual(choice),
            calibration: Calibration::usual(choice),
            probe: Probe::usual(choice),
        }
    }

    /// The setting with this key.
    ///
    /// # Panics
    /// There is none.
    pub fn setting(key: &str) -> &'static Setting {
        let mut all = Self::settings();
        all.find(|setting| setting.key == key)
            .unwrap_or_else(|| panic!("no setting is {key}"))
    }

    /// Every setting, in the order of the file.
    pub fn settings() -> impl Iterator<Item = &'static Setting> {
        [
            Server::SETTINGS,
            Client::SETTINGS,
            Workload::SETTINGS,
            Background::SETTINGS,
            Testbed::SETTINGS,
            Calibration::SETTINGS,
            Probe::SETTINGS,
        ]
        .into_iter()
        .flatten()
    }
}

section! {
    /// The generator.
    Client in "client", usually of choice {
        /// CPUs of the generator, one thread spinning on each, e.g. 1 or 4-7 [default: the next one on another core;
        /// with -C, one for every two of the server's]
        cpus: String = "1".to_owned(), RunOption::new(IN_SERVER, "client-cpus", "CPUS", || {
            StringValueParser::new().map(text).into()
        }).usual().alias("client-cpu").after("server-cpus");
        /// Who the requests come from: independent clients, one for each connection, or the pooled connections of one
        /// client, which deals requests out evenly [default: independent]
        kind: ClientKind = choice.clients, RunOption::new(IN_LOAD, "clients", "KIND", || {
            reader(str::parse::<ClientKind>, text)
        }).usual().after("warmup");
        /// Whether TCP connections are opened once, before the load, or by each request when it is due: then connecting
        /// counts in its response time, and at most -c are open at once [default: once]
        #[serde(default)]
        connect: Connect = Connect::Once, RunOption::new(IN_LOAD, "connect", "once|each", || {
            reader(str::parse::<Connect>, text)
        });
        /// Connections of the generator [default: 1024, pooled 256, UDP 16, but at least one for each of its CPUs]
        connections: u16 = choice.connections(), RunOption::new(IN_LOAD, "connections", "N", || {
            reader(count::<u16>, whole)
        }).usual().short('c');
        /// The most requests under way on a TCP connection at once, 0 for no limit: further requests wait in the client
        /// [default: HTTP and Redis 1, else 0]
        pipeline: u16 = u16::from(!choice.may_pipeline()), RunOption::new(IN_LOAD, "pipeline", "N", || {
            reader(limit::<u16>, whole)
        });
        /// Additional TCP connections of a pool, used only while all others wait for a response, so that requests do not
        /// queue on their connections during a stall [default: 3840, null-rpc 768]
        reserve: u16 = choice.reserve(), RunOption::new(IN_LOAD, "reserve", "N", || {
            reader(count::<u16>, whole)
        });
        /// How long to wait for a response [default: 1s]
        #[serde(with = "length")]
        timeout: Nanos = Nanos::from_secs(1), RunOption::new(IN_LOAD, "timeout", "TIME", || {
            reader(str::parse::<Nanos>, as_length)
        }).after("response-bytes");
    }
}

section! {
    /// The requests, and how fast they are sent.
    Workload in "workload", usually of choice {
        /// Load in requests per second; takes precedence over `utilization`
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate_per_s: Option<f64> = None, RunOption::new(IN_LOAD, "rate", "PER_S", || {
            reader(rate, toml::Value::Float)
        }).usual().short('R').hyphens(Hyphens::Numbers).help(|| {
            "Load in requests per second: 20000 or 20k (overrides --utilization)".to_owned()
        });
        /// Load as a share of the capacity, e.g. 0.75; below 0.97 the rate follows the capacity as it changes
        /// [default: 0.75]
        utilization: f64 = 0.75, RunOption::new(IN_LOAD, "utilization", "SHARE", || {
            reader(load_share, toml::Value::Float)
        }).usual().short('u').hyphens(Hyphens::Numbers).help(|| {
            "Load as a share of the capacity, e.g. 75% or 0.75; below 97% the rate follows the capacity as it changes \
             [default: 75%]".to_owned()
        });
        /// Length of the measurement [default: 20s]
        #[serde(with = "length")]
        duration: Nanos = Nanos::from_secs(20), RunOption::new(IN_LOAD, "duration", "TIME", || {
            reader(str::parse::<Nanos>, as_length)
        }).usual().short('d');
        /// Measure until a percentile has this precision, e.g. p99.9=20% (half its interval)
        #[serde(default, skip_serializing_if = "Option::is_none")]
        precision: Option<String> = None, RunOption::new(IN_LOAD, "precision", "TARGET", || {
            StringValueParser::new().map(text).into()
        }).usual();
        /// The maximum length of the measurement with --precision [default: 3 times the duration]
        #[serde(default, with = "optional_length", skip_serializing_if = "Option::is_none")]
        max_duration: Option<Nanos> = None, RunOption::new(IN_LOAD, "max-duration", "TIME", || {
            reader(str::parse::<Nanos>, as_length)
        }).needs("precision");
        /// Length of the load before the measurement [default: 3s]
        #[serde(with = "length")]
        warmup: Nanos = Nanos::from_secs(3), RunOption::new(IN_LOAD, "warmup", "TIME", || {
            reader(str::parse::<Nanos>, as_length)
        });
        /// Seed of the schedule and of the requests [default: 1]
        seed: u64 = 1, RunOption::new(IN_LOAD, "seed", "N", || {
            value_parser!(i64).map(whole).into()
        });
        /// Share of gets; the rest are sets (key-value stores) [default: 90%]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        get_share: Option<f64> = choice.has_keys().then_some(0.9), RunOption::new(IN_LOAD, "get-share", "SHARE", || {
            reader(share, toml::Value::Float)
        }).hyphens(Hyphens::All);
        /// Distinct keys, all stored before the load (key-value stores) [default: 10000]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys: Option<u32> = choice.has_keys().then_some(10_000), RunOption::new(IN_LOAD, "keys", "N", || {
            reader(count::<u32>, whole)
        });
        /// Length of a key (key-value stores) [default: 64]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_bytes: Option<u16> = choice.has_keys().then_some(64), RunOption::new(IN_LOAD, "key-bytes", "BYTES", || {
            reader(size::<u32>, whole)
        });
        /// Length of a value (key-value stores) [default: 1024]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value_bytes: Option<u32> = choice.has_keys().then_some(1024), RunOption::new(IN_LOAD, "value-bytes", "BYTES", || {
            reader(size::<u32>, whole)
        });
        /// Path of HTTP requests [default: /, nginx /index.html]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String> = choice.path(), RunOption::new(IN_LOAD, "path", "PATH", || {
            StringValueParser::new().map(text).into()
        });
        /// Length of a request (echo; HTTP, padded with a header) [default: 128, nginx 85]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_bytes: Option<u32> = choice.request_bytes(), RunOption::new(IN_LOAD, "request-bytes", "BYTES", || {
            reader(size::<u32>, whole)
        });
        /// Length of a response (echo, nginx) [default: 128, nginx 849]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response_bytes: Option<u32> = choice.response_bytes(), RunOption::new(IN_LOAD, "response-bytes", "BYTES", || {
            reader(size::<u32>, whole)
        });
    }
}

section! {
    /// Processes of ours that use the server's CPUs in bursts, from the end of the calibration on.
    #[derive(Copy)]
    Background in "background" {
        /// The number of processes
        processes: u32;
        /// CPU time of each burst
        #[serde(with = "length")]
        busy: Nanos;
        /// The mean time from the start of one burst to the next in each process. It is exponential, from the seed of
        /// the workload
        #[serde(with = "length")]
        every: Nanos;
    }
}

section! {
    /// Where server and generator run.
    #[derive(Copy)]
    Testbed in "testbed", usually of _choice {
        /// How generator and server are connected [default: veth]
        kind: TestbedKind = TestbedKind::Veth, RunOption::new(IN_SERVER, "testbed", "KIND", || {
            EnumValueParser::<TestbedKind>::new().map(|kind| text(kind.name())).into()
        });
    }
}

/// How server and generator are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TestbedKind {
    /// Two network namespaces and a veth pair, receive work steered to each side's CPU.
    Veth,
    /// The loopback device; receive work runs on the sender's CPU.
    Loopback,
}

section! {
    /// How t and the probe's cost are found.
    Calibration in "calibration", usually of _choice {
        /// Interleaved pairs of calibration blocks, with and without the probe, all with the same server
        /// process: their interval does not include the difference between processes [default: 9]
        pairs: u32 = 9, RunOption::new(IN_CALIBRATION, "pairs", "N", || {
            reader(count::<u32>, whole)
        });
        /// Length of a calibration block [default: 400ms]
        #[serde(with = "length")]
        block: Nanos = Nanos::from_millis(400), RunOption::new(IN_CALIBRATION, "block", "TIME", || {
            reader(str::parse::<Nanos>, as_length)
        });
        /// Outstanding requests in a calibration block [default: as many as give the highest throughput]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outstanding: Option<u16> = None, RunOption::new(IN_CALIBRATION, "outstanding", "N", || {
            reader(count::<u16>, whole)
        });
        /// Use this service time instead of the measured one
        #[serde(default, with = "optional_length", skip_serializing_if = "Option::is_none")]
        service_time: Option<Nanos> = None, RunOption::new(IN_CALIBRATION, "service-time", "TIME", || {
            reader(str::parse::<Nanos>, as_length)
        });
    }
}

section! {
    /// The kernel probe.
    #[derive(Copy)]
    Probe in "probe", usually of _choice {
        /// Ring buffer of each CPU, a power of two, e.g. 8M [default: 4194304, less on many CPUs]
        ring_bytes: u32 = RING_BYTES.min(ring_bytes_per_cpu()) as u32,
            RunOption::new(IN_CALIBRATION, "ring-bytes", "BYTES", || {
                reader(size::<u32>, whole)
            });
        /// When the stamps between a request's arrival (T1) and its response's departure (T6), and disturbances, are
        /// recorded: all the time (all), in slices that make up a share of it (sampled:1/16), or never (ends). Recording
        /// less costs less [default: all]
        #[serde(default, with = "words")]
        stamps: MiddleStamps = MiddleStamps::All, RunOption::new(IN_CALIBRATION, "stamps", "WHICH", || {
            reader(str::parse::<MiddleStamps>, text)
        }).usual();
        /// The kinds of disturbance to record: `all`, `none`, or a list [default: all; with `ends`, none]
        #[serde(with = "words")]
        disturbances: Disturbances = Disturbances::ALL,
            RunOption::new(IN_CALIBRATION, "disturbances", "LIST", || {
                reader(str::parse::<Disturbances>, text)
            }).help(|| disturbances_help("all"));
    }
}

impl TestbedKind {
    /// As it is written in options and files.
    const fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Loopback => "loopback",
        }
    }
}

impl Workload {
    /// The percentile that decides how long the measurement lasts, and the precision wanted.
    pub fn precision(&self) -> Option<Precision> {
        self.precision.as_ref()?.parse().ok()
    }

    /// The longest measurement: twice the duration, to make up for stalls of the generator; three times the
    /// duration for a precision; or as given.
    pub fn longest(&self) -> Nanos {
        let times = |n| Nanos::new(self.duration.get().saturating_mul(n));
        match (&self.precision, self.max_duration) {
            (None, _) => times(2),
            (Some(_), None) => times(3),
            (Some(_), Some(most)) => most,
        }
    }
}
