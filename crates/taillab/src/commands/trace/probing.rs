//! The probe for a server that is there already.

use std::path::PathBuf;

use taillab_host::target::{Server, Transport};
use taillab_host::{CpuSet, Roots, cpus};
use taillab_probe::{Devices, Probe, ProbeSpec, ServerProcesses, UNCONNECTED_T5};

use super::framing::Identification;
use crate::cli::TraceArgs;
use crate::exit::{Exit, Failure};
use crate::fail::probe as probe_failure;

/// Room for events of one CPU: half a second of 100,000 requests per second.
const RING_BYTES: usize = 8 << 20;
/// All rings together take no more: they are resident memory.
const ALL_RINGS_BYTES: usize = 128 << 20;
/// The least that is of any use.
const LEAST_RING_BYTES: usize = 256 << 10;
/// As many processes as the probe takes by their numbers.
const MOST_PROCESSES: usize = 64;

/// Loads it; nothing is attached yet.
pub fn load(args: &TraceArgs, server: &Server, watched: &CpuSet) -> Result<Probe, Failure> {
    let known = Identification::of(server, args.server.protocol);
    let spec = ProbeSpec {
        devices: Devices::all_in(server.namespace),
        transport: match server.endpoint.transport {
            Transport::Tcp => taillab_probe::Transport::Tcp,
            Transport::Udp => taillab_probe::Transport::Udp,
        },
        server_port: server.endpoint.port,
        server: processes(server)?,
        server_cpus: numbers(watched),
        disturbances: args.recording.disturbances,
        payload_bytes: known.payload_bytes,
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

/// CPUs as the probe and recordings number them.
pub fn numbers(cpus: &CpuSet) -> Vec<u16> {
    let number = |cpu| u16::try_from(cpu).unwrap_or(u16::MAX);
    cpus.iter().map(number).collect()
}

fn processes(server: &Server) -> Result<ServerProcesses, Failure> {
    if let Some(cgroup) = &server.cgroup {
        return Ok(ServerProcesses::Cgroup(PathBuf::from(&cgroup.folder)));
    }
    if server.processes.len() > MOST_PROCESSES {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "{} has {} processes, and at most {MOST_PROCESSES} can be watched by their \
                 numbers: name its control group with --cgroup (`systemd-cgls` lists them)",
                server.name,
                server.processes.len()
            ),
        ));
    }
    Ok(ServerProcesses::These(server.processes.clone()))
}

/// Less for each on a machine with many CPUs: every possible one has a ring.
fn ring_bytes_per_cpu() -> usize {
    let possible = cpus::listed(&Roots::default(), "possible").map_or(1, |cpus| cpus.len().max(1));
    let mut bytes = RING_BYTES;
    while bytes * possible > ALL_RINGS_BYTES && bytes > LEAST_RING_BYTES {
        bytes /= 2;
    }
    bytes
}
