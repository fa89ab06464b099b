//! Reading the clock: in user space, in the kernel, and in a virtual machine.

use taillab_experiment::noise;
use taillab_host::environment::Virtualization;
use taillab_model::noise::LoopKind;

use super::bench::Bench;
use super::paper;
use super::row::{Component, Row};
use crate::result::Standing;

/// The paper's four rows.
pub fn all(bench: &Bench<'_>) -> Vec<Row> {
    bench.messages.step("reading the clock");
    let hypervisor = Virtualization::read(bench.roots).hypervisor();
    let row = |component, standing, how, paper| {
        Component::new(component, standing, how, paper)
            .with("cpu", bench.here)
            .with("policy", "other")
            .with("length", bench.length)
    };
    let user = row(
        "TSC, user space",
        Standing::Measured,
        "two serialised reads (rdtscp, lfence), one thread pinned",
        Some(paper::TSC_USER),
    );
    let virtual_machine = row(
        "TSC, VM user space",
        Standing::Measured,
        "the loop of user space, in this virtual machine",
        Some(paper::TSC_VM),
    );
    let (user, virtual_machine) = match &hypervisor {
        Some(name) => (
            user.unavailable(format_args!(
                "this kernel runs in a virtual machine ({name}): its loop is the row “TSC, VM user \
                 space”"
            )),
            measured(bench, virtual_machine, LoopKind::User),
        ),
        None => (
            measured(bench, user, LoopKind::User),
            virtual_machine.unavailable("no virtual machine here: run `taillab budget` in one"),
        ),
    };
    let kernel = row(
        "TSC, kernel",
        Standing::Substituted,
        "an eBPF loop instead of a kernel module; it reads the kernel’s clock, which is the counter \
         and a multiplication",
        Some(paper::TSC_KERNEL),
    );
    let early = row(
        "TSC, kernel early boot",
        Standing::Substituted,
        "the eBPF loop with the CPU’s interrupts off, instead of before they are first enabled",
        Some(paper::TSC_EARLY_BOOT),
    );
    vec![
        user,
        measured(bench, kernel, LoopKind::Kernel),
        measured(bench, early, LoopKind::Masked),
        virtual_machine,
    ]
}

fn measured(bench: &Bench<'_>, of: Component, kind: LoopKind) -> Row {
    match noise::plain(kind, bench.here, bench.length, bench.interrupt) {
        Ok(noise) => of.of_loop(noise),
        Err(failure) => of.unavailable(failure),
    }
}
