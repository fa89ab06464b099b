//! Divides the workers' time among requests, once all of it is known.

use super::observed::{Job, NONE, Observed};
use crate::statistics::middle;

/// The number of measured wake-ups that are kept.
const MAX_WAKES: usize = 4_096;

/// Divides the work between two requests if the worker did not sleep between them, and assumes the usual
/// work if it is unknown.
///
/// `queues` are each worker's requests in the order in which it finished them; `shallow` is the idle time
/// from T1 to T2 of requests that found a CPU idle, but not in a deep power state.
pub(super) fn split_work(
    observed: &mut Observed,
    queues: &[Vec<u32>],
    read_ns: &[u64],
    mut shallow: Vec<u64>,
) {
    let usual_shallow = middle(&mut shallow).unwrap_or(0);
    let requests = &mut observed.requests;
    let (mut awake, mut asleep, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let (mut wakes, mut ways) = (Vec::new(), Vec::new());
    for queue in queues {
        for (place, &i) in queue.iter().enumerate() {
            let i = i as usize;
            let (before, wake) = (requests[i].before_ns, requests[i].wake_ns);
            let is_awake = requests[i].awake;
            let previous = place.checked_sub(1).map(|p| queue[p] as usize);
            if before == NONE {
                continue;
            }
            if is_awake {
                let waited = |p: usize| requests[p].after_ns == 0;
                if previous.is_some_and(waited) {
                    awake.push(before);
                }
            } else {
                asleep.push(before);
                if wake != NONE {
                    wakes.push((wake, requests[i].exit_wake_ns));
                } else if requests[i].way_ns != NONE {
                    ways.push(requests[i].way_ns);
                }
                let slept = previous.map_or(NONE, |p| requests[p].after_ns);
                if slept != NONE {
                    after.push(slept);
                }
            }
        }
    }
    let usual_asleep = middle(&mut asleep);
    let usual_after = middle(&mut after).unwrap_or(0);
    let linger = match (middle(&mut awake), usual_asleep) {
        (Some(awake), Some(asleep)) => awake.saturating_sub(asleep).min(usual_after),
        _ => 0,
    };
    for queue in queues {
        for pair in queue.windows(2) {
            let (last, i) = (pair[0] as usize, pair[1] as usize);
            if requests[i].awake {
                let total = requests[i].before_ns;
                let after = requests[last].after_ns.max(linger).min(total);
                requests[last].after_ns = after;
                requests[i].before_ns = total - after;
                requests[i].first_ns = requests[i].first_ns.saturating_sub(after);
            }
        }
    }
    observed.batched = batches(queues, requests, read_ns);
    let known = requests.iter().map(|job| job.before_ns);
    let mut known: Vec<u64> = known.filter(|before| *before != NONE).collect();
    let usual = middle(&mut known).unwrap_or(0);
    for job in requests.iter_mut() {
        job.exit_stack_ns = job.exit_stack_ns.saturating_sub(usual_shallow);
        if job.before_ns == NONE {
            job.before_ns = usual;
            // in a batch, it has its share already
            if job.compute_ns == 0 && job.reply_ns == 0 {
                job.compute_ns = usual;
            }
        }
        if job.after_ns == NONE {
            job.after_ns = usual_after;
        }
        if job.hidden && job.wake_ns == NONE {
            job.wake_ns = 0;
        }
    }
    (observed.wakes_ns, observed.ways_ns) = (sample(wakes), sample(ways));
    observed.linger_ns = linger;
    spread_unknown(observed);
}

/// A sorted sample of at most [`MAX_WAKES`].
fn sample<T: Ord>(of: Vec<T>) -> Vec<T> {
    let step = of.len().div_ceil(MAX_WAKES).max(1);
    let mut sample: Vec<T> = of.into_iter().step_by(step).collect();
    sample.sort_unstable();
    sample
}

/// Gives each server of the queue its share of the requests whose worker is unknown.
fn spread_unknown(observed: &mut Observed) {
    let servers = observed.vacations.len().max(1);
    let jobs = observed.requests.iter_mut();
    let unknown = jobs.filter(|job| job.worker == u16::MAX);
    for (number, job) in unknown.enumerate() {
        job.server = (number % servers) as u16;
    }
}

/// Divides the work of requests that are read together: a computation for all of them, in equal shares, and
/// then one reply after another. Returns the number of requests that were answered after another one of
/// their batch.
fn batches(queues: &[Vec<u32>], requests: &mut [Job], read_ns: &[u64]) -> u64 {
    let mut found: Vec<&[u32]> = Vec::new();
    let mut replies = Vec::new();
    for queue in queues {
        let mut first = 0;
        while first < queue.len() {
            let answered = requests[queue[first] as usize].finish_ns();
            let rest = queue[first + 1..].iter();
            let more = rest.take_while(|&&j| read_ns[j as usize] < answered);
            let end = first + 1 + more.count();
            for &j in &queue[first + 1..end] {
                replies.push(requests[j as usize].before_ns);
            }
            found.push(&queue[first..end]);
            first = end;
        }
    }
    replies.retain(|reply| *reply != NONE);
    let batched = replies.len() as u64;
    let usual = middle(&mut replies).unwrap_or(0);
    for batch in found {
        let before = requests[batch[0] as usize].before_ns;
        if before == NONE {
            // its work is assumed later; what is known of the others is theirs
            for &j in &batch[1..] {
                let job = &mut requests[j as usize];
                if job.before_ns != NONE {
                    job.reply_ns = job.before_ns;
                }
            }
            continue;
        }
        let compute = before - usual.min(before / 2);
        let size = batch.len() as u64;
        for (place, &j) in (0..).zip(batch) {
            let j = j as usize;
            // the remainder goes to the first
            let rest = if place == 0 { compute % size } else { 0 };
            requests[j].compute_ns = compute / size + rest;
            let reply = requests[j].before_ns;
            let reply = if place == 0 { before - compute } else { reply };
            requests[j].reply_ns = if reply == NONE { usual } else { reply };
        }
    }
    batched
}

#[cfg(test)]
mod tests {
    use super::super::agreement::observed;
    use super::*;

    /// The computation and the reply of each of two requests that are read together.
    fn batch_of_two(before_ns: [u64; 2]) -> [(u64, u64); 2] {
        let jobs = before_ns.map(|before_ns| (0, before_ns, 0, 0));
        let mut observed = observed(&jobs, &[vec![]]);
        for (job, measured_ns) in observed.requests.iter_mut().zip([100, 150]) {
            (job.compute_ns, job.measured_ns) = (0, measured_ns);
        }
        split_work(&mut observed, &[vec![0, 1]], &[1, 2], Vec::new());
        assert_eq!(observed.batched, u64::from(before_ns[1] != NONE));
        [0, 1].map(|i| {
            let job = &observed.requests[i];
            (job.compute_ns, job.reply_ns)
        })
    }

    #[test]
    fn requests_of_unknown_workers_are_spread_over_the_servers() {
        let mut observed = observed(&[(0, 100, 0, 1); 5], &[vec![], vec![]]);
        for job in &mut observed.requests[1..] {
            job.worker = u16::MAX;
        }
        split_work(&mut observed, &[], &[], Vec::new());
        let servers: Vec<u16> = observed.requests.iter().map(|job| job.server).collect();
        assert_eq!(servers, [1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_request_of_a_batch_whose_work_is_unknown_leaves_the_others_theirs() {
        assert_eq!(batch_of_two([100, 30]), [(35, 30), (35, 30)]);
        assert_eq!(batch_of_two([NONE, 30]), [(30, 0), (0, 30)]);
        assert_eq!(batch_of_two([100, NONE]), [(50, 0), (50, 0)]);
    }
}
