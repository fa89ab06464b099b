//! The probe: loaded once, attached and detached as often as wanted.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore};
use taillab_model::summary::Hook;
use taillab_model::{LostEvents, MiddleStamps, Recording, ThreadName};

use crate::hooks;
use crate::object::{self, Loaded};
use crate::ring::Rings;
use crate::slices::Slicer;
use crate::store::Store;
use crate::threads::Threads;
use crate::upstreams::Upstreams;
use crate::{ProbeError, ProbeSpec, ProgramCost};

mod drain;

/// The fewest CPUs with a partly filled last chunk for which a reservation leaves room.
const BUSY_CPUS: usize = 8;

/// Rings that a drain looks at even if fewer events are wanted. Looking at one takes about as long as
/// moving an event.
const LOOKS: usize = 64;

/// eBPF programs in the kernel that stamp one server's requests, and what they recorded.
///
/// Dropping it detaches and unloads everything.
pub struct Probe {
    /// Attaches and detaches what is recorded in slices.
    slicer: Option<Slicer>,
    /// One for each other program while attached; dropped before the programs.
    links: Vec<Link>,
    loaded: Loaded,
    rings: Rings,
    threads: Threads,
    upstreams: Upstreams,
    store: Store,
    /// The CPU at which the next drain begins: behind the last one, so that no ring is starved.
    next_cpu: usize,
    /// The watched CPUs, each of which may have a partly filled last chunk.
    watched_cpus: usize,
    /// What had been lost when the recording began.
    lost_before: LostEvents,
}

impl Probe {
    /// Loads the programs into the kernel with the hooks that it allows; nothing
    /// is recorded before [`Probe::attach`].
    ///
    /// # Errors
    /// [`ProbeError`]: what is missing and what to do about it.
    pub fn load(spec: &ProbeSpec) -> Result<Self, ProbeError> {
        Self::load_avoiding(spec, &[])
    }

    /// As [`Probe::load`], but as if the kernel refused these hooks (named as in
    /// [`Probe::hooks`]): to compare hooks with each other, or because one would miss
    /// requests of this server.
    ///
    /// # Errors
    /// [`ProbeError`]: what is missing and what to do about it.
    pub fn load_avoiding(spec: &ProbeSpec, avoided: &[&str]) -> Result<Self, ProbeError> {
        let loaded = object::load(spec, avoided)?;
        let (cpus, slots_per_cpu) = (loaded.spec.cpus, loaded.spec.config.slots);
        let positions = object::map(&loaded.object, "rings")?;
        let slots = object::map(&loaded.object, "slots")?;
        let ring_bytes = cpus as u64 * u64::from(slots_per_cpu) * 16;
        let rings = Rings::map(&positions, &slots, cpus, slots_per_cpu)
            .map_err(ProbeError::out_of_memory("the event rings", ring_bytes))?;
        let names = object::map(&loaded.object, "threads")?;
        let threads = Threads::map(&names)
            .map_err(ProbeError::out_of_memory("the names of threads", 2 << 20))?;
        let upstreams = object::map(&loaded.object, "upstreams")?;
        let upstreams = Upstreams::map(&upstreams).map_err(ProbeError::out_of_memory(
            "the addresses of other servers",
            8 << 10,
        ))?;
        Ok(Self {
            slicer: None,
            links: Vec::new(),
            threads,
            upstreams,
            store: Store::new(rings.cpus()),
            rings,
            next_cpu: 0,
            watched_cpus: spec.server_cpus.len() + spec.generator_cpus.len(),
            lost_before: LostEvents::default(),
            loaded,
        })
    }

    /// Which hook gives each stamp, and what precision it lacks.
    pub fn hooks(&self) -> Vec<Hook> {
        let spec = &self.loaded.spec;
        let mut hooks = hooks::describe(&spec.stamps, &self.loaded.choice);
        if spec.config.payload_bytes > 0 {
            hooks.push(hooks::of_payload(spec.config.payload_copied != 0));
        }
        hooks
    }

    /// Every thread that ran on a CPU of the server or of the generator while the probe was
    /// attached; the server's are marked as such.
    ///
    /// Of threads whose ids are equal modulo 65,536, only the last one is known.
    pub fn threads(&self) -> Vec<ThreadName> {
        self.threads.names()
    }

    /// The servers that the recorded one asked while the probe was attached, with their numbers in
    /// [`EventKind::UpstreamAnswered`](taillab_model::EventKind::UpstreamAnswered). Only servers over TCP have any, the
    /// first 256 that they ask over TCP.
    pub fn upstreams(&self) -> Vec<(u16, SocketAddr)> {
        self.upstreams.asked()
    }

    /// Allocates and touches memory for this many more events, so that [`Probe::drain`] neither allocates nor causes
    /// page faults; at most half of the memory that is available. What comes beyond needs [`Probe::relieve`].
    ///
    /// # Errors
    /// [`ProbeError::OutOfMemory`].
    pub fn reserve(&mut self, expected_events: u64) -> Result<(), ProbeError> {
        let busy_cpus = self.rings.cpus().min(self.watched_cpus.max(BUSY_CPUS));
        self.store
            .reserve(expected_events, busy_cpus)
            .map_err(ProbeError::out_of_memory(
                "the recording",
                expected_events.saturating_mul(16),
            ))
    }

    /// Starts recording, in slices if the specification says so; does nothing while attached.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`]; then nothing is attached.
    pub fn attach(&mut self) -> Result<(), ProbeError> {
        let Some(one_in) = self.slices() else {
            return self.attach_all();
        };
        if !self.is_attached() {
            self.attach_ends()?;
            let always = self.always_attached();
            let slicer = Slicer::start(&self.loaded.object, one_in, |name| always.contains(&name));
            match slicer {
                Ok(slicer) => self.slicer = Some(slicer),
                Err(error) => {
                    self.detach();
                    return Err(ProbeError::kernel("starting its slices")(error));
                }
            }
        }
        Ok(())
    }

    /// N, if everything is recorded only in slices, which take 1/N of the time.
    pub fn slices(&self) -> Option<u32> {
        let when = self.loaded.spec.when;
        match when {
            MiddleStamps::Sampled(_) => when.one_in(),
            MiddleStamps::All | MiddleStamps::Ends => None,
        }
    }

    /// Attaches everything, as it is within a slice; does nothing while attached.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`]; then nothing is attached.
    pub fn attach_all(&mut self) -> Result<(), ProbeError> {
        self.attach_those(|_| true)
    }

    /// Attaches what is attached between slices; does nothing while attached.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`]; then nothing is attached.
    pub fn attach_ends(&mut self) -> Result<(), ProbeError> {
        let always = self.always_attached();
        self.attach_those(|name| always.contains(&name))
    }

    fn attach_those(&mut self, wanted: impl Fn(&str) -> bool) -> Result<(), ProbeError> {
        if !self.is_attached() {
            self.rings.clear_scratch();
            self.forget_waits()?;
            self.links = object::attach(&self.loaded.object, wanted)
                .map_err(ProbeError::kernel("attaching its programs again"))?;
        }
        Ok(())
    }

    /// Forgets waits for locks that had begun when the programs were detached: they have ended unseen.
    fn forget_waits(&self) -> Result<(), ProbeError> {
        let waits = object::map(&self.loaded.object, "waits")?;
        let begun: Vec<_> = waits.keys().collect();
        for wait in begun {
            // it is there: nothing is attached that would remove it
            let _ = waits.delete(&wait);
        }
        Ok(())
    }

    fn always_attached(&self) -> Vec<&'static str> {
        hooks::always_attached(&self.loaded.spec.stamps, &self.loaded.choice)
    }

    /// Stops recording: on return no program of the probe is attached. Recorded events stay.
    pub fn detach(&mut self) {
        self.slicer = None;
        self.links.clear();
    }

    /// Whether it is recording.
    pub fn is_attached(&self) -> bool {
        !self.links.is_empty()
    }

    /// Moves up to `max_events` events from the rings to memory, where they wait for [`Probe::finish_into`], and
    /// returns how many it moved.
    ///
    /// It leaves a ring with less than one batch alone, so that each cache line with events
    /// moves to this CPU only once. It enters the kernel only when more events
    /// come than were reserved. Where there are more CPUs than events are wanted, and more than 64, it
    /// looks only at some of the rings, and the next call goes on behind them.
    pub fn drain(&mut self, max_events: usize) -> usize {
        let cpus = self.rings.cpus();
        let mut moved = 0;
        for _ in 0..cpus.min(max_events.max(LOOKS)) {
            let cpu = self.next_cpu;
            self.next_cpu = (cpu + 1) % cpus;
            while moved < max_events && self.rings.has_batch(cpu) {
                let taken = self.move_from(cpu, max_events - moved);
                if taken == 0 {
                    break;
                }
                moved += taken;
            }
            if moved >= max_events {
                break;
            }
        }
        moved
    }

    /// Moves up to `max` events of one CPU, or fewer if its chunk becomes full.
    #[inline]
    fn move_from(&mut self, cpu: usize, max: usize) -> usize {
        let Some(chunk) = self.store.appender(cpu) else {
            return 0;
        };
        let max = max.min(chunk.room());
        self.rings.take(cpu, max as u64, |event| chunk.push(event)) as usize
    }

    /// Discards the recorded events and the counts of lost ones, and keeps the memory.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn discard(&mut self) -> Result<(), ProbeError> {
        self.drain_all();
        self.store.clear();
        self.rings.renumber();
        self.lost_before = self.lost_since_load()?;
        Ok(())
    }

    /// How often and how long each program ran; both are zero unless the kernel's BPF
    /// statistics are on (`BPF_ENABLE_STATS`).
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn costs(&self) -> Result<Vec<ProgramCost>, ProbeError> {
        self.infos(|program, info| ProgramCost {
            program: program.name().to_string_lossy().into_owned(),
            runs: info.run_cnt,
            run_time_ns: info.run_time_ns,
        })
    }

    /// Stops recording and returns the recording, unpacked in memory: for a short one.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn finish(mut self) -> Result<Recording, ProbeError> {
        self.take_recording()
    }

    /// As [`Probe::finish`], for a probe that will record again; its next recording starts empty.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when the kernel's counters cannot be read.
    pub fn take_recording(&mut self) -> Result<Recording, ProbeError> {
        let mut recording = Recording {
            base: self.base(),
            ..Recording::default()
        };
        // memory takes everything
        let _ = self.finish_into(&mut recording);
        recording.lost = self.take_lost()?;
        Ok(recording)
    }

    /// Moves everything from the rings to memory, and waits for programs that are writing an event right now.
    fn drain_all(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(100);
        for cpu in 0..self.rings.cpus() {
            while !self.rings.is_empty(cpu) {
                if self.move_from(cpu, usize::MAX) == 0 {
                    if Instant::now() > deadline {
                        break;
                    }
                    std::thread::yield_now();
                }
            }
        }
    }

    fn lost_since_load(&self) -> Result<LostEvents, ProbeError> {
        let recursion = self.infos(|program, info| {
            let nothing_lost = program.name().to_str().is_some_and(hooks::loses_nothing);
            match nothing_lost {
                true => 0,
                false => info.recursion_misses,
            }
        })?;
        Ok(LostEvents {
            recursion: recursion.iter().sum(),
            ..self.rings.losses()
        })
    }

    fn infos<T>(
        &self,
        of: impl Fn(&libbpf_rs::Program<'_>, libbpf_rs::libbpf_sys::bpf_prog_info) -> T,
    ) -> Result<Vec<T>, ProbeError> {
        let programs = self
            .loaded
            .object
            .progs()
            .filter(|program| program.autoload());
        programs
            .map(|program| object::program_info(&program).map(|info| of(&program, info)))
            .collect::<Result<_, _>>()
            .map_err(|source| ProbeError::Kernel {
                doing: "reading its programs' counters",
                source,
            })
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("attached", &self.is_attached())
            .field("hooks", &self.hooks())
            .finish_non_exhaustive()
    }
}
