//! The probe for a server that is already running.

use std::net::IpAddr;
use std::path::PathBuf;

use taillab_console::exit::Failure;
use taillab_console::fail::probe as probe_failure;
use taillab_experiment::rings::{cpu_numbers, ring_bytes_per_cpu};
use taillab_host::target::{Cgroup, Server};
use taillab_host::{CpuSet, NetNamespace, Roots};
use taillab_model::MiddleStamps;
use taillab_probe::{
    Addresses, Devices, Disturbances, Probe, ProbeSpec, ServerProcesses, UNCONNECTED_T5,
};

use super::find::FoundServer;
use crate::cli::TraceArgs;

/// The most processes that the probe watches by their numbers.
const MOST_PROCESSES: usize = 64;

/// Loads the probe; nothing is attached yet.
pub fn load(args: &TraceArgs, found: &FoundServer, watched: &CpuSet) -> Result<Probe, Failure> {
    let server = &found.server;
    let payload_bytes = found.identification.payload_bytes;
    let spec = ProbeSpec {
        devices: Devices::all_in(server.namespace),
        queues: has_queues(server.pid),
        transport: server.endpoint.transport,
        server_port: server.endpoint.port,
        addresses: addresses(server)?,
        server: processes(server)?,
        others: server.others.clone(),
        served_ports: server.served_ports.clone(),
        server_cpus: cpu_numbers(watched),
        generator_cpus: Vec::new(),
        stamps: args.recording.stamps,
        disturbances: disturbances(args, payload_bytes)?,
        payload_bytes,
        ring_bytes_per_cpu: args
            .recording
            .ring_bytes
            .map_or_else(ring_bytes_per_cpu, |bytes| bytes as usize),
    };
    let avoided: &[&str] = match server.has_connected_datagrams {
        true => &[UNCONNECTED_T5],
        false => &[],
    };
    Probe::load_avoiding(&spec, avoided).map_err(probe_failure)
}

/// Whether responses may wait before the driver takes them; true where that is not known.
fn has_queues(pid: u32) -> bool {
    let namespace = NetNamespace::of_process(&Roots::default(), pid);
    namespace.is_none_or(|namespace| namespace.has_queues())
}

/// What is recorded besides the stamps; an error if it does not go together with them.
fn disturbances(args: &TraceArgs, payload_bytes: u16) -> Result<Disturbances, Failure> {
    let (stamps, given) = (args.recording.stamps, args.recording.disturbances);
    if !stamps.are_complete() && payload_bytes > 0 {
        return Err(Failure::usage(format!(
            "--stamps {stamps} does not go with --protocol: the content of every request is \
             read; leave one of them out"
        )));
    }
    match (stamps, given) {
        (MiddleStamps::Ends, Some(given)) if !given.is_empty() => Err(Failure::usage(
            "--stamps ends follows no request, so nothing can be said about what disturbed it: leave \
             --disturbances out, or give --stamps sampled:1/16",
        )),
        (MiddleStamps::Ends, _) => Ok(Disturbances::NONE),
        (_, given) => Ok(given.unwrap_or(Disturbances::ALL)),
    }
}

/// Its own addresses, where others have its port at some.
fn addresses(server: &Server) -> Result<Addresses, Failure> {
    let (own, others) = (&server.endpoint.addresses, &server.taken_addresses);
    if others.is_empty() {
        return Ok(Addresses::All);
    }
    let is_everywhere = own.iter().any(IpAddr::is_unspecified);
    if !is_everywhere && own.len() <= Addresses::MOST {
        return Ok(Addresses::Only(own.clone()));
    }
    if others.len() <= Addresses::MOST {
        return Ok(Addresses::AllBut(others.clone()));
    }
    Err(Failure::usage(format!(
        "{} has its port at {} addresses and other servers have it at {}; at most {} can be told apart: give it a \
         port of its own",
        server.name,
        own.len(),
        others.len(),
        Addresses::MOST
    )))
}

fn processes(server: &Server) -> Result<ServerProcesses, Failure> {
    if let Some(cgroup) = &server.cgroup {
        return Ok(ServerProcesses::Cgroup(PathBuf::from(&cgroup.folder)));
    }
    if server.processes.len() > MOST_PROCESSES {
        // a service has a control group of its own
        if let Some(cgroup) = Cgroup::of_exactly(&Roots::default(), &server.processes) {
            return Ok(ServerProcesses::Cgroup(cgroup.folder));
        }
        return Err(Failure::usage(format!(
            "{} has {} processes, and at most {MOST_PROCESSES} can be watched by their \
                 numbers: name its control group with --cgroup (`systemd-cgls` lists them)",
            server.name,
            server.processes.len()
        )));
    }
    Ok(ServerProcesses::These(server.processes.clone()))
}
