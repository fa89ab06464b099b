//! How much of a loop's lost time comes from below this kernel, estimated from a loop on the same CPU with
//! interrupts off.
//!
//! Time that nothing in this kernel took went either to the hypervisor (firmware, hardware) or to
//! something that the probe missed. The loop with interrupts off separates the two: nothing of this kernel
//! runs there, so all of its loss comes from below, and every other loop loses that much too.

use taillab_model::Nanos;
use taillab_model::explanation::Share;
use taillab_model::interval::half_width_of_mean;
use taillab_model::noise::{LoopKind, NoiseRow};

/// Fewer windows support no interval.
const LEAST_WINDOWS: usize = 5;

/// Fills in the share for every loop that has such a loop on its CPU.
pub fn mark(rows: &mut [NoiseRow]) {
    let found: Vec<Option<Share>> = rows.iter().map(|row| of_row(row, rows)).collect();
    for (row, share) in rows.iter_mut().zip(found) {
        row.below_share = share;
    }
}

fn of_row(row: &NoiseRow, rows: &[NoiseRow]) -> Option<Share> {
    let masked = rows.iter().find(|other| {
        other.kind == LoopKind::Masked && other.cpu == row.cpu && other.step == row.step
    })?;
    let causes = row
        .causes
        .as_ref()
        .filter(|_| row.kind != LoopKind::Masked)?;
    let sum = |wanted: bool| -> Nanos {
        let those = causes
            .iter()
            .filter(|cause| cause.cause.is_attributed() == wanted);
        those.map(|cause| cause.stolen_ns).sum()
    };
    let (here, rest) = (sum(true).as_secs_f64(), sum(false).as_secs_f64());
    // while this kernel ran something else, the loop could not lose time to what is below
    let ran = (row.watched_ns.as_secs_f64() - here).max(0.0);
    let all = here + rest;
    let of_all = |lost: f64| (lost.clamp(0.0, 1.0) * ran).min(rest) / all;
    let lost = share_lost(masked);
    (all > 0.0).then(|| Share {
        value: of_all(lost.value),
        lo: lost.lo.map(of_all),
        hi: lost.hi.map(of_all),
    })
}

/// The share of its time that a loop lost, with the interval of its windows' mean.
pub fn share_lost(row: &NoiseRow) -> Share {
    let value = row.stolen_share;
    let none = Share {
        value,
        lo: None,
        hi: None,
    };
    let window = row.over_time.window_ns.as_secs_f64();
    // the last one has not ended
    let windows = row.over_time.stolen_ns.len().saturating_sub(1);
    if windows < LEAST_WINDOWS || window <= 0.0 {
        return none;
    }
    let lost = row.over_time.stolen_ns.iter().take(windows);
    let shares: Vec<f64> = lost.map(|ns| ns.as_secs_f64() / window).collect();
    let (_, half) = half_width_of_mean(&shares);
    Share {
        value,
        lo: Some((value - half).max(0.0)),
        hi: Some(value + half),
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::Histogram;
    use taillab_model::noise::{NoiseCause, NoiseKind};

    use super::super::compare::tests::row;
    use super::*;

    fn cause(kind: NoiseKind, ms: u64) -> NoiseCause {
        NoiseCause {
            cause: kind,
            culprit: None,
            own: false,
            gaps: 1,
            length: Histogram::default().distribution(|_| 1.0),
            stolen_ns: Nanos::from_millis(ms),
            share: 0.0,
        }
    }

    /// A second in which the tick took 20 ms and nothing in this kernel took another 10 ms; `masked_ms` is
    /// the loss in each window of 100 ms with interrupts off.
    fn below(masked_ms: [u64; 6]) -> Option<Share> {
        let user = NoiseRow {
            causes: Some(vec![
                cause(NoiseKind::Tick, 20),
                cause(NoiseKind::Hypervisor, 10),
            ]),
            ..row(LoopKind::User, "", 1, 0.0, 0.03)
        };
        let mut masked = row(LoopKind::Masked, "", 1, 0.0, 0.0);
        masked.stolen_share = masked_ms.iter().sum::<u64>() as f64 / 600.0;
        masked.over_time.stolen_ns = masked_ms.map(Nanos::from_millis).to_vec();
        masked.over_time.stolen_ns.push(Nanos::ZERO);
        let mut rows = [user, masked];
        mark(&mut rows);
        assert_eq!(rows[1].below_share, None);
        rows[0].below_share
    }

    #[test]
    fn what_the_loop_without_interrupts_loses_comes_from_below() {
        // as much as nothing here took, and more: no more than that is claimed
        let all = below([3; 6]).unwrap();
        assert!((all.value - 1.0 / 3.0).abs() < 1e-9, "{all:?}");
        // half of it is not proven
        let half = below([0, 1, 0, 1, 1, 0]).unwrap();
        assert!((half.value - 0.005 * 0.98 / 0.03).abs() < 1e-9, "{half:?}");
        let (lo, hi) = (half.lo.unwrap(), half.hi.unwrap());
        assert!(lo < half.value && half.value < hi, "{half:?}");
        assert_eq!(below([0; 6]).unwrap().hi, Some(0.0));
    }

    #[test]
    fn without_such_a_loop_nothing_is_said() {
        let user = row(LoopKind::User, "", 1, 0.0, 0.1);
        let mut rows = [user.clone(), user];
        mark(&mut rows);
        assert!(rows.iter().all(|row| row.below_share.is_none()));
    }
}
