//! How much memory ten thousand connections cost the client.
//!
//! Opens connections over TCP to an echo server in a child process, sends requests over them for
//! two seconds, and prints the resident memory of the client:
//!
//! ```text
//! cargo run --release -p taillab-load --example many_connections -- 10000 20000
//! ```
//!
//! Arguments: connections, and requests per second.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use taillab_load::serve::{Architecture, Responder, Spec};
use taillab_load::{
    AnyClient, Endpoint, KernelStamps, NoHooks, OpenLoop, Outcome, Progress, Protocol, Waiting,
    Workload, open_loop,
};
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let first = args.next().unwrap_or_else(|| "10000".to_string());
    if first == "serve" {
        return serve();
    }
    let rate = args.next();
    let rate = rate.map_or(Ok(20_000.0), |rate| rate.parse::<f64>());
    let (Ok(connections @ 1..), Ok(rate)) = (first.parse::<usize>(), rate) else {
        eprintln!("usage: many_connections [CONNECTIONS [REQUESTS PER SECOND]]");
        std::process::exit(2);
    };
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    let stdout = server.stdout.take().ok_or("the server has no output")?;
    BufReader::new(stdout).read_line(&mut address)?;
    let result = load(&Endpoint::Tcp(address.trim().parse()?), connections, rate);
    // it ends when its input ends
    drop(server.stdin.take());
    server.wait()?;
    result
}

fn serve() -> Result<(), Box<dyn Error>> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )?;
    let responder = Responder::start(&Spec::new(Architecture::EpollPerWorker))?;
    println!("{}", responder.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn load(server: &Endpoint, connections: usize, rate: f64) -> Result<(), Box<dyn Error>> {
    let before = resident_kib()?;
    let began = Instant::now();
    let echo = Protocol::named("echo").ok_or("no echo")?;
    let codec = echo.codec(&Workload::default(), false)?;
    let mut client = AnyClient::connect(server, connections, codec, KernelStamps::NONE)?;
    println!(
        "{connections} connections in {:.2} s: {} KiB resident, {before} KiB before",
        began.elapsed().as_secs_f64(),
        resident_kib()?,
    );
    let load = OpenLoop {
        schedule: ArrivalProcess::Poisson.schedule(rate, Nanos::from_secs(2), 1)?,
        measure_from: 0,
        seed: 1,
        timeout: OpenLoop::TIMEOUT,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let run = open_loop(&mut client, load, &mut NoHooks)?;
    // before the statistics below need memory too
    let (with_record, peak) = (resident_kib()?, peak_kib()?);
    let done = run.record.iter().filter(|e| e.outcome == Outcome::Done);
    let used: std::collections::BTreeSet<_> =
        run.record.iter().filter_map(|e| e.connection).collect();
    let times = run.record.iter().map(|e| e.times);
    let mut response: Vec<_> = times
        .filter_map(|times| Some(times.received?.saturating_since(times.intended)))
        .collect();
    response.sort_unstable();
    if response.is_empty() {
        return Err(format!("no request was answered: {:?}", run.errors).into());
    }
    println!(
        "{} requests over {} connections, {} answered, {:?}",
        run.record.iter().len(),
        used.len(),
        done.count(),
        run.errors
    );
    println!(
        "response p50 {} p99 {}; client {} per request; {with_record} KiB resident with the record, at most {peak} KiB",
        response[response.len() / 2],
        response[response.len() * 99 / 100],
        run.cpu.cost().cpu_ns_per_request,
    );
    Ok(())
}

/// VmRSS of proc_pid_status(5).
fn resident_kib() -> Result<u64, Box<dyn Error>> {
    status("VmRSS:")
}

/// VmHWM of proc_pid_status(5).
fn peak_kib() -> Result<u64, Box<dyn Error>> {
    status("VmHWM:")
}

fn status(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.ok_or("no such line in /proc/self/status")?;
    Ok(kib.trim().trim_end_matches(" kB").parse()?)
}
