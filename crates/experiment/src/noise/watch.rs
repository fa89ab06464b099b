//! What happens on the measured CPUs meanwhile, from the probe's events.

use std::io;

use taillab_analysis::gaps::{GapAnalysis, IpiSent};
use taillab_host::{Roots, observe};
use taillab_model::{
    EventOrder, EventSink, MiddleStamps, Monotonic, Nanos, PackedEvent, RecordingContext,
};
use taillab_probe::{
    Addresses, Devices, Disturbances, IpiWatch, Probe, ProbeError, ProbeSpec, ServerProcesses,
    Transport,
};

use crate::rings::ring_bytes_per_cpu;

/// Room for events of one CPU where there are few: a quarter of a million, for when real-time loops leave
/// no CPU to the thread that drains them.
const RING_BYTES: usize = 4 << 20;

/// The port "discard": no requests are traced here.
const NO_PORT: u16 = 9;

/// The attached probe, and a record of inter-processor interrupts.
pub struct Watch {
    probe: Probe,
    sink: Sink,
    ipis: Option<IpiWatch>,
    cpus: Vec<u16>,
}

impl Watch {
    /// Begins to record what happens on these CPUs.
    pub fn begin(cpus: &[u16]) -> Result<Self, ProbeError> {
        let wanted =
            Disturbances::SCHED | Disturbances::IRQ | Disturbances::SOFTIRQ | Disturbances::FAULT;
        let spec = ProbeSpec {
            // no network namespace has this inode
            devices: Devices::all_in(1),
            queues: false,
            others: Vec::new(),
            served_ports: Vec::new(),
            transport: Transport::Udp,
            server_port: NO_PORT,
            addresses: Addresses::All,
            server: ServerProcesses::These(vec![std::process::id()]),
            server_cpus: cpus.to_vec(),
            generator_cpus: Vec::new(),
            stamps: MiddleStamps::All,
            disturbances: wanted,
            payload_bytes: 0,
            // every possible CPU has a ring, also those that are not measured
            ring_bytes_per_cpu: RING_BYTES.min(ring_bytes_per_cpu()),
        };
        let mut probe = Probe::load(&spec)?;
        probe.attach()?;
        Ok(Self {
            sink: Sink {
                order: EventOrder::new(probe.base()),
                settled: Nanos::ZERO,
            },
            probe,
            // without it the cause is known, but not which CPU sent the interrupt
            ipis: IpiWatch::start().ok(),
            cpus: cpus.to_vec(),
        })
    }

    /// Passes the recorded events on, and analyses what is settled.
    pub fn drain(&mut self, analysis: &mut GapAnalysis) {
        // the sink never fails
        let _ = self.probe.drain_into(&mut self.sink);
        self.hand_on(analysis);
        let since_boot = self.probe.base().nanos_since_boot() + self.sink.settled.get();
        analysis.settle(Monotonic::from_nanos_since_boot(since_boot));
    }

    /// Ends the recording and passes the rest on; returns how many events were lost.
    pub fn finish(mut self, analysis: &mut GapAnalysis, context: &mut RecordingContext) -> u64 {
        let _ = self.probe.finish_into(&mut self.sink);
        self.hand_on(analysis);
        let seen = self.probe.threads();
        let mut processes: Vec<u32> = seen.iter().map(|thread| thread.pid).collect();
        processes.sort_unstable();
        processes.dedup();
        // the threads of these processes are also checked for real-time policies
        observe::name(context, &Roots::default(), seen, &processes);
        self.probe
            .lost()
            .map_or(0, |lost| lost.ring_full + lost.unreadable)
    }

    fn hand_on(&mut self, analysis: &mut GapAnalysis) {
        if let Some(ipis) = &mut self.ipis {
            for &to in &self.cpus {
                for (at, from) in ipis.asked(to) {
                    analysis.ipi(IpiSent { at, from, to });
                }
            }
        }
        while let Some(event) = self.sink.order.next_settled() {
            analysis.event(event);
        }
    }
}

/// Events in order, and up to when they are complete.
struct Sink {
    order: EventOrder,
    settled: Nanos,
}

impl EventSink for Sink {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        self.order.take(cpu, events)
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.settled = self.settled.max(before);
        self.order.settle(before)
    }
}
