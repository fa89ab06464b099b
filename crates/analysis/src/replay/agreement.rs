//! Compares the replay kernel with the queue by its definition, to the nanosecond.

use std::ops::Range;

use proptest::prelude::*;
use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::change::{Change, Discipline, Order, Sharing};
use super::kernel::replay;
use super::observed::{Job, NONE, Observed, VacationSource};
use super::track::SourceId;
use super::vacations::Vacations;
use crate::predict::scenario::without;

/// (gap before it, work before, work after, server)
pub(crate) type DrawnJob = (u64, u64, u64, u16);

/// (gap before it, length, source)
pub(crate) type DrawnVacation = (u64, u64, u16);

pub(crate) fn observed(jobs: &[DrawnJob], away: &[Vec<DrawnVacation>]) -> Observed {
    let mut observed = Observed {
        blocks: 1,
        servers_are_workers: true,
        workers: (1..=away.len() as u32).collect(),
        ..Observed::default()
    };
    let mut at = 0;
    for (rank, &(gap, before_ns, after_ns, server)) in (0..).zip(jobs) {
        at += gap;
        observed.requests.push(Job {
            arrival_ns: at,
            before_ns,
            after_ns,
            first_ns: before_ns,
            compute_ns: before_ns,
            rank,
            server,
            worker: server,
            ..Job::default()
        });
    }
    for away in away {
        let mut vacations = Vacations::default();
        let mut at = 0;
        for (gap, length, source) in away {
            vacations.push(at + gap, at + gap + length, SourceId(*source));
            at += gap + length;
        }
        observed.vacations.push(vacations);
    }
    let source = |cause| VacationSource {
        cause,
        culprit: None,
        own: false,
    };
    observed.sources = vec![source(Cause::Background), source(Cause::Softirq)];
    observed
}

/// Calls `set` for the first requests, each with the next of `values`.
fn set<T>(observed: &mut Observed, values: impl IntoIterator<Item = T>, set: fn(&mut Job, T)) {
    for (request, value) in observed.requests.iter_mut().zip(values) {
        set(request, value);
    }
}

/// The same jobs for `workers` workers that share the CPUs.
fn pool(jobs: &[DrawnJob], away: &[Vec<DrawnVacation>], workers: u32) -> Observed {
    Observed {
        servers_are_workers: false,
        workers: (1..=workers).collect(),
        ..observed(jobs, away)
    }
}

/// Turns all work before the responses into sleep, and removes all other work.
fn asleep(observed: &Observed) -> Observed {
    let mut observed = observed.clone();
    for request in &mut observed.requests {
        request.server = 0;
        request.blocked_ns = request.before_ns;
        request.blocked_cause = Cause::BlockedOther as u8;
        (request.before_ns, request.first_ns, request.after_ns) = (0, 0, 0);
    }
    observed
}

pub(crate) fn departures(observed: &Observed, change: &Change) -> Vec<u64> {
    let mut departures = vec![u64::MAX; observed.requests.len()];
    replay(observed, change, |i, at| {
        assert_eq!(departures[i], u64::MAX, "request {i} left twice");
        departures[i] = at;
    });
    departures
}

pub(crate) fn change(observed: &Observed, sharing: Sharing, order: Order) -> Change {
    observed.unchanged(Discipline { sharing, order })
}

/// The departures by the definition of the queue, nanosecond by nanosecond: first come, first served, with the
/// vacations that `change` leaves.
fn reference(observed: &Observed, change: &Change) -> Vec<u64> {
    let left = |(from, length, source): (u64, u64, u16)| {
        let length = length.min(change.limits[usize::from(source)]);
        from..from + length
    };
    let vacations = observed.vacations.iter();
    let away: Vec<Vec<Range<u64>>> = vacations.map(|v| v.iter().map(left).collect()).collect();
    let works = |server: usize, at: u64| !away[server].iter().any(|away| away.contains(&at));
    let mut free = vec![0_u64; away.len()];
    let mut departures = Vec::new();
    for request in &observed.requests {
        let ready = |server: usize| {
            let from = free[server].max(request.arrival_ns);
            (from..).find(|at| works(server, *at)).unwrap()
        };
        let server = match change.discipline.sharing {
            Sharing::Assigned => usize::from(request.server),
            Sharing::Shared => (0..away.len()).min_by_key(|s| ready(*s)).unwrap(),
        };
        let finish = |from: u64, work_ns: u64| {
            let worked = (from..).filter(|at| works(server, *at));
            worked
                .take(work_ns as usize)
                .last()
                .map_or(from, |at| at + 1)
        };
        let departure = finish(ready(server), request.before_ns);
        departures.push(departure);
        free[server] = finish(departure, request.after_ns);
    }
    departures
}

fn jobs(servers: u16) -> impl Strategy<Value = Vec<DrawnJob>> {
    prop::collection::vec((0_u64..30, 1_u64..20, 1_u64..8, 0..servers), 1..60)
}

fn away(servers: usize) -> impl Strategy<Value = Vec<Vec<DrawnVacation>>> {
    let one = prop::collection::vec((1_u64..60, 1_u64..40, 0_u16..2), 0..12);
    prop::collection::vec(one, servers)
}

/// Seconds of work, of a preempting program, and of lateness do not fit into 32 bits of nanoseconds.
#[test]
fn lengths_of_many_seconds_are_kept() {
    const S: u64 = 1_000_000_000;
    // one request of 10 s, which the next one interrupts for 1 s, while a program has the CPU for 6 s
    let jobs = [(20 * S, 10 * S, 0, 0), (2 * S, S, 0, 0)];
    let mut long = observed(&jobs, &[vec![(25 * S, 6 * S, 0)]]);
    (long.requests[0].rank, long.requests[1].rank) = (1, 0);
    let mut change = change(&long, Sharing::Assigned, Order::AsMeasuredPreemptive);
    assert_eq!(departures(&long, &change), [37 * S, 23 * S]);
    change.limits[0] = 0;
    assert_eq!(departures(&long, &change), [31 * S, 23 * S]);
    change.work_limit_ns = 5 * S;
    assert_eq!(departures(&long, &change), [26 * S, 23 * S]);
    // sent 10 s late
    long.requests[0].sent_late_ns = 10 * S;
    change.on_schedule = true;
    assert_eq!(long.requests[0].sent_earlier_ns(&change), 10 * S);
    assert_eq!(departures(&long, &change)[0], 15 * S);
}

proptest! {
    #[test]
    fn a_queue_for_each_server(
        (jobs, away, limits) in (jobs(3), away(3), [0_u64..50, 0_u64..50]),
    ) {
        let observed = observed(&jobs, &away);
        let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
        change.limits = limits.to_vec();
        prop_assert_eq!(departures(&observed, &change), reference(&observed, &change));
    }

    /// In the order of arrival, measured or not, preemptive or not, it is the same queue.
    #[test]
    fn the_order_of_arrival_by_rank(
        (jobs, away) in (jobs(2), away(2)),
    ) {
        let observed = observed(&jobs, &away);
        let plain = change(&observed, Sharing::Assigned, Order::Arrival);
        let expected = departures(&observed, &plain);
        for order in [Order::AsMeasured, Order::AsMeasuredPreemptive] {
            let ranked = change(&observed, Sharing::Assigned, order);
            prop_assert_eq!(&departures(&observed, &ranked), &expected);
        }
    }

    /// Servers with equal vacations: it makes no difference which of them serves.
    #[test]
    fn one_queue_for_all(
        (jobs, away) in (jobs(3), away(1)),
    ) {
        let mut jobs = jobs;
        for job in &mut jobs {
            job.2 = 0;
        }
        let away = vec![away[0].clone(); 3];
        let observed = observed(&jobs, &away);
        let change = change(&observed, Sharing::Shared, Order::Arrival);
        prop_assert_eq!(departures(&observed, &change), reference(&observed, &change));
    }

    /// Workers on one CPU that never sleep in a request, first come, first served: one queue.
    #[test]
    fn workers_that_share_a_cpu_are_one_queue(
        (jobs, away, limits) in (jobs(3), away(1), [0_u64..50, 0_u64..50]),
    ) {
        let mut pool = pool(&jobs, &away, 3);
        set(&mut pool, [0; 60], |request, server| request.server = server);
        let mut assigned = change(&pool, Sharing::Assigned, Order::Arrival);
        assigned.limits = limits.to_vec();
        let expected = reference(&pool, &assigned);
        prop_assert_eq!(departures(&pool, &assigned), expected);
    }

    /// Workers that only sleep, so that their CPU is always free: each is a server.
    #[test]
    fn workers_that_sleep_in_their_requests_are_servers(jobs in jobs(3)) {
        let pool = asleep(&pool(&jobs, &[Vec::new()], 3));
        let jobs: Vec<DrawnJob> = jobs.into_iter().map(|(gap, work, _, s)| (gap, work, 0, s)).collect();
        let servers = observed(&jobs, &[Vec::new(), Vec::new(), Vec::new()]);
        for sharing in [Sharing::Assigned, Sharing::Shared] {
            let expected = reference(&servers, &change(&servers, sharing, Order::Arrival));
            for order in [Order::Arrival, Order::ByWorker, Order::AsMeasured] {
                let change = change(&pool, sharing, order);
                prop_assert_eq!(&departures(&pool, &change), &expected);
            }
        }
    }

    /// A server that is never away gets the same work done in any order: it is done with
    /// everything at the same time.
    #[test]
    fn the_order_does_not_change_the_end_of_a_busy_period(
        (jobs, ranks) in (jobs(1), prop::collection::vec(any::<u32>(), 60)),
    ) {
        let jobs: Vec<DrawnJob> = jobs.into_iter().map(|(gap, work, _, s)| (gap, work, 0, s)).collect();
        let mut observed = observed(&jobs, &[Vec::new()]);
        let plain = change(&observed, Sharing::Assigned, Order::Arrival);
        let last = departures(&observed, &plain).into_iter().max();
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|i| ranks[*i]);
        for (rank, i) in order.into_iter().enumerate() {
            observed.requests[i].rank = rank as u32;
        }
        for order in [Order::ByWorker, Order::AsMeasured, Order::AsMeasuredPreemptive] {
            let ranked = change(&observed, Sharing::Assigned, order);
            let departures = departures(&observed, &ranked);
            prop_assert_eq!(departures.iter().copied().max(), last);
            for (i, departure) in departures.iter().enumerate() {
                let earliest = observed.requests[i].arrival_ns + jobs[i].1;
                prop_assert!(*departure >= earliest);
            }
        }
    }
}

#[test]
fn a_later_request_goes_first_only_if_it_is_there_when_the_server_is_free() {
    // arrivals 0, 1, 20; each takes 10; the third was finished second
    let mut observed = observed(
        &[(0, 10, 0, 0), (1, 10, 0, 0), (19, 10, 0, 0)],
        &[Vec::new()],
    );
    set(&mut observed, [0, 2, 1], |request, value| {
        request.rank = value
    });
    let at = |order| {
        let change = change(&observed, Sharing::Assigned, order);
        departures(&observed, &change)
    };
    assert_eq!(at(Order::Arrival), [10, 20, 30]);
    // the second begins at 10, since the third is not there yet
    assert_eq!(at(Order::AsMeasured), [10, 20, 30]);
    let mut early = observed.clone();
    early.requests[2].arrival_ns = 9;
    let change_early = change(&early, Sharing::Assigned, Order::AsMeasured);
    assert_eq!(departures(&early, &change_early), [10, 30, 20]);
    early.requests[2].arrival_ns = 15;
    let change_early = change(&early, Sharing::Assigned, Order::AsMeasuredPreemptive);
    // it takes the server from the second at 15, which had five left
    assert_eq!(departures(&early, &change_early), [10, 30, 25]);
}

#[test]
fn a_worker_asleep_in_a_request_leaves_a_shared_cpu_and_holds_its_own_next_one() {
    // two workers on one CPU; the first request sleeps 100, the second is the same
    // worker's, the third the other's
    let mut observed = observed(
        &[(0, 10, 0, 0), (1, 10, 0, 0), (1, 10, 0, 0)],
        &[Vec::new()],
    );
    observed.servers_are_workers = false;
    observed.workers = vec![7, 8];
    set(&mut observed, [0, 0, 1], |request, value| {
        request.worker = value
    });
    observed.requests[0].blocked_ns = 100;
    observed.requests[0].blocked_cause = Cause::BlockedLock as u8;
    let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
    assert_eq!(departures(&observed, &change), [110, 120, 20]);
    change.unblock(Cause::BlockedIo);
    assert_eq!(departures(&observed, &change), [110, 120, 20]);
    change.unblock(Cause::BlockedLock);
    assert_eq!(departures(&observed, &change), [10, 20, 30]);
    // where the worker is the server, it keeps all that waits for it waiting
    observed.servers_are_workers = true;
    let change = super::agreement::change(&observed, Sharing::Assigned, Order::Arrival);
    assert_eq!(departures(&observed, &change), [110, 120, 130]);
}

#[test]
fn a_worker_that_is_back_from_its_sleep_waits_for_its_cpu() {
    // three workers on one CPU; the first's request sleeps from 4 to 14 and needs 6 more,
    // the second's is there from 5 to 25, the third's comes at 16
    let jobs = [(0, 10, 2, 0), (5, 20, 0, 1), (11, 3, 0, 2)];
    let mut observed = pool(&jobs, &[Vec::new()], 3);
    set(&mut observed, [0; 3], |request, value| {
        request.server = value
    });
    observed.requests[0].blocked_ns = 10;
    observed.requests[0].blocked_cause = Cause::BlockedLock as u8;
    observed.requests[0].first_ns = 4;
    let at = |order| {
        let change = change(&observed, Sharing::Assigned, order);
        departures(&observed, &change)
    };
    assert_eq!(at(Order::ByWorker), [31, 25, 36]);
    // the third was finished first: it goes first, and takes the CPU where it may
    let mut third_first = observed.clone();
    set(&mut third_first, [1, 2, 0], |request, value| {
        request.rank = value
    });
    let at = |order| {
        let change = change(&third_first, Sharing::Assigned, order);
        departures(&third_first, &change)
    };
    assert_eq!(at(Order::AsMeasured), [34, 25, 28]);
    // the first takes it at 14 from the second, which had 11 left; the third at 16 from it
    assert_eq!(at(Order::AsMeasuredPreemptive), [23, 36, 19]);
}

#[test]
fn requests_that_wait_together_are_answered_together() {
    // the first wakes the server for 20; the second comes meanwhile, the third later
    let mut observed = observed(
        &[(10, 10, 0, 0), (15, 10, 0, 0), (10, 10, 0, 0)],
        &[vec![(26, 4, 0)]],
    );
    set(&mut observed, [20, NONE, NONE], |request, value| {
        request.wake_ns = value
    });
    set(&mut observed, [6; 3], |request, value| {
        request.compute_ns = value
    });
    set(&mut observed, [4; 3], |request, value| {
        request.reply_ns = value
    });
    // the later of a batch is answered first
    set(&mut observed, [1, 0, 2], |request, value| {
        request.rank = value
    });
    let change = change(&observed, Sharing::Assigned, Order::Batches);
    // on its CPU at 10 + 20 + 4; two times 6, then each 4; then the third
    assert_eq!(departures(&observed, &change), [54, 50, 64]);
}

#[test]
fn a_response_that_is_sent_late_holds_up_no_other_of_its_batch() {
    let mut observed = observed(&[(0, 10, 0, 0), (0, 10, 0, 0)], &[vec![]]);
    observed.requests[0].blocked_ns = 100;
    observed.requests[0].blocked_cause = Cause::StackTx as u8;
    let change = change(&observed, Sharing::Assigned, Order::Batches);
    // both are computed first, and the replies take no time
    assert_eq!(departures(&observed, &change), [120, 20]);
}

#[test]
fn a_worker_that_another_cpu_wakes_is_not_ready_before() {
    // two workers on one CPU: the second one is woken at 6 and is ready 30 later
    let mut observed = observed(&[(1, 10, 0, 0), (5, 10, 0, 0)], &[Vec::new()]);
    observed.servers_are_workers = false;
    observed.workers = vec![7, 8];
    set(&mut observed, [0, 1], |request, value| {
        request.worker = value
    });
    set(&mut observed, [0, 30], |request, value| {
        request.wake_ns = value
    });
    for order in [Order::Arrival, Order::ByWorker, Order::AsMeasured] {
        let change = change(&observed, Sharing::Assigned, order);
        assert_eq!(departures(&observed, &change), [11, 46]);
    }
    // a CPU without power states has none to leave
    observed.requests[1].exit_wake_ns = 10;
    let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
    assert_eq!(departures(&observed, &change), [11, 46]);
    change.no_exit = true;
    assert_eq!(departures(&observed, &change), [11, 36]);
}

#[test]
fn under_an_interrupt_there_is_the_thread_that_keeps_the_cpu_awake() {
    // another thread has the CPU from 190 to 220, and a softirq interrupts it from 200 to 210
    let away = vec![(190, 10, 0), (0, 10, 1), (0, 10, 0)];
    let mut observed = observed(&[(1, 10, 0, 0), (204, 10, 0, 0)], &[away]);
    observed.wakes_ns = vec![(4, 3)];
    let of = |cause| {
        let mut change = change(&observed, Sharing::Assigned, Order::Arrival);
        assert!(without(&mut change, &observed, cause, Nanos::new(10)));
        departures(&observed, &change)
    };
    assert_eq!(of(Cause::Softirq), [15, 225]);
    assert_eq!(of(Cause::Background), [15, 224]);
}

#[test]
fn an_idle_server_is_woken_and_a_busy_one_is_not() {
    let mut observed = observed(
        &[
            (1, 10, 0, 0),
            (5, 10, 0, 0),
            (95, 10, 0, 0),
            (100, 10, 0, 0),
        ],
        &[vec![(190, 30, 0)]],
    );
    set(&mut observed, [3, NONE, NONE, NONE], |request, value| {
        request.wake_ns = value
    });
    observed.wakes_ns = vec![(4, 3)];
    let mut all = change(&observed, Sharing::Assigned, Order::Arrival);
    // the third draws a wake-up; the last finds another thread on the CPU
    assert_eq!(departures(&observed, &all), [14, 24, 115, 230]);
    // it gives way, and keeps the CPU awake as before; the way to it takes as long as it did
    all.limits[0] = 0;
    assert_eq!(departures(&observed, &all), [14, 24, 115, 211]);
    observed.ways_ns = vec![2];
    assert_eq!(departures(&observed, &all), [14, 24, 115, 213]);
    observed.requests[3].way_ns = 1;
    assert_eq!(departures(&observed, &all), [14, 24, 115, 212]);
    // it is gone, and the CPU sleeps
    all.awake[0] = 0;
    assert_eq!(departures(&observed, &all), [14, 24, 115, 215]);
    // the CPU has no power state to leave, neither in a wake-up that was measured nor in one that is drawn
    all.no_exit = true;
    observed.requests[0].exit_wake_ns = 2;
    assert_eq!(departures(&observed, &all), [12, 22, 112, 212]);
    all.no_wake = true;
    assert_eq!(departures(&observed, &all), [11, 21, 111, 211]);
}
