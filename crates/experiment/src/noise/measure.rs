//! One phase: loops that run at the same time, and the thread that collects their gaps.

use std::thread;
use std::time::{Duration, Instant};

use taillab_analysis::gaps::{GapAnalysis, GapOptions};
use taillab_console::exit::Failure;
use taillab_console::fail::{host, probe as probe_failure};
use taillab_console::progress::{Phase as Bar, Progress};
use taillab_host::environment::Virtualization;
use taillab_host::noise::tsc::Anchor;
use taillab_host::noise::{self, Loop, LoopEnd, LoopSpec, RunningLoops};
use taillab_host::{CpuSet, Interrupt, Roots, cpus};
use taillab_model::noise::{LoopKind, NoiseRow, TscClock};
use taillab_model::{Monotonic, Nanos};
use taillab_probe::{KernelLoop, ProbeError};

use super::kernel;
use super::plan::Phase;
use super::rows::{self, LoopReading, MeasuredLoop};
use super::take::GapRecording;
use super::watch::Watch;
use crate::rings::cpu_numbers;

/// Between two looks at the loops' gaps. Each look is itself a disturbance.
const PERIOD: Duration = Duration::from_millis(250);

/// Width of a window of the account over time, at first.
const WINDOW: Nanos = Nanos::from_millis(100);

/// What all phases share.
pub struct Measuring<'a> {
    /// The CPUs that we may use.
    usable: &'a CpuSet,
    clock: &'a TscClock,
    interrupt: &'a Interrupt,
    quiet: bool,
    causes: bool,
    virtual_machine: bool,
    /// Remarks for the result.
    pub notes: Vec<String>,
}

impl<'a> Measuring<'a> {
    /// Measures on `usable` CPUs, and looks for `causes` if asked to.
    pub fn new(
        usable: &'a CpuSet,
        clock: &'a TscClock,
        interrupt: &'a Interrupt,
        quiet: bool,
        causes: bool,
    ) -> Self {
        Self {
            usable,
            clock,
            interrupt,
            quiet,
            causes,
            virtual_machine: Virtualization::read(&Roots::default())
                .hypervisor()
                .is_some(),
            notes: Vec::new(),
        }
    }

    /// Whether Ctrl-C was pressed.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_raised()
    }

    /// Runs the loops of a phase and returns a row for each of them.
    pub fn phase(&mut self, phase: &Phase) -> Result<Vec<NoiseRow>, Failure> {
        let numbers = phase.cpus.as_ref().map(cpu_numbers).unwrap_or_default();
        let watch = match self.causes && !numbers.is_empty() {
            true => self.watch(&numbers),
            false => None,
        };
        match phase.kind {
            LoopKind::User => self.in_user_space(phase, watch),
            LoopKind::Kernel | LoopKind::Masked => self.in_kernel(phase, &numbers, watch),
        }
    }

    /// Starts the probe. Without it gaps have no causes; a note says why.
    fn watch(&mut self, cpus: &[u16]) -> Option<Watch> {
        match Watch::begin(cpus) {
            Ok(watch) => Some(watch),
            Err(error) => {
                let note = match error {
                    ProbeError::NoPrivilege => {
                        "gaps have no causes without privilege: run as root, or with CAP_BPF and \
                         CAP_PERFMON"
                            .to_owned()
                    }
                    error => format!("gaps have no causes: {error}"),
                };
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                None
            }
        }
    }

    fn analysis(&self, began: Monotonic, loops: Vec<(u16, u32)>) -> GapAnalysis {
        let options = GapOptions {
            virtual_machine: self.virtual_machine,
            window: WINDOW,
        };
        GapAnalysis::new(options, began, loops)
    }

    fn in_user_space(
        &mut self,
        phase: &Phase,
        watch: Option<Watch>,
    ) -> Result<Vec<NoiseRow>, Failure> {
        let frequency_hz = self.clock.frequency_hz;
        let spec = |cpu| LoopSpec {
            cpu,
            policy: phase.policy,
            style: phase.style,
            threshold_ticks: (phase.threshold.as_secs_f64() * frequency_hz) as u64,
            frequency_hz,
            length: Duration::from_nanos(phase.length.get()),
        };
        let specs = match &phase.cpus {
            Some(cpus) => cpus.iter().map(|cpu| spec(Some(cpu))).collect(),
            None => vec![spec(None)],
        };
        let running = noise::start(specs).map_err(host)?;
        let _aside = CpuDetour::step(phase.cpus.as_ref(), self.usable);
        let first = Anchor::take();
        let loops = running.loops.iter().map(place).collect();
        let take = GapRecording::new(self.analysis(first.at, loops), watch, first);
        running.begin();
        let began = Instant::now();
        let interrupt = self.interrupt;
        let (ended, take) = Progress::new(self.quiet).during(
            &[bar(phase)],
            || began.elapsed().as_millis() as u64,
            || collect(running, take, interrupt),
        );
        let (first, last) = take.anchors;
        let frequency_hz = first.frequency_to(last).unwrap_or(frequency_hz);
        let ns = |ticks: u64| Nanos::new((ticks as f64 * 1e9 / frequency_hz) as u64);
        let found = ended.into_iter().map(|(spec, end)| {
            let watched = (end.span.1 - end.span.0).saturating_sub(end.unwatched_ticks);
            let found = LoopReading {
                reads: end.counts.in_nanos(frequency_hz),
                watched: ns(watched),
                migrations: end.migrations,
                gaps: end.gaps,
                gaps_not_kept: end.gaps_not_kept,
                stolen: ns(end.stolen_ticks),
            };
            (spec.cpu.map(|cpu| cpu as u16), found)
        });
        Ok(self.rows(phase, take, found.collect()))
    }

    fn in_kernel(
        &mut self,
        phase: &Phase,
        numbers: &[u16],
        watch: Option<Watch>,
    ) -> Result<Vec<NoiseRow>, Failure> {
        // refused here rather than on every CPU
        KernelLoop::load(phase.kind == LoopKind::Masked).map_err(probe_failure)?;
        let _aside = CpuDetour::step(phase.cpus.as_ref(), self.usable);
        let began = Instant::now();
        let first = Anchor::take();
        let mut take = GapRecording::new(self.analysis(first.at, Vec::new()), watch, first);
        let interrupt = self.interrupt;
        let (ends, take) = Progress::new(self.quiet).during(
            &[bar(phase)],
            || began.elapsed().as_millis() as u64,
            || kernel::run(numbers, phase, interrupt, &mut take).map(|ends| (ends, take)),
        )?;
        let found = ends.into_iter().map(|(cpu, found)| (Some(cpu), found));
        Ok(self.rows(phase, take, found.collect()))
    }

    /// The rows of loops that have ended. A loop that is not pinned has no CPU, and no causes.
    fn rows(
        &mut self,
        phase: &Phase,
        mut take: GapRecording,
        ended: Vec<(Option<u16>, LoopReading)>,
    ) -> Vec<NoiseRow> {
        let names = take.finish(&mut self.notes);
        let began = take.anchors.0.at;
        let mut sums = take.analysis.finish();
        let busy_cpus = ended.len() as u32;
        let row = |(cpu, found): (Option<u16>, LoopReading)| {
            let measured = MeasuredLoop {
                cpu,
                busy_cpus,
                began,
                found,
                sum: sums.remove(&cpu.unwrap_or(0)),
                names: names.as_ref(),
            };
            rows::row(phase, measured)
        };
        ended.into_iter().map(row).collect()
    }
}

fn bar(phase: &Phase) -> Bar {
    Bar {
        name: phase.kind.label(),
        total: phase.length.get() / 1_000_000,
    }
}

/// A loop's CPU as events number it. For a loop that is not pinned any number will do: it has no causes.
fn number(spec: &LoopSpec) -> u16 {
    spec.cpu.map_or(0, |cpu| cpu as u16)
}

fn place(one: &Loop) -> (u16, u32) {
    (number(&one.spec), one.tid)
}

/// Takes the loops' gaps until all of them have ended.
fn collect(
    running: RunningLoops,
    mut take: GapRecording,
    interrupt: &Interrupt,
) -> (Vec<(LoopSpec, LoopEnd)>, GapRecording) {
    while !running.loops.iter().all(Loop::is_finished) {
        thread::sleep(PERIOD);
        if interrupt.is_raised() {
            running.stop();
        }
        take.raw_gaps(
            running
                .loops
                .iter()
                .map(|one| (number(&one.spec), one.gaps().collect())),
        );
    }
    let mut ended = Vec::new();
    let mut left = Vec::new();
    for one in running.loops {
        let spec = one.spec.clone();
        let (end, gaps) = one.join();
        left.push((number(&spec), gaps));
        ended.push((spec, end));
    }
    take.raw_gaps(left.into_iter());
    (ended, take)
}

/// Keeps the calling thread off the measured CPUs, if there are others, until this is dropped.
struct CpuDetour<'a>(Option<&'a CpuSet>);

impl<'a> CpuDetour<'a> {
    fn step(measured: Option<&CpuSet>, usable: &'a CpuSet) -> Self {
        let others = measured.map(|measured| usable.difference(measured));
        let others = others.filter(|others| !others.is_empty());
        let moved = others.is_some_and(|others| cpus::pin_current_thread(&others).is_ok());
        Self(moved.then_some(usable))
    }
}

impl Drop for CpuDetour<'_> {
    fn drop(&mut self) {
        if let Some(usable) = self.0 {
            // it could run there before, so this cannot fail
            let _ = cpus::pin_current_thread(usable);
        }
    }
}
