//! Kernel bypass: memory that two threads share, AF_XDP, and DPDK where it is installed.

use taillab_console::exit::Failure;
use taillab_console::messages::Messages;
use taillab_experiment::round_trips::{Measurement, RowPlan, RttPlan};
use taillab_host::components::testpmd_round_trips;
use taillab_host::{CpuSet, RequestedCpus};
use taillab_load::rtt::{Mode, Proto};
use taillab_model::Nanos;
use taillab_model::rtt::Link;

use super::bench::{Bench, MOST};
use super::paper;
use super::row::{Component, Row};
use crate::result::Standing;

/// Bytes of a message, as in the paper.
const SIZE: usize = 64;

/// The rows of kernel bypass that need no card.
pub fn all(bench: &Bench<'_>) -> Vec<Row> {
    bench.messages.step("kernel bypass");
    let memory = Component::new(
        "kernel bypass",
        Standing::Substituted,
        "shared memory between two threads that spin: the floor, without a card or PCIe",
        Some(paper::BYPASS),
    );
    let xdp = Component::new(
        "kernel bypass, AF_XDP",
        Standing::Measured,
        "AF_XDP in copy mode at both ends of a veth pair between two network namespaces made for it, \
         without a card: it bypasses the network stack; two threads that spin",
        None,
    );
    // DPDK's own forwarder, without a card
    let dpdk = Component::new(
        "kernel bypass, DPDK",
        Standing::Substituted,
        "DPDK’s testpmd on net_af_packet instead of a card: at the far end of a veth pair it swaps the \
         addresses of a frame and sends it back to a packet socket that spins",
        None,
    );
    let message = format!("{SIZE} bytes");
    vec![
        memory
            .with("message", &message)
            .on_two_cpus(bench, |there| {
                round_trips(bench, there, Proto::Shm, Link::Loopback)
            }),
        xdp.with("message", &message).on_two_cpus(bench, |there| {
            round_trips(bench, there, Proto::Xdp, Link::Veth)
        }),
        dpdk.with("frame", "60 bytes").on_two_cpus(bench, |there| {
            testpmd_round_trips(bench.here, there, bench.bounds())
        }),
    ]
}

/// The times of all round trips that were answered.
fn round_trips(
    bench: &Bench<'_>,
    there: u32,
    proto: Proto,
    link: Link,
) -> Result<Vec<Nanos>, Failure> {
    let plan = RowPlan {
        proto,
        mode: Mode::Nonblocking,
        size: SIZE,
        conns: 1,
    };
    let (server, client) = (CpuSet::single(there), CpuSet::single(bench.here));
    let cpus = RequestedCpus {
        server: Some(&server),
        client: Some(&client),
    };
    let plan = RttPlan {
        link,
        at_most: Some(bench.length),
        ..RttPlan::own(vec![plan], MOST as u64, 1, cpus)?
    };
    let quiet = Messages {
        quiet: true,
        verbose: false,
    };
    let mut taken = Vec::new();
    let measured = Measurement::new(&plan, bench.interrupt, quiet)?.rows(|row| {
        let answered = row.runs.iter().flatten().filter(|trip| !trip.lost);
        taken.extend(answered.map(|trip| trip.rtt));
        Ok(())
    })?;
    match measured.failure {
        Some(failure) => Err(failure),
        None => Ok(taken),
    }
}
