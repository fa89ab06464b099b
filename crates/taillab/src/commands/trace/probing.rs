//! The probe for a server that is there already.

use std::path::PathBuf;

use taillab_host::CpuSet;
use taillab_host::target::{Server, Transport};
use taillab_probe::{Devices, Probe, ProbeSpec, ServerProcesses, UNCONNECTED_T5};

use super::framing::Identification;
use crate::cli::TraceArgs;
use crate::exit::{Exit, Failure};
use crate::fail::probe as probe_failure;
use crate::pipeline::ring_bytes_per_cpu;

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
