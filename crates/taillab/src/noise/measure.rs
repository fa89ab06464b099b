//! One phase: loops that run at the same time, and whoever takes their gaps.

use std::thread;
use std::time::{Duration, Instant};

use taillab_analysis::gaps::{GapAnalysis, GapOptions};
use taillab_host::environment::Virtualization;
use taillab_host::noise::tsc::Anchor;
use taillab_host::noise::{self, Loop, LoopEnd, LoopSpec, Running};
use taillab_host::{CpuSet, Interrupt, Roots, cpus};
use taillab_model::noise::{LoopKind, NoiseRow, TscClock};
use taillab_model::{Monotonic, Nanos};
use taillab_probe::{KernelLoop, ProbeError};

use super::kernel::{self, KernelSpec};
use super::plan::{Phase, Plan};
use super::rows::{self, Measured};
use super::take::Take;
use super::watch::Watch;
use crate::exit::Failure;
use crate::fail::{host, probe as probe_failure};
use crate::progress::{Phase as Bar, Progress};

/// Between two looks at the loops' gaps. Each look is a disturbance of its own.
const PERIOD: Duration = Duration::from_millis(250);

/// Width of a window of the account over time, at first.
const WINDOW: Nanos = Nanos::from_millis(100);

/// What all phases share.
pub struct Measuring<'a> {
    plan: &'a Plan,
    clock: &'a TscClock,
    interrupt: &'a Interrupt,
    quiet: bool,
    causes: bool,
    virtual_machine: bool,
    /// What was found out on the way.
    pub notes: Vec<String>,
}

impl<'a> Measuring<'a> {
    pub fn new(
        plan: &'a Plan,
        clock: &'a TscClock,
        interrupt: &'a Interrupt,
        quiet: bool,
        causes: bool,
    ) -> Self {
        Self {
            plan,
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

    /// Whether somebody wants it to end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_raised()
    }

    /// Runs it; a row for each of its CPUs.
    pub fn phase(&mut self, phase: &Phase) -> Result<Vec<NoiseRow>, Failure> {
        let numbers: Vec<u16> = match &phase.cpus {
            Some(cpus) => cpus.iter().map(|cpu| cpu as u16).collect(),
            None => Vec::new(),
        };
        let watch = match self.causes && !numbers.is_empty() {
            true => self.watch(&numbers),
            false => None,
        };
        match phase.kind {
            LoopKind::User => self.in_user_space(phase, watch),
            LoopKind::Kernel | LoopKind::Masked => self.in_kernel(phase, &numbers, watch),
        }
    }

    /// The probe; without it there are no causes, and the result says why.
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
        let _aside = Aside::step(&self.plan.beside, &self.plan.usable);
        let first = Anchor::take();
        let loops = running.loops.iter().map(place).collect();
        let take = Take::new(self.analysis(first.at, loops), watch, first);
        running.begin();
        let began = Instant::now();
        let interrupt = self.interrupt;
        let (ended, mut take) = Progress::new(self.quiet).during(
            &[bar(phase)],
            || began.elapsed().as_millis() as u64,
            || collect(running, take, interrupt),
        );
        let context = take.finish(&mut self.notes);
        let busy_cpus = ended.len() as u32;
        let mut sums = take.analysis.finish();
        let (first, last) = take.anchors;
        let frequency_hz = first.frequency_to(last).unwrap_or(frequency_hz);
        let ns = |ticks: u64| Nanos::new((ticks as f64 * 1e9 / frequency_hz) as u64);
        let rows = ended.into_iter().map(|(spec, end)| {
            let watched = (end.span.1 - end.span.0).saturating_sub(end.unwatched_ticks);
            let measured = Measured {
                cpu: spec.cpu.map(|cpu| cpu as u16),
                busy_cpus,
                reads: end.counts.in_nanos(frequency_hz),
                began: first.at,
                watched: ns(watched),
                migrations: end.migrations,
                gaps: end.gaps,
                gaps_not_kept: end.gaps_not_kept,
                stolen: ns(end.stolen_ticks),
                sum: sums.remove(&number(&spec)),
                names: context.as_ref(),
            };
            rows::row(phase, measured)
        });
        Ok(rows.collect())
    }

    fn in_kernel(
        &mut self,
        phase: &Phase,
        numbers: &[u16],
        watch: Option<Watch>,
    ) -> Result<Vec<NoiseRow>, Failure> {
        let masked = phase.kind == LoopKind::Masked;
        // refused here rather than on every CPU
        KernelLoop::load(masked).map_err(probe_failure)?;
        let spec = KernelSpec {
            masked,
            length: Duration::from_nanos(phase.length.get()),
            threshold: phase.threshold,
            interrupt: self.interrupt,
        };
        let began = Instant::now();
        let first = Anchor::take();
        let mut take = Take::new(self.analysis(first.at, Vec::new()), watch, first);
        let (ends, mut take) = Progress::new(self.quiet).during(
            &[bar(phase)],
            || began.elapsed().as_millis() as u64,
            || kernel::run(numbers, spec, &mut take).map(|ends| (ends, take)),
        )?;
        let context = take.finish(&mut self.notes);
        let mut sums = take.analysis.finish();
        let busy_cpus = ends.len() as u32;
        let rows = ends.into_iter().map(|(cpu, end)| {
            let measured = Measured {
                cpu: Some(cpu),
                busy_cpus,
                began: first.at,
                watched: end.watched,
                migrations: 0,
                gaps: end.gaps,
                gaps_not_kept: end.gaps_not_kept,
                stolen: end.stolen,
                reads: end.reads,
                sum: sums.remove(&cpu),
                names: context.as_ref(),
            };
            rows::row(phase, measured)
        });
        Ok(rows.collect())
    }
}

fn bar(phase: &Phase) -> Bar {
    Bar {
        name: phase.kind.label(),
        total: phase.length.get() / 1_000_000,
    }
}

/// A loop's CPU as events number it; one that is not pinned has no causes, and any will do.
fn number(spec: &LoopSpec) -> u16 {
    spec.cpu.map_or(0, |cpu| cpu as u16)
}

fn place(one: &Loop) -> (u16, u32) {
    (number(&one.spec), one.tid)
}

/// Takes the loops' gaps until all of them have ended.
fn collect(
    running: Running,
    mut take: Take,
    interrupt: &Interrupt,
) -> (Vec<(LoopSpec, LoopEnd)>, Take) {
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

/// The calling thread keeps away from the measured CPUs, where there are others.
struct Aside<'a>(Option<&'a CpuSet>);

impl<'a> Aside<'a> {
    fn step(beside: &CpuSet, usable: &'a CpuSet) -> Self {
        let moved = !beside.is_empty() && cpus::pin_current_thread(beside).is_ok();
        Self(moved.then_some(usable))
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if let Some(usable) = self.0 {
            // it was there before
            let _ = cpus::pin_current_thread(usable);
        }
    }
}
