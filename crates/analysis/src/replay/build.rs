//! Reconstructs the queue from the requests and the timeline of the CPUs.
//!
//! One pass over the stretches of the CPUs determines the work of each request, the vacations of each
//! server of the queue, and the length of each wake-up.
//!
//! **Servers of the queue.** If there are no more workers than CPUs, each worker is a server; its
//! vacations are those of the CPU on which it runs, or will run next. If there are more workers than
//! CPUs, the CPUs are the bottleneck, and each CPU is a server.
//!
//! **Work of a request.** All time that its worker itself runs between its previous response and this
//! one. If the worker slept in between, what it did before it slept still belongs to the previous
//! request. If it did not sleep, the previous request gets the time until the next request had
//! arrived, or the worker's usual time after a response, whichever is longer.
//!
//! **Wake-up.** The time for which the CPU was idle between the arrival at the socket and the moment
//! when the worker ran. Handlers that ran meanwhile are a vacation and not part of it.

use std::collections::HashMap;

use taillab_model::{Monotonic, RecordingContext, Stamps, Tid};

use super::observed::{Job, Observed, finishing_order};
use super::reconstruct::{PerRequest, reconstruct};
use super::sample::Sample;
use super::track::CoreTimeline;
use crate::matched::Matched;
use crate::resent::Resent;
use crate::statistics::middle;

impl Observed {
    /// The queue of a whole recording. Only requests of the measurement count; those before it bring
    /// the queue into its state.
    pub fn build(
        matched: &Matched,
        timeline: &impl CoreTimeline,
        context: &RecordingContext,
        measure_from: Monotonic,
    ) -> Self {
        let sample = Sample::of(matched, measure_from);
        Self::of_sample(matched, timeline, context, &sample)
    }

    /// The queue of a sample of a recording; `matched` and `timeline` have at least the sample.
    pub(crate) fn of_sample(
        matched: &Matched,
        timeline: &impl CoreTimeline,
        context: &RecordingContext,
        sample: &Sample,
    ) -> Self {
        let chosen = &sample.chosen;
        if chosen.is_empty() {
            return Self::default();
        }
        let mut observed = Self {
            blocks: sample.blocks,
            in_slices: sample.in_slices,
            measured_requests: sample.measured,
            speed: sample.speed.clone(),
            ..Self::default()
        };
        let resent: Resent = timeline.retransmissions().collect();
        let mut per_request = observed.add_requests(matched, chosen, &resent);
        observed.origin_ns = per_request.origin_ns;
        let begins = sample.begins.iter();
        let begins = begins.map(|at| ns(*at).saturating_sub(per_request.origin_ns));
        per_request.covered = covered(&observed.requests, begins);
        observed.real_time = real_time(&observed.workers, context);
        let cpus = timeline.cpus(&observed.workers);
        observed.servers_are_workers = cpus.len() > 1 && observed.workers.len() <= cpus.len();
        observed.connections_are_bound = bound(&observed.requests, &per_request.clients);
        reconstruct(&mut observed, &per_request, timeline, &cpus, context);
        observed
    }

    /// Adds the requests in order of arrival, with everything that follows from their stamps alone.
    fn add_requests(
        &mut self,
        matched: &Matched,
        chosen: &[(u32, u8)],
        resent: &Resent,
    ) -> PerRequest {
        let of = |place: u32| matched.requests.stamps(place as usize);
        let usual = usual_stack_ns(chosen.iter().map(|(place, _)| of(*place)));
        let origin = chosen.first().map_or(0, |(place, _)| ns(of(*place).t1));
        let mut order: Vec<(u64, u32, u8)> = chosen
            .iter()
            .map(|&(place, block)| {
                let client = matched.keys[place as usize].connection;
                let arrival = arrival_ns(&of(place), usual, |from_ns, to_ns| {
                    resent.last_within(client, from_ns, to_ns)
                });
                (arrival.saturating_sub(origin), place, block)
            })
            .collect();
        order.sort_unstable();
        let mut indices: HashMap<Tid, u16> = HashMap::new();
        let mut per_request = PerRequest {
            origin_ns: origin,
            ..PerRequest::default()
        };
        for (arrival_ns, place, block) in order {
            let stamps = of(place);
            let t1 = ns(stamps.t1).saturating_sub(origin);
            let stack_ns = arrival_ns.saturating_sub(t1);
            let client = matched.keys[place as usize].connection;
            let lost = resent.within(client, origin + t1, origin + arrival_ns);
            let tid = matched.workers.get(place as usize).copied().unwrap_or(0);
            let next = u16::try_from(indices.len()).unwrap_or(u16::MAX);
            let worker = match indices.get(&tid).copied() {
                Some(worker) => worker,
                // with more workers than have numbers, it is as if it were not known who served the others
                None if tid == 0 || next == u16::MAX => {
                    self.without_worker += 1;
                    u16::MAX
                }
                None => {
                    indices.insert(tid, next);
                    self.workers.push(tid);
                    next
                }
            };
            self.requests.push(Job {
                arrival_ns,
                stack_ns,
                lost_ns: if lost {
                    stack_ns.saturating_sub(usual)
                } else {
                    0
                },
                sent_late_ns: sent_late_ns(matched, place as usize),
                measured_ns: stamps.t6.saturating_since(stamps.t1).get(),
                worker,
                block,
                ..Job::default()
            });
            per_request.clients.push(client);
            let read = stamps
                .t4
                .map_or(u64::MAX, |at| ns(at).saturating_sub(origin));
            per_request.read_ns.push(read);
        }
        per_request.finished = finishing_order(&mut self.requests);
        per_request
    }
}

/// The stretches of time that have requests to replay. A new one begins at each of `begins`, and where
/// nothing came in for more than a thousandth of the total time.
fn covered(requests: &[Job], begins: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let end = requests.iter().map(Job::finish_ns).max().unwrap_or(0);
    let apart = (end / 1_000).max(1);
    let mut begins = begins.peekable();
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for job in requests {
        let (arrival, finish) = (job.arrival_ns, job.finish_ns());
        let begins_here = begins.next_if(|begin| *begin <= arrival).is_some();
        match covered.last_mut() {
            Some((_, end)) if !begins_here && arrival <= end.saturating_add(apart) => {
                *end = finish.max(*end);
            }
            _ => covered.push((arrival, finish)),
        }
    }
    covered
}

fn ns(at: Monotonic) -> u64 {
    at.nanos_since_boot()
}

/// How much later than it was due a request was sent, where the client is ours.
fn sent_late_ns(matched: &Matched, place: usize) -> u64 {
    let times = matched.client.as_ref().and(matched.requests.client(place));
    let late = times.map(|times| times.sent.saturating_since(times.intended).get());
    late.unwrap_or(0)
}

/// The median of T2 − T1.
fn usual_stack_ns(requests: impl Iterator<Item = Stamps>) -> u64 {
    let mut stack: Vec<u64> = requests
        .filter_map(|r| Some(r.t2?.checked_since(r.t1)?.get()))
        .take(100_001)
        .collect();
    middle(&mut stack).unwrap_or(0)
}

/// T2. If it is unknown: the usual time after T1, or after the last retransmission; never later than
/// the next stamp.
fn arrival_ns(
    stamps: &Stamps,
    usual_stack_ns: u64,
    sent_again: impl FnOnce(u64, u64) -> Option<u64>,
) -> u64 {
    let t1 = ns(stamps.t1);
    let latest = [stamps.t3, stamps.t4, stamps.t5]
        .into_iter()
        .flatten()
        .chain([stamps.t6]);
    let latest = latest.map(ns).min().unwrap_or(t1).max(t1);
    let sent = || sent_again(t1, latest).unwrap_or(t1);
    let t2 = stamps.t2.map_or_else(|| sent() + usual_stack_ns, ns);
    t2.clamp(t1, latest)
}

/// Whether the workers are real-time threads; `None` if some are and some are not, or if it is unknown.
fn real_time(workers: &[Tid], context: &RecordingContext) -> Option<bool> {
    let threads = context.threads.iter();
    let known: HashMap<Tid, bool> = threads
        .filter_map(|thread| Some((thread.tid, thread.real_time?)))
        .collect();
    let mut policies = workers.iter().map(|tid| known.get(tid).copied());
    let first = policies.next()??;
    policies
        .all(|policy| policy == Some(first))
        .then_some(first)
}

/// Whether each client stays with one worker: at most 1 in 1,000 requests changes the worker, as far as that
/// is known.
fn bound(requests: &[Job], clients: &[u32]) -> bool {
    let mut of: HashMap<u32, u16> = HashMap::new();
    let (mut other, mut again) = (0_u64, 0_u64);
    let known = clients.iter().zip(requests);
    for (client, job) in known.filter(|(_, job)| job.worker != u16::MAX) {
        if let Some(before) = of.insert(*client, job.worker) {
            again += 1;
            other += u64::from(before != job.worker);
        }
    }
    again > 0 && other * 1_000 <= again
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_not_covered() {
        let job = |arrival_ns| Job {
            arrival_ns,
            measured_ns: 5,
            ..Job::default()
        };
        let jobs = [0, 6, 100_000, 100_004, 100_012].map(job);
        let whole = covered(&jobs, [].into_iter());
        assert_eq!(whole, [(0, 11), (100_000, 100_017)]);
        let stretches = covered(&jobs, [0, 100_000, 100_010].into_iter());
        assert_eq!(stretches, [(0, 11), (100_000, 100_009), (100_012, 100_017)]);
    }

    #[test]
    fn a_request_whose_worker_is_unknown_does_not_move_its_client() {
        let jobs = |workers: [u16; 3]| {
            workers.map(|worker| Job {
                worker,
                ..Job::default()
            })
        };
        assert!(bound(&jobs([0, u16::MAX, 0]), &[7; 3]));
        assert!(!bound(&jobs([0, 1, 0]), &[7; 3]));
    }
}
