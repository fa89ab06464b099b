//! A result's facts in a line each.

use taillab_model::noise::NoiseRow;
use taillab_report::explained::share_interval;
use taillab_report::figures::percent;

use crate::result::NoiseResult;

/// A row by its step, its loop and its CPU.
pub(crate) fn name(row: &NoiseRow) -> String {
    let what = match row.step.as_str() {
        "" => row.kind.label().to_owned(),
        step => step.to_owned(),
    };
    match row.cpu {
        Some(cpu) => format!("{what}, CPU {cpu}"),
        None => what,
    }
}

/// How much of the stolen time is attributed to this kernel, and how much to what is below it.
pub(crate) fn attributed(row: &NoiseRow) -> Option<String> {
    let here = format!(
        "{} attributed to this kernel",
        percent(row.attributed_share?, 1)
    );
    Some(match row.below_share {
        Some(share) => format!(
            "{here}, {} {}shown to come from below",
            percent(share.value, 1),
            // when it is all that remains, its interval says nothing more
            match share_interval(share) {
                interval if interval.is_empty() || share.lo == share.hi => String::new(),
                interval => format!("({interval}) "),
            }
        ),
        None => here,
    })
}

/// What the clock is, in one line.
pub(crate) fn clock(result: &NoiseResult) -> String {
    let clock = &result.clock;
    format!(
        "TSC at {:.4} GHz, a step of {} ({:.2} ns){}; the kernel uses {}",
        clock.frequency_hz / 1e9,
        taillab_report::figures::counted(clock.quantum_ticks, "tick", "ticks"),
        clock.quantum_fractional_ns,
        if clock.invariant { ", invariant" } else { "" },
        clock.clocksource
    )
}

/// What was held, in one line.
pub(crate) fn held(result: &NoiseResult) -> String {
    match result.held.as_slice() {
        [] => "nothing: no setting was changed, no power state held".to_owned(),
        held => held.join("; "),
    }
}
