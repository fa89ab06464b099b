//! Draining into a sink: during the recording, or at its end.

use std::io;

use taillab_model::{EventSink, LostEvents, Monotonic, Nanos, PackedEvent};

use super::Probe;
use crate::store::SLACK;
use crate::{ProbeError, object};

/// Events passed on at a time: 8 KiB.
const PART: usize = 512;

/// The most events of a CPU in one pass, so that a flood on one CPU does not starve the
/// others.
const PASS: usize = 1 << 18;

impl Probe {
    /// The time that the events' times are relative to.
    pub fn base(&self) -> Monotonic {
        Monotonic::from_nanos_since_boot(self.loaded.spec.config.base)
    }

    /// Moves all events from the rings to the sink, tells it up to which time all events have
    /// come, and returns how many it moved.
    ///
    /// Meant for a thread that sleeps 10 ms to 20 ms between two calls, since nothing in the
    /// kernel wakes it. A ring must have room for what its CPU records in that time.
    ///
    /// # Errors
    /// The sink's error; the events that it did not take are lost.
    pub fn drain_into(&mut self, sink: &mut (impl EventSink + ?Sized)) -> io::Result<u64> {
        let began = object::now().saturating_since(self.base());
        let mut part = Vec::with_capacity(PART);
        let mut moved = 0;
        let mut all = true;
        for cpu in 0..self.rings.cpus() {
            let of_cpu = self.pass(cpu, PASS, &mut part, sink)?;
            // an event was begun and has not been finished
            let stuck = of_cpu == 0 && !self.rings.is_empty(cpu);
            all &= of_cpu < PASS && !stuck;
            moved += of_cpu as u64;
        }
        if all {
            sink.settle(began.saturating_sub(SLACK))?;
        }
        Ok(moved)
    }

    /// If what [`Probe::drain`] has moved to memory takes all the room that was [reserved](Probe::reserve), passes the
    /// oldest of it on until there is room again. To compress them takes some milliseconds.
    ///
    /// # Errors
    /// The sink's error; the events that it did not take are lost.
    pub fn relieve(&mut self, sink: &mut (impl EventSink + ?Sized)) -> io::Result<()> {
        if self.store.is_full() {
            // a ring with less than a batch may have the oldest events
            for cpu in 0..self.rings.cpus() {
                self.move_from(cpu, usize::MAX);
            }
        }
        while self.store.is_full() && self.store.pass_on(sink)? {}
        Ok(())
    }

    /// Stops recording and passes all events to the sink that have not been, waiting for programs
    /// that are writing an event right now. After that, [`Probe::lost`] is final.
    ///
    /// # Errors
    /// The sink's error.
    pub fn finish_into(&mut self, sink: &mut (impl EventSink + ?Sized)) -> io::Result<()> {
        self.detach();
        self.drain_all();
        self.store.pass_all_on(sink)?;
        sink.settle(Nanos::MAX)
    }

    /// What has been lost since the recording began.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn lost(&self) -> Result<LostEvents, ProbeError> {
        let lost = self.lost_since_load()?;
        let before = self.lost_before;
        // after detaching, an event that was begun will never be finished
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

    /// As [`Probe::lost`] at the end of a recording, for a probe that will record again.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn take_lost(&mut self) -> Result<LostEvents, ProbeError> {
        let lost = self.lost()?;
        self.lost_before = self.lost_since_load()?;
        self.rings.renumber();
        Ok(lost)
    }

    /// Moves up to `max` finished events of a CPU.
    fn pass(
        &mut self,
        cpu: usize,
        max: usize,
        part: &mut Vec<PackedEvent>,
        sink: &mut (impl EventSink + ?Sized),
    ) -> io::Result<usize> {
        let mut moved = 0;
        while moved < max {
            part.clear();
            self.rings.take(cpu, PART as u64, |event| part.push(event));
            if part.is_empty() {
                break;
            }
            // Linux has at most 8,192 CPUs
            sink.take(cpu as u16, part)?;
            moved += part.len();
            if part.len() < PART {
                break;
            }
        }
        Ok(moved)
    }
}
