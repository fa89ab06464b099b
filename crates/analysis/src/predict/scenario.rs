//! Translates a cause or an effect of a mitigation into a change of the replay.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, Culprit};

use super::mitigation::Effect;
use crate::replay::{Change, Observed, Order, Sharing, VacationSource};

/// Limits the vacations of each source for which `remove` is true. In the rest of their time the CPU may
/// sleep. (Under an interrupt there is what it interrupted.)
pub(crate) fn limit(
    change: &mut Change,
    observed: &Observed,
    at_most_ns: u64,
    remove: impl Fn(&VacationSource) -> bool,
) {
    give_way(change, observed, at_most_ns, &remove);
    for (awake, source) in change.awake.iter_mut().zip(&observed.sources) {
        if remove(source) && source.keeps_awake() {
            *awake = at_most_ns.min(*awake);
        }
    }
}

/// The same, but what takes the vacations goes on when the server leaves it the CPU, which therefore
/// stays awake.
fn give_way(
    change: &mut Change,
    observed: &Observed,
    at_most_ns: u64,
    gives: impl Fn(&VacationSource) -> bool,
) {
    for (limit, source) in change.limits.iter_mut().zip(&observed.sources) {
        if gives(source) {
            *limit = at_most_ns.min(*limit);
        }
    }
}

/// Removes a cause; `false` if the replay has no model of it.
pub(crate) fn without(
    change: &mut Change,
    observed: &Observed,
    cause: Cause,
    service_time: Nanos,
) -> bool {
    match cause {
        Cause::Background | Cause::Irq | Cause::Softirq | Cause::Throttled | Cause::Hypervisor => {
            limit(change, observed, 0, |source| source.cause == cause)
        }
        Cause::Wakeup => change.no_wake = true,
        Cause::IdleExit => {
            change.no_exit = true;
            limit(change, observed, 0, |source| source.cause == cause);
        }
        Cause::BlockedLock
        | Cause::BlockedFault
        | Cause::BlockedIo
        | Cause::BlockedOther
        | Cause::Unobserved => unblock(change, observed, cause, service_time),
        Cause::Order | Cause::OwnThreads if change.discipline.order == Order::Batches => {
            return false;
        }
        // with one thread for each CPU, its requests are served as they come
        Cause::Order | Cause::OwnThreads => change.discipline.order = Order::Arrival,
        Cause::Imbalance => {
            change.discipline.sharing = Sharing::Shared;
            change.discipline.order = Order::Arrival;
        }
        Cause::SlowService => {
            change.work_limit_ns = service_time.get();
        }
        Cause::Retransmit => {
            change.no_loss = observed.has_losses();
            return change.no_loss;
        }
        Cause::SlowCpu => change.usual_speed = true,
        Cause::StackRx
        | Cause::Queue
        | Cause::Service
        | Cause::StackTx
        | Cause::Upstream
        | Cause::Client
        | Cause::Pause
        | Cause::Unexplained => return false,
    }
    true
}

/// Workers no longer sleep because of `cause`. A worker that does not wait for the disk does not do the
/// kernel's work for the access either, so the work of such requests is limited to t.
fn unblock(change: &mut Change, observed: &Observed, cause: Cause, service_time: Nanos) {
    change.unblock(cause);
    if matches!(cause, Cause::BlockedFault | Cause::BlockedIo) {
        change.ease(cause, service_time.get());
    }
    limit(change, observed, 0, |source| source.cause == cause);
}

/// Applies an effect of a mitigation.
pub(crate) fn apply(
    change: &mut Change,
    observed: &Observed,
    effect: &Effect,
    service_time: Nanos,
) {
    match *effect {
        Effect::Threads {
            class,
            at_most_ns,
            stay,
        } => {
            let of_class = |source: &VacationSource| {
                let other = matches!(&source.culprit, Some(Culprit::Thread { name, .. })
                    if class.has(name));
                source.cause == Cause::Background && !source.own && other
            };
            match stay {
                true => give_way(change, observed, at_most_ns, of_class),
                false => limit(change, observed, at_most_ns, of_class),
            }
        }
        Effect::DeviceInterrupts => limit(change, observed, 0, |source| {
            source.cause == Cause::Irq
                && matches!(
                    source.culprit,
                    Some(Culprit::Interrupt {
                        number: Some(_),
                        ..
                    })
                )
        }),
        Effect::LocalTimer => limit(change, observed, 0, |source| {
            source.cause == Cause::Irq
                && matches!(&source.culprit, Some(Culprit::Interrupt { name, .. })
                    if name.contains("timer"))
        }),
        Effect::Softirqs(names) => limit(change, observed, 0, |source| {
            let named = matches!(&source.culprit, Some(Culprit::Softirq { name })
                if names.contains(&name.as_str()));
            source.cause == Cause::Softirq && (names.is_empty() || named)
        }),
        Effect::Without(cause) => {
            without(change, observed, cause, service_time);
        }
        Effect::SharedQueue => change.discipline.sharing = Sharing::Shared,
        Effect::InOrder => {
            let order = &mut change.discipline.order;
            if let Order::AsMeasured | Order::AsMeasuredPreemptive = order {
                *order = match observed.workers_share_servers() {
                    true => Order::ByWorker,
                    false => Order::Arrival,
                };
            }
        }
        Effect::CpuLess => change.fewer_servers = 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::agreement::{change, observed};

    const T: Nanos = Nanos::new(100);

    /// Where a worker reads all that waits and then answers it, what it computes is known of all these requests
    /// together, and not of one that would be served before them.
    #[test]
    fn batches_have_no_other_order() {
        let observed = observed(&[(1_000, 100, 0, 0); 3], &[vec![], vec![]]);
        let of = |order| change(&observed, Sharing::Assigned, order);
        for cause in [Cause::Order, Cause::OwnThreads] {
            let mut changed = of(Order::Batches);
            assert!(!without(&mut changed, &observed, cause, T), "{cause:?}");
            // a mitigation without an effect has no forecast
            apply(&mut changed, &observed, &Effect::Without(cause), T);
            assert_eq!(changed, of(Order::Batches), "{cause:?}");
            for other in [Order::ByWorker, Order::AsMeasured] {
                let mut changed = of(other);
                assert!(without(&mut changed, &observed, cause, T), "{cause:?}");
                assert_eq!(changed, of(Order::Arrival), "{cause:?}");
            }
        }
    }
}
