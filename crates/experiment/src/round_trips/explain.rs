//! Measures a row once more with the kernel probe, to find where its tail comes from.
//!
//! The echo server is traced as `run` traces its server, on the CPUs of both ends. The round trips are
//! measured in parts that fit the probe's rings. Nothing drains the rings meanwhile, so that only the
//! probe's own programs disturb the measurement. What was recorded is analysed by a process that has given up root.

use taillab_analysis::rtt::{ClientEnd, DividedTrips, Ends, Explainer};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::probe as probe_failure;
use taillab_console::rights::without_root;
use taillab_host::{Roots, observe};
use taillab_load::rtt::{Peer, Proto};
use taillab_model::rtt::{Link, RoundTrip, RttExplanation};
use taillab_model::{EventOrder, MiddleStamps, RecordingContext};
use taillab_probe::{
    Addresses, Devices, Disturbances, Probe, ProbeSpec, ServerProcesses, Transport,
};

use super::failure::failure;
use super::measure::{Measurement, RunLength};
use super::plan::{RowPlan, RttPlan};
use crate::rings::{cpu_numbers, ring_bytes_per_cpu};

/// The longest warm-up of a part, in round trips of each connection.
const WARM_UP: u64 = 100;
/// The most events of a round trip on one CPU, and more for each 4 KiB of its message.
const EVENTS: u64 = 24;
const EVENTS_PER_PAGE: u64 = 4;
/// Bytes of an event.
const EVENT_BYTES: u64 = 16;

impl Measurement<'_> {
    /// Refuses an impossible explanation before anything is measured.
    pub(super) fn check_probe(&self) -> Result<(), Failure> {
        /// Any port: whether the probe can be loaded does not depend on it.
        const SOME_PORT: u16 = 1;
        self.load_probe(Proto::Tcp, SOME_PORT).map(drop)
    }

    /// Traces and splits as many round trips as a run has.
    pub(super) fn explained(&self, plan: &RowPlan, peer: &Peer) -> Result<RttExplanation, Failure> {
        let port = peer.port().filter(|_| self.plan.explains(plan));
        let Some(port) = port else {
            let why = format!(
                "the kernel stamps packets, and {} has none there",
                plan.proto
            );
            return Err(Failure::new(Exit::Unsupported, why));
        };
        let mut probe = self.load_probe(plan.proto, port)?;
        let of_part = round_trips_of_part(plan, ring_bytes_per_cpu() as u64);
        let mut explainer = Explainer::default();
        let mut left = self.plan.count;
        while left > 0 && !self.interrupt.is_raised() {
            let count = left.min(of_part);
            left -= count;
            self.part(plan, peer, (&mut probe, port), count, &mut explainer)?;
        }
        let lost = probe.lost().map_err(probe_failure)?.total();
        explainer.finish(lost).ok_or_else(|| {
            Failure::failed(
                "the probe matched no request: see `taillab doctor`, whether every hook works",
            )
        })
    }

    /// Makes `count` round trips with the probe attached, and then splits them into parts.
    fn part(
        &self,
        plan: &RowPlan,
        peer: &Peer,
        (probe, port): (&mut Probe, u16),
        count: u64,
        explainer: &mut Explainer,
    ) -> Result<(), Failure> {
        probe.attach().map_err(probe_failure)?;
        let warm_up = warm_up_of_part(plan, ring_bytes_per_cpu() as u64);
        let of_run = RunLength {
            count,
            warm_up: self.plan.warm_up.min(warm_up),
        };
        let played = self.play(plan, peer, of_run, self.interrupt.flag());
        let mut events = EventOrder::new(probe.base());
        probe.finish_into(&mut events).or_exit(Exit::Failed)?;
        let played = played.map_err(|error| failure(&error))?;
        let placement = self.plan.placement();
        let cpus = cpu_numbers(&placement.client);
        let clients: Vec<ClientEnd> = (played.ends.iter())
            .map(|end| ClientEnd {
                port: end.port,
                thread: end.thread,
                cpu: cpus[end.client % cpus.len()],
            })
            .collect();
        let server_cpus = cpu_numbers(&placement.server);
        let ends = Ends {
            clients: &clients,
            server_cpus: &server_cpus,
            loopback: self.plan.link == Link::Loopback,
        };
        // over UDP each connection has its own server, and only the first one is traced
        let traced = |trip: &&RoundTrip| plan.proto != Proto::Udp || trip.connection == 0;
        let round_trips: Vec<RoundTrip> =
            played.round_trips.iter().filter(traced).copied().collect();
        let context = self.context(probe, plan.proto, port);
        let in_order = std::iter::from_fn(|| events.next_settled());
        let divide = || DividedTrips::of(in_order, &context, &round_trips, ends);
        explainer.add(without_root(&Roots::default(), divide)?);
        match played.failure {
            None => Ok(()),
            Some(error) => Err(failure(&error)),
        }
    }

    fn load_probe(&self, proto: Proto, port: u16) -> Result<Probe, Failure> {
        let device = self.testbed.server_device();
        Probe::load(&ProbeSpec {
            devices: Devices {
                netns_inode: device.netns_inode,
                ifindexes: vec![device.ifindex],
            },
            queues: false,
            others: Vec::new(),
            served_ports: Vec::new(),
            transport: match proto {
                Proto::Udp => Transport::Udp,
                _ => Transport::Tcp,
            },
            server_port: port,
            addresses: Addresses::All,
            // both ends are threads of this process
            server: ServerProcesses::These(vec![std::process::id()]),
            server_cpus: both_ends(self.plan),
            generator_cpus: Vec::new(),
            stamps: MiddleStamps::All,
            disturbances: Disturbances::ALL,
            payload_bytes: 0,
            ring_bytes_per_cpu: ring_bytes_per_cpu(),
        })
        .map_err(probe_failure)
    }

    fn context(&self, probe: &Probe, proto: Proto, port: u16) -> RecordingContext {
        let mut context = RecordingContext {
            server: "taillab rtt".to_owned(),
            transport: proto.to_string(),
            port,
            server_cpus: both_ends(self.plan),
            hooks: probe.hooks(),
            timeout_ns: Some(self.plan.timeout),
            sequential: true,
            ..RecordingContext::default()
        };
        let own = [std::process::id()];
        let roots = Roots::default();
        observe::name(&mut context, &roots, probe.threads(), &own);
        observe::name_own(&mut context, &roots);
        context
    }
}

/// How many round trips fit a ring with room to spare.
fn round_trips_of_part(plan: &RowPlan, ring_bytes: u64) -> u64 {
    let events = EVENTS + plan.size as u64 / 4096 * EVENTS_PER_PAGE;
    (ring_bytes / EVENT_BYTES / 4 * 3 / events).max(1)
}

/// The warm-up of each connection in a part: all of them together fit the room that the part spares.
fn warm_up_of_part(plan: &RowPlan, ring_bytes: u64) -> u64 {
    // a part takes three quarters of the ring
    let spared = round_trips_of_part(plan, ring_bytes) / 3;
    WARM_UP.min(spared / plan.conns.max(1) as u64)
}

fn both_ends(plan: &RttPlan) -> Vec<u16> {
    let all = plan.server_cpus.iter().chain(&plan.client_cpus).copied();
    cpu_numbers(&all.collect())
}

#[cfg(test)]
mod tests {
    use taillab_load::rtt::Mode;

    use super::*;

    #[test]
    fn a_part_fits_the_ring_with_the_warm_up_of_all_connections() {
        let ring_bytes = 8 << 20;
        for (size, conns) in [(64, 1), (64, 1_000), (16 << 20, 1), (16 << 20, 64)] {
            let plan = RowPlan {
                proto: Proto::Tcp,
                mode: Mode::Blocking,
                size,
                conns,
            };
            let warm_up = warm_up_of_part(&plan, ring_bytes) * conns as u64;
            let events = EVENTS + size as u64 / 4096 * EVENTS_PER_PAGE;
            let all = (round_trips_of_part(&plan, ring_bytes) + warm_up) * events;
            assert!(all <= ring_bytes / EVENT_BYTES, "{plan:?}: {all}");
        }
        let plan = RowPlan {
            proto: Proto::Udp,
            mode: Mode::Blocking,
            size: 64,
            conns: 1,
        };
        assert_eq!(warm_up_of_part(&plan, ring_bytes), WARM_UP);
    }
}
