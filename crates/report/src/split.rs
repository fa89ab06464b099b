//! How the work was split over the server's workers.

use taillab_model::explanation::{OTHER_THREADS, WorkerShare};

use crate::figures::percent;

/// The split is uneven if some workers have more than this share of the work above their part of the workers.
const UNEVEN: f64 = 0.05;

/// A split that is this many times as uneven as one by chance is not chance.
const BEYOND_CHANCE: f64 = 2.0;

/// Half the mean absolute value of a standard normal number.
const HALF_MEAN_DEVIATION: f64 = 0.4;

/// The busiest workers and their share of the work, in a sentence; `None` where the work is split evenly.
///
/// Work is the time in which a worker was busy with requests. With independent clients the split has chance in it: each
/// request may go to any worker. Nothing is said of thousands of threads, of which some are summed.
pub(crate) fn sentence(workers: &[WorkerShare]) -> Option<String> {
    let mut busy: Vec<&WorkerShare> = workers.iter().collect();
    busy.sort_by(|a, b| b.busy_share.total_cmp(&a.busy_share));
    let all: f64 = busy.iter().map(|worker| worker.busy_share).sum();
    let requests: u64 = busy.iter().map(|worker| worker.requests).sum();
    let are_summed = busy.iter().any(|worker| worker.tid == OTHER_THREADS);
    if all <= 0.0 || requests == 0 || busy.len() < 2 || are_summed {
        return None;
    }
    let number = busy.len();
    let mut sum = 0.0;
    let splits = busy[..number - 1]
        .iter()
        .enumerate()
        .map(|(before, worker)| {
            sum += worker.busy_share;
            (before + 1, sum / all)
        });
    let above = |of: &(usize, f64)| of.1 - of.0 as f64 / number as f64;
    let (some, share) = splits.max_by(|a, b| above(a).total_cmp(&above(b)))?;
    let even = some as f64 / number as f64;
    // what those with more than their part have above it, if each request goes to any worker
    let chance = HALF_MEAN_DEVIATION * (number as f64 / requests as f64).sqrt();
    let most = busy[0].busy_share;
    (share - even > UNEVEN.max(BEYOND_CHANCE * chance)).then(|| {
        format!(
            "The work is split unevenly: {some} of {number} workers had {} of it; the busiest was busy {} of the \
             time, the idlest {}.",
            percent(share, 0),
            percent(most, 0),
            percent(busy[number - 1].busy_share, 0),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(busy: &[f64]) -> Vec<WorkerShare> {
        let worker = |(tid, &busy_share): (usize, &f64)| WorkerShare {
            tid: tid as u32 + 1,
            name: "worker".to_owned(),
            requests: (100_000.0 * busy_share) as u64,
            busy_share,
            mean_sojourn_ns: 20_000.0,
        };
        busy.iter().enumerate().map(worker).collect()
    }

    #[test]
    fn the_busiest_workers_and_their_share_of_the_work_are_named() {
        let said = sentence(&workers(&[0.2, 0.9, 0.2, 0.7])).unwrap();
        assert!(said.contains("2 of 4 workers had 80 % of it"), "{said}");
        assert!(
            said.contains("busiest was busy 90 % of the time, the idlest 20 %"),
            "{said}"
        );
        let said = sentence(&workers(&[0.6, 0.6, 0.6, 0.1])).unwrap();
        assert!(said.contains("3 of 4 workers had 95 % of it"), "{said}");
    }

    #[test]
    fn an_even_split_needs_no_sentence() {
        assert_eq!(sentence(&workers(&[0.7, 0.72, 0.69, 0.71])), None);
        assert_eq!(sentence(&workers(&[0.7])), None);
        let mut summed = workers(&[0.2, 0.9, 0.2, 0.7]);
        summed[3].tid = OTHER_THREADS;
        assert_eq!(sentence(&summed), None);
        assert_eq!(sentence(&[]), None);
        assert_eq!(sentence(&workers(&[0.0, 0.0])), None);
        // of a hundred requests, 60 and 40 may be chance
        let mut few = workers(&[0.6, 0.4]);
        few.iter_mut().for_each(|worker| worker.requests /= 1_000);
        assert_eq!(sentence(&few), None);
    }
}
