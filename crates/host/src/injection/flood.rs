//! A flood of packets from a third namespace, steered to the server's CPU.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use taillab_model::explanation::{Cause, Culprit};
use taillab_model::truth::{Truth, TruthInterval, TruthSource};
use taillab_model::{Monotonic, Nanos};

use super::bpf::{Array, Assembly, JGE, JLT, KTIME, TCX_DROP};
use super::disturber::Disturber;
use super::rt_hog::set_fifo;
use super::{InjectionError, Schedule, system};
use crate::cpus::{CpuSet, Placement};
use crate::testbed::{Testbed, TestbedSpec};

const NAME: &str = "tl-flood";
/// What the kernel does for one packet: about what a long list of filter rules costs.
const EACH: Nanos = Nanos::from_micros(10);
/// Turns of the loop that passes this time; more than it ever takes.
const TURNS: i32 = 1500;
/// Packets whose time is kept.
const ROOM: u32 = 1 << 17;
/// Between two packets of one burst there is nothing but the stack's own work on them.
const TOGETHER: Nanos = Nanos::from_micros(4);
/// The discard service: nobody answers.
const PORT: u16 = 9;

const REMEDY: &str = "it needs root, and Linux 6.6 for programs at a device's ingress (tcx)";

/// Packets to a device of their own, whose receive work runs on the server's CPU (RPS) and
/// is made dear by a program at its ingress; the server never sees one.
pub struct PacketFlood {
    disturber: Disturber,
    times: Array,
    link: OwnedFd,
    testbed: Testbed,
    schedule: Schedule,
    server_cpu: u32,
}

impl PacketFlood {
    /// Bursts of packets, each as long as the schedule says in the kernel of `server_cpu`;
    /// sent in some ten microseconds from `client_cpu`.
    ///
    /// # Errors
    /// [`InjectionError`] where namespaces or such programs cannot be had.
    pub fn start(
        server_cpu: u32,
        client_cpu: u32,
        schedule: Schedule,
    ) -> Result<Self, InjectionError> {
        let testbed = Testbed::veth(&TestbedSpec {
            placement: Placement {
                server: CpuSet::single(server_cpu),
                client: CpuSet::single(client_cpu),
            },
        })?;
        let times = Array::new(ROOM).map_err(system("make a BPF map", REMEDY))?;
        let program = program(&times);
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
                // where it may not, the burst is sent in pieces
                let _ = set_fifo(0, 1);
                Ok(socket)
            },
            move |socket, running| {
                running.by(schedule, |_| {
                    for _ in 0..packets {
                        // one that is not sent is not received either, nor in the truth
                        let _ = socket.send(&[0; 64]);
                    }
                });
                Truth::default()
            },
        )?;
        Ok(Self {
            disturber,
            times,
            link,
            testbed,
            schedule,
            server_cpu,
        })
    }

    /// Ends it and says when the kernel was busy with it.
    ///
    /// # Errors
    /// [`InjectionError`] where the record cannot be read.
    pub fn stop(self) -> Result<Truth, InjectionError> {
        self.disturber.stop();
        let read = |key| {
            self.times
                .get(key)
                .map_err(system("read a BPF map", REMEDY))
        };
        let received = read(0)?.0;
        let recorded = received.min(u64::from(ROOM) - 1);
        let mut intervals: Vec<TruthInterval> = Vec::new();
        for key in 1..=recorded as u32 {
            let (from, to) = read(key)?;
            let (from_ns, to_ns) = (
                Monotonic::from_nanos_since_boot(from),
                Monotonic::from_nanos_since_boot(to),
            );
            match intervals.last_mut() {
                Some(last) if from_ns.saturating_since(last.to_ns) < TOGETHER => {
                    last.to_ns = to_ns;
                }
                _ => intervals.push(TruthInterval {
                    source: 0,
                    cpu: Some(u16::try_from(self.server_cpu).unwrap_or(u16::MAX)),
                    held: None,
                    from_ns,
                    to_ns,
                }),
            }
        }
        drop(self.link);
        self.testbed.remove()?;
        Ok(Truth {
            sources: vec![TruthSource {
                injected: format!("softirq:{}", self.schedule),
                cause: Cause::Softirq,
                culprit: Some(Culprit::Softirq {
                    name: "NET_RX".to_owned(),
                }),
            }],
            intervals,
            unrecorded: received - recorded,
        })
    }
}

/// Passes [`EACH`], writes from when to when into the next value (the first one counts) and
/// drops the packet.
fn program(times: &Array) -> Assembly {
    let mut code = Assembly::default();
    code.call(KTIME)
        .copy(6, 0)
        .set(7, 0)
        .label("again")
        .call(KTIME)
        .copy(8, 0)
        .copy(9, 0)
        .subtract(9, 6)
        .jump(JGE, 9, EACH.get() as i32, "passed")
        .add(7, 1)
        .jump(JLT, 7, TURNS, "again")
        .label("passed")
        .set(1, 0)
        .value(times, 1, "drop")
        // one CPU receives them all, one at a time
        .load(1, 0, 0)
        .add(1, 1)
        .store(0, 0, 1)
        .jump(JGE, 1, ROOM as i32, "drop")
        .value(times, 1, "drop")
        .store(0, 0, 6)
        .store(0, 8, 8)
        .label("drop")
        .end(TCX_DROP);
    code
}
