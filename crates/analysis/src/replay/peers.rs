//! What the server's CPUs do for the clients: where these are on the same machine, at the other end of a virtual
//! network, the kernel receives a response on the CPU that sends it, before the thread goes on.
//!
//! It is a receive softirq, as that of requests is, and a part of t. But it goes with the response, and not with a CPU
//! that receives requests: so it is work of the thread that sends, and to receive requests elsewhere does not move it.
//!
//! On loopback it is otherwise: requests are received on the CPUs of their clients, and one setting moves what receives
//! the responses. There all receive softirqs of the server's CPUs are vacations.

use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit};

/// What kind of source of vacations it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceKind {
    pub(super) cause: Cause,
    /// It is the network's receive softirq.
    pub(super) receives: bool,
}

impl SourceKind {
    pub(super) fn of((cause, culprit): &(Cause, Option<Culprit>)) -> Self {
        let receives = matches!(culprit, Some(Culprit::Softirq { name }) if name == "NET_RX");
        Self {
            cause: *cause,
            receives,
        }
    }
}

/// Who receives what on the server's CPUs, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    /// Of each CPU: the worker that sent a response in the stretch before.
    pub(super) responded: Vec<Option<(usize, Tid)>>,
    /// Requests that these CPUs received in other softirqs than those after a response.
    pub(super) requests: u64,
    responses: u64,
    /// How many softirqs received nothing but a response, and for how long in all.
    alone: (u64, u64),
}

impl Peers {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            responded: vec![None; cpus],
            ..Self::default()
        }
    }

    /// A worker has sent a response on a CPU; `now` if in the stretch that ends here.
    pub(super) fn sent(&mut self, cpu: usize, worker: (usize, Tid), now: bool) {
        self.responses += 1;
        if now {
            self.responded[cpu] = Some(worker);
        }
    }

    /// Whether the server's CPUs receive its requests, and with the responses the work of others.
    pub(super) const fn are_here(&self) -> bool {
        self.requests * 4 >= self.responses
    }

    /// The part of a softirq after a response that receives it; `requests` arrived meanwhile.
    pub(super) fn part_of_response(&mut self, length_ns: u64, requests: u64) -> u64 {
        let (count, sum_ns) = &mut self.alone;
        if requests == 0 {
            *count += 1;
            *sum_ns += length_ns;
            return length_ns;
        }
        let usual_ns = sum_ns.checked_div(*count).unwrap_or(0);
        usual_ns.min(length_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_softirq_with_requests_has_the_usual_part_for_its_response() {
        let mut peers = Peers::new(1);
        assert_eq!(peers.part_of_response(9, 1), 0);
        assert_eq!(peers.part_of_response(4, 0), 4);
        assert_eq!(peers.part_of_response(6, 0), 6);
        assert_eq!(peers.part_of_response(9, 2), 5);
        assert_eq!(peers.part_of_response(3, 1), 3);
    }

    /// Half of the requests may be received in softirqs that begin with a response.
    #[test]
    fn on_loopback_the_softirqs_of_responses_are_as_any_others() {
        let mut peers = Peers::new(1);
        for _ in 0..100 {
            peers.requests += 1;
            peers.sent(0, (0, 7), true);
            peers.sent(0, (0, 7), false);
        }
        assert!(peers.are_here());
        assert_eq!(peers.responded, [Some((0, 7))]);
        peers.requests = 10;
        assert!(!peers.are_here());
    }
}
