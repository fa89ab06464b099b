//! The host from the driver back to the driver, and client with server: over a veth pair between
//! two network namespaces, as `taillab run` makes it.

use taillab_analysis::{MatchOptions, match_events};
use taillab_console::exit::Failure;
use taillab_console::fail::probe as probe_failure;
use taillab_console::progress::Progress;
use taillab_experiment::definition::{Experiment, Override, ServerKind};
use taillab_experiment::testbed::Rig;
use taillab_host::components::{StampingDevice, stamping_devices};
use taillab_load::{NoHooks, PingPong, Progress as Sent, Waiting};
use taillab_model::{Nanos, RecordingContext};
use toml::Value;

use super::bench::{Bench, MOST};
use super::paper;
use super::row::{Component, Row};
use crate::result::Standing;

/// The most requests that are traced: their events must fit into the ring of each CPU.
const MOST_TRACED: usize = 8_000;
/// Warm-up before the measurement.
const WARM_UP: Nanos = Nanos::from_millis(100);

/// From the driver back to the driver; the server in between does nothing.
pub fn host(bench: &Bench<'_>) -> Vec<Row> {
    bench.messages.step("the host");
    let row = Component::new(
        "host",
        Standing::Substituted,
        "veth instead of a NIC: from the driver’s hand-over of a request (T1) to the driver taking the \
         response (T6), a UDP server that does nothing, six probes for each",
        Some(paper::HOST),
    );
    // the same by the clock of a NIC
    let card = Row::unavailable(
        "host, NIC’s time stamps",
        why_no_card(&stamping_devices(bench.roots)),
        Some(paper::HOST),
    );
    let row = with_parameters(row, bench, "null-rpc over UDP");
    vec![row.measured(sojourns(bench)), card]
}

/// Why no NIC stamps a host's requests and responses here.
fn why_no_card(devices: &[StampingDevice]) -> String {
    let named = |device: &StampingDevice| match &device.driver {
        Some(driver) => format!("{} ({driver})", device.name),
        None => device.name.clone(),
    };
    let names = |wanted: bool| -> Vec<String> {
        let those = devices.iter().filter(|device| device.in_hardware == wanted);
        those.map(named).collect()
    };
    match (names(true), names(false)) {
        (with, _) if !with.is_empty() => format!(
            "{} stamps packets in hardware, but a request to it must come from another machine, and \
             nothing is sent onto a wire: `hwstamp_ctl -i DEVICE -t 1 -r 1` switches the stamps on",
            with.join(", ")
        ),
        (_, without) if !without.is_empty() => format!(
            "{} has no hardware time stamps (`ethtool -T DEVICE`)",
            without.join(", ")
        ),
        _ => "there is no NIC here".to_owned(),
    }
}

/// A client and a server, by UDP and with memcached.
pub fn client_server(bench: &Bench<'_>) -> Vec<Row> {
    bench.messages.step("client and server");
    let row = |component, server, paper, kind| {
        let row = Component::new(
            component,
            Standing::Substituted,
            "veth between two network namespaces instead of NICs and a wire; the client spins, the \
             server sleeps",
            paper,
        );
        with_parameters(row, bench, server).measured(round_trips(bench, kind))
    };
    let (udp, memcached) = (ServerKind::NullRpc, ServerKind::Memcached);
    vec![
        row(
            "client–server, UDP",
            "null-rpc over UDP",
            Some(paper::UDP),
            udp,
        ),
        row(
            "client–server, memcached",
            "memcached over UDP",
            Some(paper::MEMCACHED),
            memcached,
        ),
    ]
}

fn with_parameters(row: Component, bench: &Bench<'_>, server: &str) -> Component {
    let there = bench.there.map_or("none".to_owned(), |cpu| cpu.to_string());
    row.with("server", server)
        .with("client cpu", bench.here)
        .with("server cpu", there)
        .with("in flight", 1)
        .with("length", bench.length)
}

/// One connection over UDP, client and server on the two CPUs.
fn experiment(bench: &Bench<'_>, kind: ServerKind) -> Result<Experiment, Failure> {
    let there = bench.there.unwrap_or(bench.here);
    let flags: Vec<Override> = vec![
        ("server.transport", Value::String("udp".into())),
        ("server.cpus", Value::String(there.to_string())),
        ("client.cpus", Value::String(bench.here.to_string())),
        ("client.connections", Value::Integer(1)),
    ];
    Experiment::resolve(Some(kind), None, flags)
}

/// How long the client waits for each response.
fn round_trips(bench: &Bench<'_>, kind: ServerKind) -> Result<Vec<Nanos>, Failure> {
    let experiment = experiment(bench, kind)?;
    with_rig(bench, &experiment, |rig| {
        let mut fleet = rig.connect(&experiment)?;
        let sent = Sent::new();
        let load = ping_pong(bench, MOST, &sent);
        let run = rig.on_client_cpu(&[], || 0, || fleet.ping_pong(&load, &mut NoHooks))??;
        Ok(run
            .iter_measured()
            .filter_map(|entry| entry.service_time())
            .collect())
    })
}

/// How long each request stays in the host, from the driver back to the driver.
fn sojourns(bench: &Bench<'_>) -> Result<Vec<Nanos>, Failure> {
    let experiment = experiment(bench, ServerKind::NullRpc)?;
    with_rig(bench, &experiment, |rig| {
        let mut probe = rig.load_probe(&experiment)?;
        let mut fleet = rig.connect(&experiment)?;
        let sent = Sent::new();
        let load = ping_pong(bench, MOST_TRACED, &sent);
        probe.attach().map_err(probe_failure)?;
        rig.on_client_cpu(&[], || 0, || fleet.ping_pong(&load, &mut NoHooks))??;
        let recording = probe.finish().map_err(probe_failure)?;
        let context = RecordingContext {
            datagram_ids: true,
            timeout_ns: Some(experiment.client.timeout),
            ..RecordingContext::default()
        };
        let options = MatchOptions::of(&context).unwrap_or_default();
        let matched = match_events(recording.into_events(), &options);
        let places = 0..matched.requests.len();
        Ok(places
            .map(|place| matched.requests.sojourn(place))
            .collect())
    })
}

fn ping_pong<'a>(bench: &Bench<'a>, most: usize, sent: &'a Sent) -> PingPong<'a> {
    PingPong {
        warm_up: WARM_UP,
        length: bench.length,
        gap: Nanos::ZERO,
        most,
        seed: 1,
        timeout: Nanos::from_secs(1),
        waiting: Waiting::default(),
        stop: bench.interrupt.flag(),
        // not used: a fleet has its own
        progress: sent,
    }
}

/// Runs `work` with a server in the testbed, and takes both down.
fn with_rig<T>(
    bench: &Bench<'_>,
    experiment: &Experiment,
    work: impl FnOnce(&mut Rig) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut rig = Rig::start(experiment, Progress::new(true), bench.interrupt.clone())?;
    let found = work(&mut rig);
    rig.take_down()?;
    found
}
