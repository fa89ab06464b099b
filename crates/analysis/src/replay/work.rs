//! What of a worker's time was for which request, once all of it is known.

use super::build::median;
use super::observed::{NONE, Observed, Requests};

/// Wake-ups that are kept to draw from.
const MAX_WAKES: usize = 4_096;

/// Splits the work of workers that did not sleep between two requests, and puts the usual
/// work where none is known.
///
/// `queues` are each worker's requests in the order in which it finished them, `shallow` the
/// idle time of CPUs in no power state before the arrival of requests that found them so.
pub(super) fn settle(
    observed: &mut Observed,
    queues: &[Vec<u32>],
    read_ns: &[u64],
    mut shallow: Vec<u32>,
) {
    let usual_shallow = median(&mut shallow).unwrap_or(0);
    let requests = &mut observed.requests;
    let n = requests.len();
    let (mut awake, mut asleep, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let mut wakes = Vec::new();
    for queue in queues {
        for (place, &i) in queue.iter().enumerate() {
            let i = i as usize;
            let (before, wake) = (requests.before_ns[i], requests.wake_ns[i]);
            let is_awake = requests.awake[i];
            let previous = place.checked_sub(1).map(|p| queue[p] as usize);
            if before == NONE {
                continue;
            }
            if is_awake {
                let waited = |p: usize| requests.after_ns[p] == 0;
                if previous.is_some_and(waited) {
                    awake.push(before);
                }
            } else {
                asleep.push(before);
                if wake != NONE {
                    wakes.push(wake);
                }
                let slept = previous.map_or(NONE, |p| requests.after_ns[p]);
                if slept != NONE {
                    after.push(slept);
                }
            }
        }
    }
    let usual_asleep = median(&mut asleep);
    let usual_after = median(&mut after).unwrap_or(0);
    let linger = match (median(&mut awake), usual_asleep) {
        (Some(awake), Some(asleep)) => awake.saturating_sub(asleep).min(usual_after),
        _ => 0,
    };
    for queue in queues {
        for pair in queue.windows(2) {
            let (last, i) = (pair[0] as usize, pair[1] as usize);
            if requests.awake[i] {
                let total = requests.before_ns[i];
                let after = requests.after_ns[last].max(linger).min(total);
                requests.after_ns[last] = after;
                requests.before_ns[i] = total - after;
                requests.first_ns[i] = requests.first_ns[i].saturating_sub(after);
            }
        }
    }
    observed.batched = batches(queues, requests, read_ns);
    let known = requests.before_ns.iter().filter(|before| **before != NONE);
    let usual = median(&mut known.copied().collect::<Vec<u32>>()).unwrap_or(0);
    for i in 0..n {
        let exit = &mut requests.exit_stack_ns[i];
        *exit = exit.saturating_sub(usual_shallow);
        if requests.before_ns[i] == NONE {
            requests.before_ns[i] = usual;
            requests.compute_ns[i] = usual;
        }
        if requests.after_ns[i] == NONE {
            requests.after_ns[i] = usual_after;
        }
        if requests.hidden[i] && requests.wake_ns[i] == NONE {
            requests.wake_ns[i] = 0;
        }
    }
    let step = wakes.len().div_ceil(MAX_WAKES).max(1);
    observed.wakes_ns = wakes.into_iter().step_by(step).collect();
    observed.wakes_ns.sort_unstable();
    observed.linger_ns = u64::from(linger);
}

/// Splits the work of requests that are read together and answered together: each reads
/// and computes its part, then they are answered one after the other. It returns how many
/// requests were answered after another of their batch.
fn batches(queues: &[Vec<u32>], requests: &mut Requests, read_ns: &[u64]) -> u64 {
    let mut found: Vec<&[u32]> = Vec::new();
    let mut replies = Vec::new();
    for queue in queues {
        let mut first = 0;
        while first < queue.len() {
            let answered = requests.finish_ns(queue[first] as usize);
            let rest = queue[first + 1..].iter();
            let more = rest.take_while(|&&j| read_ns[j as usize] < answered);
            let end = first + 1 + more.count();
            for &j in &queue[first + 1..end] {
                replies.push(requests.before_ns[j as usize]);
            }
            found.push(&queue[first..end]);
            first = end;
        }
    }
    replies.retain(|reply| *reply != NONE);
    let batched = replies.len() as u64;
    let usual = median(&mut replies).unwrap_or(0);
    for batch in found {
        let before = requests.before_ns[batch[0] as usize];
        if before == NONE {
            continue;
        }
        let compute = before - usual.min(before / 2);
        let size = batch.len() as u32;
        for (place, &j) in (0..).zip(batch) {
            let j = j as usize;
            // what does not divide is the first's
            let rest = if place == 0 { compute % size } else { 0 };
            requests.compute_ns[j] = compute / size + rest;
            let reply = requests.before_ns[j];
            let reply = if place == 0 { before - compute } else { reply };
            requests.reply_ns[j] = if reply == NONE { usual } else { reply };
        }
    }
    batched
}
