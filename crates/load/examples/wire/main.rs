//! The quality of the arrivals and the cost of the client, with a UDP echo server.
//!
//! `wire [options] [rates…]` sends Poisson arrivals of 128-byte requests to an echo on
//! another CPU, by default over loopback, and prints for each rate the test of the gaps,
//! as the generator sent them and (`--device lo`, needs root) as the server's device passed
//! them on, the index of dispersion, the lateness, and what a request costs.
//! The closed loop and ping-pong come first. Options: `--client-cpu N`,
//! `--server-cpu N`, `--seconds S`, `--hybrid` (sleeps), `--stamps` (kernel stamps),
//! `--busy` (the echo never sleeps), and for namespaces that exist `--client-netns PATH
//! --server-netns PATH --server IP`.

mod blocks;
#[path = "../wire_watch/capture.rs"]
mod capture;

use std::error::Error;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use blocks::BlockTest;
use capture::{Capture, Layer4};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use taillab_load::serve::{Architecture, Listen, Responder, Spec};
use taillab_load::stamps::RealtimeBridge;
use taillab_load::verdict::KolmogorovSmirnov;
use taillab_load::{
    AnyClient, ClosedLoop, CpuUse, Endpoint, KernelStamps, LoadRun, NoHooks, OpenLoop, PingPong,
    Progress, Protocol, Waiting, Workload, arrivals_verdict, open_loop, ping_pong, saturate,
};
use taillab_model::{Monotonic, Nanos};
use taillab_queueing::arrivals::ArrivalProcess;

const CONNECTIONS: usize = 16;
const WARM_UP: Nanos = Nanos::from_millis(200);

type Failure = Box<dyn Error + Send + Sync>;

struct Setup {
    client_cpu: usize,
    server_cpu: usize,
    client_netns: Option<String>,
    server_netns: Option<String>,
    server: IpAddr,
    length: Nanos,
    waiting: Waiting,
    stamps: KernelStamps,
    device: Option<String>,
    busy: bool,
    rates: Vec<f64>,
}

fn main() -> Result<(), Failure> {
    let setup = arguments()?;
    let (address, server) = mpsc::channel();
    let stop = AtomicBool::new(false);
    let (runs, arrivals) = std::thread::scope(|scope| {
        let echo = scope.spawn(|| serve(&setup, &address, &stop));
        let result = server
            .recv()
            .map_err(Failure::from)
            .and_then(|server| measure(&setup, server));
        stop.store(true, Relaxed);
        let arrivals = echo.join().map_err(|_| "the echo panicked")??;
        Ok::<_, Failure>((result?, arrivals))
    })?;
    for (rate, run) in &runs {
        show(*rate, run, &arrivals, setup.length)?;
    }
    Ok(())
}

fn measure(setup: &Setup, server: SocketAddr) -> Result<Vec<(f64, LoadRun)>, Failure> {
    enter(setup.client_netns.as_deref(), setup.client_cpu)?;
    let mut client = connect(server, CONNECTIONS, setup)?;
    let (stop, progress) = (AtomicBool::new(false), Progress::new());
    let mut runs = Vec::new();
    for &rate in &setup.rates {
        let schedule = ArrivalProcess::Poisson.schedule(rate, WARM_UP + setup.length, 1)?;
        let load = OpenLoop {
            measure_from: schedule.partition_point(|t| *t < WARM_UP),
            schedule,
            seed: 1,
            timeout: OpenLoop::TIMEOUT,
            waiting: setup.waiting,
            stop: &stop,
            progress: &progress,
        };
        runs.push((rate, open_loop(&mut client, load, &mut NoHooks)?));
    }
    for outstanding in [1, 32, 128] {
        let load = ClosedLoop {
            outstanding,
            length: Nanos::from_millis(800),
            warm_up: WARM_UP,
            seed: 1,
            stop: &stop,
            progress: &progress,
        };
        let before = taillab_load::clock::thread_cpu_time();
        let peak = saturate(&mut client, &load, &mut NoHooks)?;
        let used = taillab_load::clock::thread_cpu_time().saturating_sub(before);
        let waited = peak.elapsed.as_secs_f64() * peak.idle_share;
        let busy = used.as_secs_f64() * 0.8 - waited;
        println!(
            "closed loop, {outstanding:3} in flight: {:7.0} answers/s, client idle {:4.1} %, {:.2} µs per request",
            peak.rate_per_s(),
            peak.idle_share * 100.0,
            busy / peak.responses as f64 * 1e6
        );
    }
    let load = PingPong {
        warm_up: WARM_UP,
        length: Nanos::from_millis(500),
        gap: Nanos::ZERO,
        most: PingPong::MOST,
        seed: 1,
        timeout: OpenLoop::TIMEOUT,
        waiting: setup.waiting,
        stop: &stop,
        progress: &progress,
    };
    let mut one = connect(server, 1, setup)?;
    let run = ping_pong(&mut one, &load, &mut NoHooks)?;
    let round_trips = run.record.iter_measured().filter_map(|e| e.service_time());
    println!("ping-pong: {}", quantiles(round_trips));
    Ok(runs)
}

fn show(rate: f64, run: &LoadRun, arrivals: &[Monotonic], length: Nanos) -> Result<(), Failure> {
    let sends: Vec<_> = run.record.measured_sends().collect();
    println!(
        "open loop {rate:.0}/s for {length}: sent {}, {:?}",
        sends.len(),
        run.errors
    );
    arrivals_line("  sends  ", &sends, rate)?;
    let (Some(first), Some(last)) = (sends.first(), sends.last()) else {
        return Err("nothing was sent".into());
    };
    let last = *last + Nanos::from_micros(100);
    let from = arrivals.partition_point(|at| at < first);
    let until = arrivals.partition_point(|at| *at <= last);
    if !arrivals.is_empty() {
        arrivals_line("  device ", &arrivals[from..until], rate)?;
    }
    let entries = || run.record.iter_measured();
    println!("  lateness  {}", quantiles(entries().map(|e| e.lateness())));
    println!(
        "  response  {}",
        quantiles(entries().filter_map(|e| e.response_time()))
    );
    let on_wire = entries().filter_map(|e| Some(e.wire.received?.saturating_since(e.wire.sent?)));
    if entries().any(|e| e.wire.sent.is_some()) {
        println!("  kernel    {}", quantiles(on_wire));
    }
    let CpuUse {
        thread,
        elapsed,
        asleep,
        ..
    } = run.cpu;
    println!(
        "  client    {} CPU per request without waiting, interrupts while waiting {} more; thread {:.1} % of a CPU, asleep {:.1} %",
        run.cpu.cost().cpu_ns_per_request,
        run.cpu.interrupt_per_request(),
        100.0 * thread.as_secs_f64() / elapsed.as_secs_f64(),
        100.0 * asleep.as_secs_f64() / elapsed.as_secs_f64(),
    );
    Ok(())
}

fn arrivals_line(what: &str, at: &[Monotonic], rate: f64) -> Result<(), Failure> {
    let ks = KolmogorovSmirnov::of_sends(at.iter().copied(), rate)?;
    let verdict = arrivals_verdict(at.iter().copied(), rate)?;
    let idc: Vec<_> = verdict
        .idc
        .iter()
        .map(|at| at.value.map_or("–".to_owned(), |v| format!("{v:.3}")))
        .collect();
    let block = BlockTest::largest_true_block(at.iter().copied(), rate)?;
    println!(
        "{what}{ks}, true in blocks of {}, CV {:.3}, IDC {}",
        block.map_or("none".to_owned(), |test| test.gaps.to_string()),
        verdict.cv,
        idc.join(" ")
    );
    Ok(())
}

fn quantiles(times: impl Iterator<Item = Nanos>) -> String {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    if times.is_empty() {
        return "nothing".to_owned();
    }
    let at = |q: f64| times[((times.len() as f64 * q) as usize).min(times.len() - 1)];
    format!(
        "n {} p50 {} p99 {} p99.9 {} max {}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}

/// A responder on its CPU and in its namespace, and the packets that its device passes on until
/// the end.
fn serve(
    setup: &Setup,
    ready: &mpsc::Sender<SocketAddr>,
    stop: &AtomicBool,
) -> Result<Vec<Monotonic>, Failure> {
    enter(setup.server_netns.as_deref(), setup.server_cpu)?;
    let spec = Spec {
        listen: Listen::Inet((setup.server, 0).into()),
        busy: setup.busy,
        ..Spec::new(Architecture::UdpShared)
    };
    let cpu = setup.server_cpu;
    let responder = Responder::start_with(&spec, move |_| enter(None, cpu))?;
    let address = responder
        .socket_address()
        .ok_or("the responder has no address")?;
    let mut capture = match &setup.device {
        Some(device) => Some(Capture::open(device, address.port(), Layer4::Udp)?),
        None => None,
    };
    ready.send(address)?;
    let mut bridge = RealtimeBridge::default();
    let mut arrivals = Vec::with_capacity(1 << 22);
    while !stop.load(Relaxed) {
        let turn = Duration::from_millis(50);
        match &mut capture {
            Some(capture) => {
                let packets = capture.collect(turn);
                arrivals.extend(packets.iter().filter_map(|p| bridge.to_monotonic(p.at_ns)));
            }
            None => std::thread::sleep(turn),
        }
    }
    Ok(arrivals)
}

/// A client of the echo.
fn connect(server: SocketAddr, connections: usize, setup: &Setup) -> Result<AnyClient, Failure> {
    let echo = Protocol::named("echo").ok_or("no echo")?;
    let codec = echo.codec(&Workload::default(), true)?;
    let server = Endpoint::Udp(server);
    Ok(AnyClient::connect(
        &server,
        connections,
        codec,
        setup.stamps,
    )?)
}

/// Pins this thread, in a network namespace if one is named.
fn enter(netns: Option<&str>, cpu: usize) -> Result<(), Failure> {
    if let Some(path) = netns {
        let file = File::open(path).map_err(|e| format!("{path}: {e}"))?;
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&file),
            Some(LinkNameSpaceType::Network),
        )?;
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

fn arguments() -> Result<Setup, Failure> {
    let mut setup = Setup {
        client_cpu: 1,
        server_cpu: 0,
        client_netns: None,
        server_netns: None,
        server: Ipv4Addr::LOCALHOST.into(),
        length: Nanos::from_secs(4),
        waiting: Waiting::Spin,
        stamps: KernelStamps::NONE,
        device: None,
        busy: false,
        rates: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--client-cpu" => setup.client_cpu = value()?.parse()?,
            "--server-cpu" => setup.server_cpu = value()?.parse()?,
            "--client-netns" => setup.client_netns = Some(value()?),
            "--server-netns" => setup.server_netns = Some(value()?),
            "--server" => setup.server = value()?.parse()?,
            "--seconds" => setup.length = Nanos::from_secs(value()?.parse()?),
            "--device" => setup.device = Some(value()?),
            "--busy" => setup.busy = true,
            "--hybrid" => setup.waiting = Waiting::Hybrid,
            "--stamps" => setup.stamps = KernelStamps::ALL,
            rate => setup
                .rates
                .push(rate.parse().map_err(|_| format!("not a rate: {rate}"))?),
        }
    }
    if setup.rates.is_empty() {
        setup.rates = vec![5_000.0, 20_000.0];
    }
    Ok(setup)
}
