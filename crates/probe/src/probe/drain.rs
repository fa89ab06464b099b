//! Draining into a sink as the recording goes on: nothing is kept in memory.

use std::io;

use taillab_model::{EventSink, LostEvents, Monotonic, Nanos, PackedEvent};

use super::Probe;
use crate::{ProbeError, object};

/// Events handed on at a time: 8 KiB.
const PART: usize = 512;

/// The most events of a CPU in one pass, so that a flood on one CPU does not keep the
/// others waiting without end.
const PASS: usize = 1 << 18;

/// How long after an event it is believed to be in its ring.
///
/// A program reads the clock first and takes its place in the ring then; an interrupt, or
/// the hypervisor, may come between. What comes later still is kept, and counts as late.
const SLACK: Nanos = Nanos::from_secs(1);

impl Probe {
    /// What the events' times count from.
    pub fn base(&self) -> Monotonic {
        self.base
    }

    /// Moves all events that are there from the rings to the sink, tells it which times are
    /// settled by now, and returns how many it moved.
    ///
    /// It is for a thread that sleeps 10 ms to 20 ms between two calls; nothing in the
    /// kernel wakes it. A ring must have room for what its CPU records in that time.
    ///
    /// # Errors
    /// What the sink says; the events that it was to take are lost.
    pub fn drain_into(&mut self, sink: &mut impl EventSink) -> io::Result<u64> {
        let began = self.since_base();
        let mut part = Vec::with_capacity(PART);
        let mut moved = 0;
        let mut all = true;
        for cpu in 0..self.rings.cpus() {
            let of_cpu = self.pass(cpu, PASS, &mut part, sink)?;
            // a flood, or an event that was begun and is not being finished
            let stuck = of_cpu == 0 && !self.rings.is_empty(cpu);
            all &= of_cpu < PASS && !stuck;
            moved += of_cpu as u64;
        }
        if all {
            sink.settle(began.saturating_sub(SLACK))?;
        }
        Ok(moved)
    }

    /// Stops recording and moves everything that is left to the sink, waiting for programs
    /// that are writing an event right now. [`Probe::lost`] is final then.
    ///
    /// # Errors
    /// What the sink says.
    pub fn finish_into(&mut self, sink: &mut impl EventSink) -> io::Result<()> {
        self.detach();
        let mut part = Vec::with_capacity(PART);
        self.empty_rings(|probe, cpu| probe.pass(cpu, usize::MAX, &mut part, sink))?;
        sink.settle(Nanos::MAX)
    }

    /// What has been lost since the recording began.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn lost(&self) -> Result<LostEvents, ProbeError> {
        let lost = self.lost_since_load()?;
        let before = self.lost_before;
        // without its programs an event that was begun is never finished
        let unfinished = match self.is_attached() {
            true => 0,
            false => self.rings.pending(),
        };
        Ok(LostEvents {
            ring_full: lost.ring_full - before.ring_full + unfinished,
            recursion: lost.recursion - before.recursion,
            unreadable: lost.unreadable - before.unreadable,
            ..LostEvents::default()
        })
    }

    /// Moves up to `max` events of a CPU that are finished.
    fn pass(
        &mut self,
        cpu: usize,
        max: usize,
        part: &mut Vec<PackedEvent>,
        sink: &mut impl EventSink,
    ) -> io::Result<usize> {
        let mut moved = 0;
        while moved < max {
            part.clear();
            self.rings.take(cpu, PART as u64, |event| part.push(event));
            if part.is_empty() {
                break;
            }
            // the probe refuses to load on more CPUs than 1024
            sink.take(cpu as u16, part)?;
            moved += part.len();
            if part.len() < PART {
                break;
            }
        }
        Ok(moved)
    }

    fn since_base(&self) -> Nanos {
        object::now().saturating_since(self.base)
    }
}
