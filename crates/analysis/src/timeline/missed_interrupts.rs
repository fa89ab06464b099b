//! Interrupts from other CPUs to which a CPU did not react.
//!
//! If one CPU takes a packet from the driver and another one queues it at the socket, an interrupt goes
//! from the first to the second. If the second CPU is then silent, either of them may have stood still:
//! the first may not have sent the interrupt yet. A later packet on the first shows that it went on;
//! from then on, it was the second that stood still.
//!
//! A thread that computes is silent too, and packets wait for it if the softirq was left to
//! `ksoftirqd`. Then they bring no interrupt. So an interrupt must have ended the silence, except on an
//! idle CPU that polls, which is woken without one.

use taillab_model::{Monotonic, Nanos, PacketId, RequestKey};

use super::stalls::MIN_SILENCE;

/// The number of packets that are kept.
const RECENT: usize = 256;

/// One softirq handles several packets before it sends the interrupt. A packet that comes later than this
/// belongs to another softirq.
const OF_ONE_SOFTIRQ: Nanos = MIN_SILENCE;

/// A packet: by its buffer, or by its place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketName(u64);

impl PacketName {
    pub(super) fn of_buffer(packet: PacketId) -> Self {
        Self(packet.0.into())
    }

    pub(super) fn of_segment(key: RequestKey) -> Self {
        Self(1 << 63 | u64::from(key.connection) << 16 | u64::from(key.id))
    }
}

/// A time in which nothing was recorded on a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuietTime {
    pub(super) from: Monotonic,
    pub(super) to: Monotonic,
    /// Another CPU's interrupt came right after, or none was needed.
    pub(super) interrupted: bool,
}

/// The last packets that came in.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    recent: Vec<(Monotonic, u16, PacketName)>,
    /// The place of the oldest one, once all places are in use.
    next: usize,
}

impl Inbound {
    pub(super) fn came(&mut self, at: Monotonic, cpu: u16, packet: PacketName) {
        if self.recent.len() < RECENT {
            self.recent.push((at, cpu, packet));
            return;
        }
        self.recent[self.next] = (at, cpu, packet);
        self.next = (self.next + 1) % RECENT;
    }

    /// The packet has reached its socket, as the first one on `cpu` after this silence. Returns the time
    /// from which it is certain that the CPU did not react.
    pub(super) fn missed_interrupt(
        &self,
        packet: PacketName,
        cpu: u16,
        quiet: &QuietTime,
    ) -> Option<Monotonic> {
        let QuietTime { from, to, .. } = *quiet;
        let (newer, older) = self.recent.split_at(self.next);
        let mut packets = older.iter().chain(newer);
        // buffers are reused: the last packet of this name is meant
        let mut latest_first = packets.clone().rev();
        let (came, source, _) = *latest_first.find(|(.., name)| *name == packet)?;
        // the interrupt may be on its way when the silence begins
        let near = from <= came + OF_ONE_SOFTIRQ && came < to;
        let crossed = source != cpu && near && quiet.interrupted;
        let (went_on, ..) = *packets
            .find(|(at, by, _)| crossed && *by == source && *at >= came + OF_ONE_SOFTIRQ)?;
        let from = went_on.max(from);
        (to.saturating_since(from) >= MIN_SILENCE).then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1_000)
    }

    fn packet(number: u32) -> PacketName {
        PacketName::of_buffer(PacketId(number))
    }

    fn quiet(from: u64, to: u64) -> QuietTime {
        QuietTime {
            from: at(from),
            to: at(to),
            interrupted: true,
        }
    }

    #[test]
    fn a_later_packet_shows_that_the_first_cpu_went_on() {
        let mut inbound = Inbound::default();
        for number in 0..1_000 {
            inbound.came(at(u64::from(number) * 10), 1, packet(number));
        }
        for (number, us) in [
            (2_000, 20_000),
            (2_001, 20_050),
            (2_002, 20_400),
            (2_003, 24_000),
        ] {
            inbound.came(at(us), 1, packet(number));
        }
        let missed = |number, to| inbound.missed_interrupt(packet(number), 0, &quiet(19_000, to));
        // the second packet may belong to the same softirq
        assert_eq!(missed(2_000, 25_000), Some(at(20_400)));
        assert_eq!(missed(2_002, 25_000), Some(at(24_000)));
        // no later packet; one just before the end; a packet after the silence; a forgotten one
        assert_eq!(missed(2_003, 25_000), None);
        assert_eq!(missed(2_002, 24_010), None);
        assert_eq!(missed(2_000, 19_500), None);
        assert_eq!(missed(5, 25_000), None);
        // the same CPU: no interrupt was needed
        assert_eq!(
            inbound.missed_interrupt(packet(2_000), 1, &quiet(19_000, 25_000)),
            None
        );
    }

    #[test]
    fn a_buffer_that_is_used_again_is_another_packet() {
        let mut inbound = Inbound::default();
        for (us, number) in [(100, 1), (1_100, 1), (1_300, 2)] {
            inbound.came(at(us), 1, packet(number));
        }
        let silence = quiet(1_000, 2_000);
        assert_eq!(
            inbound.missed_interrupt(packet(1), 0, &silence),
            Some(at(1_300))
        );
    }

    #[test]
    fn another_cpus_packets_show_nothing() {
        let mut inbound = Inbound::default();
        inbound.came(at(100), 1, packet(1));
        inbound.came(at(400), 2, packet(2));
        let silence = quiet(50, 900);
        assert_eq!(inbound.missed_interrupt(packet(1), 0, &silence), None);
        inbound.came(at(500), 1, packet(3));
        assert_eq!(
            inbound.missed_interrupt(packet(1), 0, &silence),
            Some(at(500))
        );
    }

    #[test]
    fn the_interrupt_may_be_on_its_way_when_the_silence_begins_and_must_end_it() {
        let mut inbound = Inbound::default();
        for (us, number) in [(960, 1), (1_200, 2), (1_400, 3)] {
            inbound.came(at(us), 1, packet(number));
        }
        let silence = quiet(1_000, 2_000);
        assert_eq!(
            inbound.missed_interrupt(packet(1), 0, &silence),
            Some(at(1_200))
        );
        let from_1_100 = quiet(1_100, 2_000);
        assert_eq!(inbound.missed_interrupt(packet(1), 0, &from_1_100), None);
        // packets that wait for a thread that computes bring no interrupt
        let interrupted = false;
        let computed = QuietTime {
            interrupted,
            ..silence
        };
        assert_eq!(inbound.missed_interrupt(packet(2), 0, &computed), None);
    }
}
