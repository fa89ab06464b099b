//! The thread that moves events from the probe to the recording, until it is told to stop.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use taillab_analysis::pseudonyms::Pseudonyms;
use taillab_analysis::{Framing, Redaction};
use taillab_console::exit::Failure;
use taillab_console::fail::probe as probe_failure;
use taillab_experiment::pipeline::{Canary, Spool};
use taillab_host::clock::now;
use taillab_host::disk;
use taillab_host::observe::{Counters, ProgramTime};
use taillab_model::{
    Event, EventOrder, EventSink, Monotonic, Nanos, PackedEvent, RecordingContext, RecordingWriter,
};
use taillab_probe::Probe;

use super::end::End;
use super::live::{RecordedAmount, Window};

/// Between two drains of the probe, and two looks at steal and quotas.
const PERIOD: Duration = Duration::from_millis(10);
/// After this many events the programs' time per event is taken: the kernel's accounting costs time itself,
/// so it does not run for long.
const COUNTED_EVENTS: u64 = 1_000;

/// Between two looks at the disk, and two notes of what was lost.
const LOOK: Duration = Duration::from_secs(1);
/// Room to leave on the disk for the end of the file, the result, and other programs.
const FLOOR_BYTES: u64 = 32 << 20;

/// What the recording thread and the drawing thread share.
#[derive(Default)]
pub struct Shared {
    /// The recording is to end.
    pub stop: AtomicBool,
    pub elapsed_ms: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    /// What is in the recording so far.
    pub fn written(&self) -> RecordedAmount {
        RecordedAmount {
            events: self.events.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// Everything that gives events, and where they go.
pub struct Recorder {
    pub probe: Probe,
    sinks: Sinks,
    counters: Counters,
    canary: Option<Canary>,
    counting: Option<ProgramTime>,
    /// Time in the probe's programs for each event, where it was counted.
    pub program_ns_per_event: Option<f64>,
    settle: Duration,
}

impl Recorder {
    /// A recorder for a probe that is attached. The programs' time is taken after `settle`.
    pub fn new(
        probe: Probe,
        sinks: Sinks,
        counters: Counters,
        canary: Option<Canary>,
        counting: Option<ProgramTime>,
        settle: Nanos,
    ) -> Self {
        Self {
            probe,
            sinks,
            counters,
            canary,
            counting,
            program_ns_per_event: None,
            settle: Duration::from_nanos(settle.get()),
        }
    }

    /// Drains the probe for `length`, or until it is told to stop; returns why it had to end earlier, if it
    /// had to.
    pub fn run(mut self, shared: &Shared, length: Duration) -> (Self, Option<End>) {
        let began = Instant::now();
        let mut looked = began;
        let mut end = None;
        while end.is_none() && !shared.stop.load(Ordering::Relaxed) && began.elapsed() < length {
            let turn = Instant::now();
            end = self.turn().err().map(End::Unwritable);
            if end.is_none() && looked.elapsed() >= LOOK {
                looked = turn;
                end = self.look_around();
            }
            let RecordedAmount { events, bytes } = self.sinks.written();
            shared
                .elapsed_ms
                .store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            shared.events.store(events, Ordering::Relaxed);
            shared.bytes.store(bytes, Ordering::Relaxed);
            if began.elapsed() >= self.settle && events >= COUNTED_EVENTS {
                self.count();
            }
            let left = length.saturating_sub(began.elapsed());
            thread::sleep(PERIOD.saturating_sub(turn.elapsed()).min(left));
        }
        self.count();
        (self, end)
    }

    /// Drains the probe once, and adds events of our own.
    fn turn(&mut self) -> io::Result<()> {
        self.probe.drain_into(&mut self.sinks)?;
        if let Some(why) = self.sinks.writer.out().failure() {
            return Err(io::Error::other(why.to_owned()));
        }
        let (sinks, mut inserted) = (&mut self.sinks, Ok(()));
        self.counters.look(now(), |event| {
            if inserted.is_ok() {
                inserted = sinks.writer.insert(event);
            }
        });
        inserted?;
        let mut stalls = self.canary.iter().flat_map(Canary::stalls);
        stalls.try_for_each(|stall| self.sinks.writer.insert(stall))
    }

    /// Checks that are not needed at every drain.
    fn look_around(&mut self) -> Option<End> {
        // if the counters cannot be read now, the end of the recording reports that
        if let Ok(lost) = self.probe.lost()
            && let Err(error) = self.sinks.writer.note_lost(lost)
        {
            return Some(End::Unwritable(error));
        }
        // what is in memory needs none
        let free = disk::free_bytes(self.sinks.writer.out().file()?).ok()?;
        (free < FLOOR_BYTES).then_some(End::DiskLow(free))
    }

    /// Takes the programs' time, once: the kernel's accounting costs time itself.
    fn count(&mut self) {
        if self.counting.take().is_some() {
            let ns = |costs: Vec<taillab_probe::ProgramCost>| -> u64 {
                costs.iter().map(|program| program.run_time_ns).sum()
            };
            let events = self.sinks.written().events;
            let ns = self.probe.costs().ok().map(ns).filter(|_| events > 0);
            self.program_ns_per_event = ns.map(|ns| ns as f64 / events as f64);
        }
    }

    /// Detaches the probe, takes the rest of the events, and writes the end of the recording.
    pub fn finish(
        mut self,
        context: &RecordingContext,
        end: End,
    ) -> Result<(Spool, RecordedAmount, End), Failure> {
        // hooks are detached one after the other, so later events belong to incomplete requests
        self.sinks.until = Some(now().saturating_since(self.probe.base()));
        let end = match (self.probe.finish_into(&mut self.sinks), end) {
            (Err(error), End::TimeUp | End::Interrupted) => End::Unwritable(error),
            (_, end) => end,
        };
        let lost = self.probe.lost().map_err(probe_failure)?;
        let written = self.sinks.written();
        let spool = self.sinks.writer.finish(context, lost);
        Ok((spool.map_err(unwritable)?, written, end))
    }
}

/// The failure to begin or end the recording.
pub fn unwritable(error: io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write the recording: {error}; choose a place that can be written with -o"
    ))
}

/// Where the events go.
pub struct Sinks {
    writer: RecordingWriter<Spool>,
    live: Option<Live>,
    /// Nothing later is kept.
    until: Option<Nanos>,
    /// Blanks content before anything takes it.
    redaction: Option<Redaction>,
    /// Replaces the addresses of clients before that.
    pseudonyms: Pseudonyms,
}

impl Sinks {
    /// Begins the recording, and the windows for a screen where there is one.
    pub fn begin(
        spool: Spool,
        base: Monotonic,
        context: &RecordingContext,
        windows: Option<SyncSender<Window>>,
    ) -> io::Result<Self> {
        let framing = context.framing.as_deref().map(str::parse::<Framing>);
        let framing = framing.transpose().map_err(io::Error::other)?;
        Ok(Self {
            redaction: framing.and_then(Redaction::new),
            pseudonyms: Pseudonyms::default(),
            writer: RecordingWriter::new(spool, base, context)?,
            live: windows.map(|out| Live::new(base, out)),
            until: None,
        })
    }

    fn written(&self) -> RecordedAmount {
        RecordedAmount {
            events: self.writer.events(),
            bytes: self.writer.bytes(),
        }
    }
}

impl EventSink for Sinks {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        let discreet = (self.redaction.is_some() || Pseudonyms::have_work(events)).then(|| {
            let mut events = events.to_vec();
            self.pseudonyms.replace(&mut events);
            if let Some(redaction) = &mut self.redaction {
                redaction.redact(cpu, &mut events);
            }
            events
        });
        let events = discreet.as_deref().unwrap_or(events);
        if let Some(until) = self.until {
            let kept = events.iter().filter(|event| event.since_base() <= until);
            return self.writer.take(cpu, &kept.copied().collect::<Vec<_>>());
        }
        self.writer.take(cpu, events)?;
        match &mut self.live {
            Some(live) => live.order.take(cpu, events),
            None => Ok(()),
        }
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.writer.settle(before)?;
        match &mut self.live {
            Some(live) => {
                live.order.settle(before)?;
                live.pass_on();
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Passes events to the screen, a window at a time.
struct Live {
    order: EventOrder,
    window: Vec<Event>,
    /// The most events of a window that are shown, so that memory stays bounded.
    most: usize,
    /// Windows that the screen did not get, or not whole.
    skipped: u64,
    out: SyncSender<Window>,
}

impl Live {
    /// Length of a window.
    const WINDOW: Nanos = Nanos::from_secs(1);

    fn new(base: Monotonic, out: SyncSender<Window>) -> Self {
        Self {
            order: EventOrder::new(base),
            window: Vec::new(),
            most: 4 << 20,
            skipped: 0,
            out,
        }
    }

    fn pass_on(&mut self) {
        while let Some(event) = self.order.next_settled() {
            let full = (self.window.first())
                .is_some_and(|first| event.at.saturating_since(first.at) >= Self::WINDOW);
            if full {
                let is_cut = self.window.len() >= self.most;
                let window = Window {
                    events: std::mem::take(&mut self.window),
                    skipped: self.skipped,
                };
                // a slow screen skips the window, or lacks a part of it; all of it is in the recording
                let is_refused = self.out.try_send(window).is_err();
                self.skipped += u64::from(is_refused || is_cut);
            }
            if self.window.len() < self.most {
                self.window.push(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use taillab_model::EventKind;

    use super::*;

    #[test]
    fn a_window_with_too_many_events_counts_as_skipped() {
        let (out, windows) = sync_channel(8);
        let mut live = Live::new(Monotonic::from_nanos_since_boot(0), out);
        live.most = 2;
        let events = [0, 1, 2, 1_100, 2_200, 3_300].map(|ms| {
            let kind = EventKind::CameOn { tid: 7 };
            PackedEvent::new(Nanos::from_millis(ms), kind)
        });
        live.order.take(0, &events).unwrap();
        live.order.settle(Nanos::from_secs(10)).unwrap();
        live.pass_on();
        let got: Vec<_> = (windows.try_iter())
            .map(|window| (window.events.len(), window.skipped))
            .collect();
        assert_eq!(got, [(2, 0), (1, 1), (1, 1)]);
    }
}
