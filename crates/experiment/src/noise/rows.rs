//! A loop's figures as a row of the result.

use taillab_analysis::gaps::{CpuSum, GapCause, LongestGap};
use taillab_analysis::statistics::ccdf_of_ranks;
use taillab_model::noise::{Above, LongGap, NoiseCause, NoiseKind, NoiseRow, OverTime};
use taillab_model::{Histogram, Monotonic, Nanos, RecordingContext};

use super::plan::Phase;

/// What a loop found on one CPU.
#[derive(Default)]
pub struct LoopReading {
    pub reads: Histogram,
    pub watched: Nanos,
    pub migrations: u64,
    pub gaps: u64,
    pub gaps_not_kept: u64,
    pub stolen: Nanos,
}

/// The same with where and when, and with the causes of the gaps.
pub struct MeasuredLoop<'a> {
    pub cpu: Option<u16>,
    pub busy_cpus: u32,
    pub began: Monotonic,
    pub found: LoopReading,
    pub sum: Option<CpuSum>,
    /// Names, where there are causes.
    pub names: Option<&'a RecordingContext>,
}

/// The row of a loop.
pub fn row(phase: &Phase, measured: MeasuredLoop<'_>) -> NoiseRow {
    let real_time = phase.policy.is_real_time();
    let found = &measured.found;
    let seconds = found.watched.as_secs_f64().max(1e-9);
    let ranked = found.reads.ranked();
    let above = |us: u64| {
        let counts = ranked.counts().into_iter();
        let longer = counts.filter(|(length, _)| *length > Nanos::from_micros(us));
        longer.map(|(_, times)| times).sum::<u64>() as f64 / seconds
    };
    let at = |rank: usize| {
        ranked
            .at(rank as u64)
            .map_or(Nanos::ZERO, |cell| cell.middle)
    };
    let points = ccdf_of_ranks(found.reads.count() as usize, 0, at);
    let causes = (measured.names.zip(measured.sum.as_ref()))
        .map(|(names, sum)| causes(sum, names, real_time));
    NoiseRow {
        step: phase.step.clone(),
        kind: phase.kind,
        reads_clock: phase.style,
        cpu: measured.cpu,
        busy_cpus: measured.busy_cpus,
        policy: phase.policy.to_string(),
        threshold_ns: phase.threshold,
        began_ns: measured.began,
        watched_ns: found.watched,
        migrations: found.migrations,
        // there are millions of reads, so correlation within a gap hardly matters
        reads: found.reads.distribution(|_| 1.0),
        ccdf: points
            .into_iter()
            .map(|(ns, share)| (ns.get(), share))
            .collect(),
        above: Above {
            us_1_per_s: above(1),
            us_10_per_s: above(10),
            us_100_per_s: above(100),
        },
        gaps: found.gaps,
        stolen_ns: found.stolen,
        stolen_share: found.stolen.as_secs_f64() / seconds,
        gaps_not_kept: found.gaps_not_kept,
        attributed_share: causes.as_deref().and_then(attributed),
        below_share: None,
        causes,
        longest: (measured.sum.as_ref())
            .map(|sum| longest(sum, measured.names, real_time))
            .unwrap_or_default(),
        over_time: measured.sum.as_ref().map_or(
            OverTime {
                window_ns: Nanos::ZERO,
                stolen_ns: Vec::new(),
                spells: Vec::new(),
            },
            CpuSum::over_time,
        ),
    }
}

fn attributed(causes: &[NoiseCause]) -> Option<f64> {
    let sum = |wanted: &dyn Fn(NoiseKind) -> bool| -> u64 {
        let those = causes.iter().filter(|cause| wanted(cause.cause));
        those.map(|cause| cause.stolen_ns.get()).sum()
    };
    let all = sum(&|_| true);
    (all > 0).then(|| sum(&NoiseKind::is_attributed) as f64 / all as f64)
}

fn causes(sum: &CpuSum, names: &RecordingContext, real_time: bool) -> Vec<NoiseCause> {
    let own = std::process::id();
    let all = sum.stolen.as_secs_f64().max(1e-12);
    let cause = |(cause, sum): (&GapCause, &taillab_analysis::gaps::CauseSum)| {
        let (kind, culprit, own) = cause.named(names, own, real_time);
        NoiseCause {
            cause: kind,
            culprit,
            own,
            gaps: sum.gaps.count(),
            length: sum.gaps.distribution(|_| 1.0),
            stolen_ns: sum.stolen,
            share: sum.stolen.as_secs_f64() / all,
        }
    };
    let mut causes: Vec<NoiseCause> = sum.causes.iter().map(cause).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.stolen_ns));
    causes
}

fn longest(sum: &CpuSum, names: Option<&RecordingContext>, real_time: bool) -> Vec<LongGap> {
    let own = std::process::id();
    let long = |long: &LongestGap| LongGap {
        from_ns: long.gap.from,
        length_ns: long.gap.length(),
        parts: (names.iter())
            .flat_map(|names| {
                long.parts.iter().map(|(cause, length)| {
                    let (kind, culprit, _) = cause.named(names, own, real_time);
                    let text = match culprit {
                        Some(culprit) => format!("{}: {culprit}", kind.label()),
                        None => kind.label().to_owned(),
                    };
                    (text, *length)
                })
            })
            .collect(),
    };
    let mut gaps: Vec<LongGap> = sum.longest.iter().map(long).collect();
    gaps.sort_by_key(|gap| gap.from_ns);
    gaps
}
