//! The sojourns of a replay.

use taillab_model::Nanos;

use crate::replay::{BlockHistogram, Change, Observed, UNCOUNTED, replay};

/// The replayed sojourns with this change, in no particular order.
pub(crate) fn sojourns(observed: &Observed, change: &Change) -> Vec<Nanos> {
    let mut sojourns = Vec::with_capacity(observed.requests.len());
    each_replayed(observed, change, |_, sojourn_ns| {
        sojourns.push(Nanos::new(sojourn_ns));
    });
    sojourns
}

/// The replayed sojourns of the requests that count, by block.
pub(super) fn replayed(observed: &Observed, change: &Change) -> BlockHistogram {
    let mut histogram = BlockHistogram::new(observed.blocks.max(1));
    each_replayed(observed, change, |block, sojourn_ns| {
        histogram.add(block, sojourn_ns);
    });
    histogram
}

/// Calls `each` for each request that counts, with its block and its sojourn in nanoseconds.
fn each_replayed(observed: &Observed, change: &Change, mut each: impl FnMut(usize, u64)) {
    replay(observed, change, |i, at| {
        let block = observed.requests[i].block;
        if block != UNCOUNTED {
            let job = &observed.requests[i];
            let mut sojourn = observed.sojourn_ns(i, at + job.sent_earlier_ns(change));
            if change.no_exit {
                sojourn = sojourn.saturating_sub(job.exit_stack_ns);
            }
            each(usize::from(block), sojourn);
        }
    });
}
