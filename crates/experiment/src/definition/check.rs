//! Refuses experiments that make no sense, before anything is set up.

use taillab_console::exit::Failure;
use taillab_load::serve::{Architecture, ServiceTime};
use taillab_load::{Ask, ClosedLoop, HabitNames};
use taillab_model::{MiddleStamps, Nanos, Transport};

use super::kind::ServerKind;
use super::settings::Experiment;
use crate::args::MOST_UTILIZATION;

/// The most connections of a client.
const MOST_CONNECTIONS: u16 = 10_000;
/// The most sockets of a datagram client.
const MOST_SOCKETS: u16 = 1024;
/// The most processes in the background.
const MOST_PROCESSES: u32 = 64;
/// The most worker threads or processes.
const MOST_WORKERS: u32 = 4096;
/// The smallest and the largest echo: room for what identifies a request; a datagram at most.
const ECHO_BYTES: std::ops::RangeInclusive<u32> = 4..=65_507;

/// What must hold, and the message if it does not.
type Rule = (bool, String);

/// The keys of what clients do with their connections.
const HABITS: HabitNames = HabitNames {
    pipeline: "client.pipeline",
    reserve: "client.reserve",
    each: "client.connect = \"each\"",
    pooled: "client.kind = \"pooled\" (--clients pooled)",
    streams: "TCP (--transport tcp)",
};

impl Experiment {
    /// # Errors
    /// A usage failure that names the key at fault and what it takes.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let rules = [
            self.server_rules(),
            self.protocol_rules(),
            self.workload_rules(),
            self.size_rules(),
            self.client_rules(),
            self.other_rules(),
        ];
        match rules.into_iter().flatten().find(|(holds, _)| !holds) {
            Some((_, message)) => Err(Failure::usage(message)),
            None => Ok(()),
        }
    }

    fn server_rules(&self) -> Vec<Rule> {
        let server = &self.server;
        let custom = server.kind == ServerKind::Custom;
        let built_in = server.kind == ServerKind::NullRpc;
        let per_connection = server.architecture == Some(Architecture::NullRpc);
        vec![
            (
                !server.program.as_os_str().is_empty(),
                "server.program is missing: give the server's command line with --server \
                 'COMMAND'"
                    .to_owned(),
            ),
            (
                server.port > 0,
                if custom {
                    "server.port is missing: say with --port where your server listens".to_owned()
                } else {
                    "server.port must not be 0: the probe has to know it".to_owned()
                },
            ),
            (
                server
                    .workers
                    .is_none_or(|n| (1..=MOST_WORKERS).contains(&n)),
                format!("server.workers must be between 1 and {MOST_WORKERS}"),
            ),
            (
                server.workers.is_some() != per_connection,
                if per_connection {
                    "server.workers does not apply to the architecture null-rpc, which has a \
                     thread for each connection: leave --workers out, or choose --architecture \
                     epoll-shared or epoll-per-worker"
                        .to_owned()
                } else {
                    "server.workers is missing: say how many with --workers".to_owned()
                },
            ),
            (
                server.architecture.is_some() == built_in && server.service.is_some() == built_in,
                format!(
                    "server.architecture and server.service belong to the built-in server \
                     null-rpc, not to {}",
                    server.kind.name()
                ),
            ),
            (
                server.receive_buffer_bytes.is_none() || server.transport == Transport::Udp,
                "server.receive_buffer_bytes applies to UDP only: TCP tells the client to wait \
                 and drops nothing"
                    .to_owned(),
            ),
            (
                server.receive_buffer_bytes.is_none_or(|n| n <= 1 << 30),
                "server.receive_buffer_bytes must be at most 1 GiB".to_owned(),
            ),
        ]
    }

    fn protocol_rules(&self) -> Vec<Rule> {
        let server = &self.server;
        let (transport, protocol) = (server.transport, server.protocol);
        let expected = server.kind.protocol().unwrap_or(protocol);
        let architecture = server
            .architecture
            .filter(|architecture| architecture.is_datagram() != (transport == Transport::Udp));
        vec![
            (
                protocol == expected,
                format!(
                    "server.protocol: {} speaks {}, not {}",
                    server.kind.name(),
                    expected.name,
                    protocol.name
                ),
            ),
            (
                transport == Transport::Tcp || protocol.over_udp(),
                format!(
                    "server.transport: {} goes over TCP, not UDP",
                    match server.kind {
                        ServerKind::Custom => protocol.name,
                        kind => kind.name(),
                    }
                ),
            ),
            (
                architecture.is_none(),
                architecture.map_or_else(String::new, |architecture| {
                    let (own, choose) = match architecture.is_datagram() {
                        true => ("UDP", "null-rpc, epoll-shared or epoll-per-worker"),
                        false => ("TCP", "udp-shared or udp-reuseport"),
                    };
                    format!(
                        "server.architecture: {architecture} is a {own} server; for {} choose \
                         {choose}",
                        transport.name().to_uppercase()
                    )
                }),
            ),
        ]
    }

    fn workload_rules(&self) -> Vec<Rule> {
        let w = &self.workload;
        vec![
            (
                w.rate_per_s.is_some()
                    || (w.utilization > 0.0 && w.utilization <= MOST_UTILIZATION),
                format!(
                    "workload.utilization must be above 0 and at most {MOST_UTILIZATION}, not {}; \
                     use --rate for more",
                    w.utilization
                ),
            ),
            (
                w.precision.is_none() || w.precision().is_some(),
                "workload.precision must name a percentile and a relative half width, e.g. \
                 \"p99.9=20%\""
                    .to_owned(),
            ),
            (
                w.max_duration.is_none() || w.precision.is_some(),
                "workload.max_duration is the limit of workload.precision: give both, or only \
                 workload.duration"
                    .to_owned(),
            ),
            (
                w.max_duration.is_none_or(|most| most >= w.duration),
                "workload.max_duration must be at least workload.duration".to_owned(),
            ),
            (
                w.rate_per_s.is_none_or(|r| r > 0.0 && r.is_finite()),
                "workload.rate_per_s must be a positive number of requests per second".to_owned(),
            ),
            (
                w.duration > Nanos::ZERO,
                "workload.duration must be above 0, e.g. 20s".to_owned(),
            ),
        ]
    }

    /// The fields that the protocol uses must be within their bounds; others must not be set.
    fn size_rules(&self) -> Vec<Rule> {
        let w = &self.workload;
        let protocol = self.server.protocol;
        let kind = self.server.kind;
        let (has_keys, echo) = (protocol.asks(Ask::Keys), protocol.asks(Ask::ResponseBytes));
        let has_request = protocol.asks(Ask::RequestBytes);
        let has_response = echo || kind == ServerKind::Nginx;
        let given = [
            ("get_share", w.get_share.is_some(), has_keys),
            ("keys", w.keys.is_some(), has_keys),
            ("key_bytes", w.key_bytes.is_some(), has_keys),
            ("value_bytes", w.value_bytes.is_some(), has_keys),
            ("path", w.path.is_some(), protocol.asks(Ask::Path)),
            ("request_bytes", w.request_bytes.is_some(), has_request),
            ("response_bytes", w.response_bytes.is_some(), has_response),
        ];
        let foreign = given.into_iter().map(|(key, given, applies)| {
            let who = match kind {
                ServerKind::Custom => format!("a server that speaks {}", protocol.name),
                kind => kind.name().to_owned(),
            };
            (
                applies || !given,
                format!("workload.{key} does not apply to {who}: leave it out"),
            )
        });
        let get_share = w.get_share.unwrap_or(0.5);
        let path = w.path.as_deref().unwrap_or("/");
        let echoes = |bytes: Option<u32>| !echo || bytes.is_none_or(|n| ECHO_BYTES.contains(&n));
        let of_echo = |key: &str| {
            let (least, most) = ECHO_BYTES.into_inner();
            format!("workload.{key} of an echo must be between {least} and {most}")
        };
        foreign
            .chain([
                (
                    (0.0..=1.0).contains(&get_share),
                    format!("workload.get_share must be between 0 and 1, not {get_share}"),
                ),
                (
                    w.keys != Some(0),
                    "workload.keys must be at least 1".to_owned(),
                ),
                (
                    w.key_bytes.is_none_or(|n| (16..=250).contains(&n)),
                    format!(
                        "workload.key_bytes must be between 16 and 250 (memcached's limit), not {}",
                        w.key_bytes.unwrap_or_default()
                    ),
                ),
                (
                    path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()),
                    "workload.path must begin with / and contain no space (write %20 for one)"
                        .to_owned(),
                ),
                (echoes(w.request_bytes), of_echo("request_bytes")),
                (echoes(w.response_bytes), of_echo("response_bytes")),
            ])
            .collect()
    }

    fn client_rules(&self) -> Vec<Rule> {
        let habits = self.client.habits(self.client.reserve.into());
        let habits = habits.check(self.server.transport == Transport::Udp, &HABITS);
        let most = match self.server.transport {
            Transport::Tcp => MOST_CONNECTIONS,
            Transport::Udp => MOST_SOCKETS,
        };
        vec![
            (
                (1..=most).contains(&self.client.connections),
                format!(
                    "client.connections must be between 1 and {most} over {}{}",
                    self.server.transport.name().to_uppercase(),
                    match self.server.transport {
                        Transport::Tcp => "",
                        Transport::Udp =>
                            ": a socket has no limit of requests; for more of them, use TCP \
                                           (--transport tcp)",
                    }
                ),
            ),
            (
                self.client.all_connections() <= u32::from(MOST_CONNECTIONS),
                format!(
                    "client.connections and client.reserve are at most {MOST_CONNECTIONS} together"
                ),
            ),
            (habits.is_ok(), habits.err().unwrap_or_default()),
            (
                self.client.timeout > Nanos::ZERO,
                "client.timeout must be above 0, e.g. 1s".to_owned(),
            ),
        ]
    }

    fn other_rules(&self) -> Vec<Rule> {
        let waits = matches!(self.server.service, Some(ServiceTime::Wait(_)));
        let background = self.background;
        let most_outstanding = match self.calibration.outstanding {
            Some(asked) => usize::from(asked),
            None => ClosedLoop::MAX_OUTSTANDING,
        };
        vec![
            (
                background.is_none_or(|load| (1..=MOST_PROCESSES).contains(&load.processes)),
                format!("background.processes must be between 1 and {MOST_PROCESSES}"),
            ),
            (
                background.is_none_or(|load| Nanos::ZERO < load.busy && load.busy < load.every),
                "background.busy must be above 0 and below background.every: a process cannot use \
                 more than the whole CPU"
                    .to_owned(),
            ),
            (
                (6..=1000).contains(&self.calibration.pairs),
                "calibration.pairs must be between 6 and 1000: fewer give no interval".to_owned(),
            ),
            (
                self.calibration.block >= Nanos::from_millis(20),
                "calibration.block must be at least 20ms".to_owned(),
            ),
            (
                self.calibration.outstanding != Some(0),
                "calibration.outstanding must be at least 1".to_owned(),
            ),
            (
                self.calibration.service_time != Some(Nanos::ZERO),
                "calibration.service_time must be above 0".to_owned(),
            ),
            (
                !waits || most_outstanding >= self.workers() as usize,
                format!(
                    "calibration.outstanding must be at least the number of workers, {}, or some \
                     of them wait for requests (--outstanding)",
                    self.workers()
                ),
            ),
            (
                self.probe.stamps != MiddleStamps::Ends || self.probe.disturbances.is_empty(),
                "probe.disturbances must be none where probe.stamps is ends: what follows no \
                 request cannot say what disturbed it; use stamps = \"sampled:1/16\""
                    .to_owned(),
            ),
            (
                self.probe.ring_bytes.is_power_of_two() && self.probe.ring_bytes >= 1 << 16,
                "probe.ring_bytes must be a power of two of at least 65536".to_owned(),
            ),
        ]
    }
}
