//! A flood of packets from a third namespace, steered to the server's CPU.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use taillab_load::ground_truth::GroundTruth;

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Culprit};

use super::bpf::{REMEDY, TCX_DROP};
use super::busy::BusyTimes;
use super::disturber::Disturber;
use super::{InjectionError, Schedule, Stop, system};
use taillab_host::cpus::{CpuSet, Placement};
use taillab_host::process::set_fifo;
use taillab_host::testbed::{Testbed, TestbedSpec};

const NAME: &str = "tl-flood";
/// The work on a packet: about that of a long list of filter rules.
const EACH: Nanos = Nanos::from_micros(10);
/// Packets less than this apart belong together: in between, the kernel only does its own work on them.
const TOGETHER: Nanos = Nanos::from_micros(4);
/// The port of the discard service: nothing answers.
const PORT: u16 = 9;

/// Packets to a separate device. Their receive work runs on the server's CPU (RPS), and a program at
/// the device's ingress makes it expensive; the server never sees them.
///
/// Each burst keeps the kernel of `server_cpu` busy as long as the schedule says; all its packets are
/// sent at once from `client_cpu`.
///
/// # Errors
/// [`InjectionError`] if namespaces or such programs are not available, and from [`Stop`] if the record
/// cannot be read.
pub fn packet_flood(
    server_cpu: u32,
    client_cpu: u32,
    schedule: Schedule,
) -> Result<Stop, InjectionError> {
    let testbed = Testbed::veth(&TestbedSpec {
        placement: Placement {
            server: CpuSet::single(server_cpu),
            client: CpuSet::single(client_cpu),
        },
    })?;
    let times = BusyTimes::new(REMEDY)?;
    let program = times.program(EACH, TCX_DROP);
    let ifindex = testbed.server_device().ifindex;
    let link = testbed
        .run_at_server(|| program.attach(ifindex))?
        .map_err(system("attach a program to the device", REMEDY))?;
    let to = SocketAddr::new(testbed.server_address(), PORT);
    let from = SocketAddr::new(testbed.client_address(), 0);
    let socket = testbed
        .run_at_client(|| {
            let socket = UdpSocket::bind(from)?;
            socket.connect(to)?;
            Ok(socket)
        })?
        .map_err(|error: io::Error| system("open a socket", REMEDY)(error))?;
    let packets = (schedule.lasts.get() / EACH.get()).max(1);
    let disturber = Disturber::start(
        NAME,
        client_cpu,
        move || {
            // without this privilege, a burst is sent in pieces
            let _ = set_fifo(0, 1);
            Ok(socket)
        },
        move |socket, running| {
            running.by(schedule, |_| {
                for _ in 0..packets {
                    // a packet that is not sent is not received, so it is not in the truth either
                    let _ = socket.send(&[0; 64]);
                }
            });
            GroundTruth::default()
        },
    )?;
    Ok(Box::new(move || {
        disturber.stop();
        let culprit = Culprit::Softirq {
            name: "NET_RX".to_owned(),
        };
        let injected = format!("softirq:{schedule}");
        let truth = times.read((server_cpu, TOGETHER), REMEDY, |intervals| {
            GroundTruth::of_one(injected, Cause::Softirq, Some(culprit), intervals)
        });
        drop(link);
        let truth = truth?;
        testbed.remove()?;
        Ok(truth)
    }))
}
