//! The benchmark of causes: known causes of latency are injected into a server, and the ledger must
//! charge the delay to them.

mod account;
mod contaminated;
mod criteria;
mod disturb;
mod forecast;
mod kind;
mod reason;
mod result;
mod setup;

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::timeline::Timeline;
use taillab_analysis::{AnalysisError, AnalysisOptions, MatchOptions, Window, match_events};
use taillab_model::{Monotonic, Recording};

use crate::ground_truth::GroundTruth;

pub use self::account::Account;
pub use self::contaminated::{ATTEMPTS, Machine};
pub use self::disturb::{DisturbedServer, Disturbers};
pub use self::forecast::{FixCheck, FixPoint, ForecastVerdict, PairMedian, Pairs};
pub use self::kind::CauseKind;
pub use self::reason::ReasonKey;
pub use self::result::{BenchResult, Injected, KindResult, Measured};
pub use self::setup::{BaseServer, BenchOptions, Disturbance, Fix, Oracle, Promise, Setup};

use self::account::account;
use self::contaminated::MachineEvidence;

/// Why a recording cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum BadRecording {
    /// It was not made by this benchmark.
    #[error(
        "the recording does not say t and the number of workers: it was not made by this benchmark"
    )]
    NoServiceTime,
    /// Its requests cannot be matched.
    #[error(transparent)]
    Match(#[from] taillab_analysis::matcher::ParseFramingError),
    /// There is no request to explain.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
}

/// Explains a recording and judges what was charged to what `truth` says was injected.
///
/// # Errors
/// [`BadRecording`] when it was not made by this benchmark.
pub fn explained(
    setup: &Setup,
    recording: Recording,
    truth: &GroundTruth,
) -> Result<(Account, Measured), BadRecording> {
    let context = recording.context.clone();
    let (Some(service_time), Some(workers)) = (
        context.service_time_ns,
        context.workers.and_then(NonZeroU32::new),
    ) else {
        return Err(BadRecording::NoServiceTime);
    };
    let lost_events = recording.lost.total();
    let timeline = Timeline::build(recording.events(), &context);
    let options = MatchOptions::of(&context)?;
    let matched = match_events(recording.events(), &options);
    let evidence = MachineEvidence::of(
        recording.events(),
        &timeline,
        &matched,
        &context,
        truth,
        service_time,
    );
    let from = Monotonic::from_nanos_since_boot(context.measure_from_ns.unwrap_or(0));
    let options = AnalysisOptions {
        slowest: 0,
        is_repeated: true,
        exact: usize::MAX,
        ..AnalysisOptions::new(service_time, workers, from)
    };
    let window = Arc::new(Window::whole(matched, timeline));
    let account = account(setup, &window, &context, &options, truth, &evidence)?;
    let measured = Measured::new(&account, service_time, lost_events, &occurrences(truth));
    let contaminated = account.machine.contaminated();
    Ok((
        account,
        Measured {
            contaminated,
            ..measured
        },
    ))
}

/// The number of occurrences of each source.
fn occurrences(truth: &GroundTruth) -> Vec<u64> {
    let mut counts = vec![0; truth.sources.len()];
    for interval in &truth.intervals {
        if let Some(count) = counts.get_mut(usize::from(interval.source)) {
            *count += 1;
        }
    }
    counts
}
