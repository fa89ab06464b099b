//! `taillab serve`: the built-in servers.

mod args;
mod fault_log;
mod output;

use rustix::process::{Resource, getrlimit, setrlimit};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_host::target::{Target, Transport};
use taillab_host::{Interrupt, Roots, cpus};
use taillab_load::fault::{Fault, Faults};
use taillab_load::protocol::MessageSizes;
use taillab_load::serve::{Architecture, Responder, ServeError, ServiceTime, Spec};

use self::fault_log::FaultLog;
use crate::time_stamps::empirical;

pub use self::args::ServeArgs;
pub use self::output::OutputLine;

/// Serves until SIGINT or SIGTERM.
pub fn run(args: ServeArgs) -> Result<Exit, Failure> {
    if args.architecture == Architecture::NullRpc && args.workers.is_some() {
        return Err(Failure::usage(
            "null-rpc has one worker for each connection: leave --workers out, or choose epoll-shared",
        ));
    }
    if let Some(cpus) = &args.cpus {
        cpus::ensure_usable(cpus).map_err(host)?;
        // threads started later inherit it
        cpus::pin_current_thread(cpus).map_err(host)?;
    }
    // `run` starts us as /proc/self/exe: give reports a readable name. It does not matter if this fails
    let _ = rustix::thread::set_name(c"taillab serve");
    allow_many_files();
    let spec = Spec {
        architecture: args.architecture,
        listen: args.listen,
        workers: args.workers.map_or(1, |n| n.get() as usize),
        service: service(&args.service)?,
        seed: args.seed,
        sizes: MessageSizes {
            request_bytes: args.request_bytes,
            response_bytes: args.response_bytes,
        },
        busy: args.busy,
        skew: args.fault.iter().find_map(Fault::skew),
        in_pieces: args.fault.iter().find_map(Fault::nagle),
    };
    let log = args.fault_log.map(FaultLog::create).transpose()?;
    // a second signal kills us, in case a worker takes long for its last request
    let interrupt = Interrupt::register().or_exit(Exit::Failed)?;
    let ended = interrupt.pipe().or_exit(Exit::Failed)?;
    let faults = Faults::new(&args.fault).or_exit(Exit::Failed)?;
    let server = Responder::start_before(&spec, faults.before_request())
        .map_err(|error| refusal(&spec, error))?;
    output::listening(&spec, &server, args.common)?;
    ended.wait();
    faults.end();
    let served = server.stop();
    let logged = log.map_or(Ok(()), |log| log.write(&faults.truth()));
    // what was served is said even if the log cannot be written
    output::stopped(&spec, &served, args.common)?;
    logged.map(|()| Exit::Ok)
}

/// The service times; measured ones are read from their file.
fn service(text: &str) -> Result<ServiceTime, Failure> {
    let (how, law) = text.split_once(':').unwrap_or((text, ""));
    match (how, law.strip_prefix("empirical:")) {
        ("spin", Some(file)) => empirical::read(file).map(ServiceTime::Spin),
        ("wait", Some(file)) => empirical::read(file).map(ServiceTime::Wait),
        _ => text.parse().or_exit(Exit::Usage),
    }
}

/// Raises the limit of open files as far as this user may: every connection is one.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // if it cannot be raised, connections beyond the limit are refused and counted
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The error with its exit code; names the process that has the port.
fn refusal(spec: &Spec, error: ServeError) -> Failure {
    let exit = match &error {
        ServeError::Workers { .. }
        | ServeError::Size { .. }
        | ServeError::UnixDatagram(_)
        | ServeError::Skew(_)
        | ServeError::BusyNullRpc
        | ServeError::Service(_) => Exit::Usage,
        ServeError::Privilege { .. } => Exit::Unsupported,
        _ => Exit::Failed,
    };
    if let ServeError::InUse { address } = error {
        let transport = match spec.architecture.is_datagram() {
            true => Transport::Udp,
            false => Transport::Tcp,
        };
        let holder = Target::of_port(&Roots::default(), address.port(), Some(transport));
        if let Ok(holder) = holder {
            return Failure::new(
                exit,
                format!(
                    "{address} is in use by {}: stop it, or listen on another port with --listen",
                    holder.name
                ),
            );
        }
    }
    Failure::new(exit, error)
}
