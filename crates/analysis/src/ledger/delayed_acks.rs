//! Which responses waited for an acknowledgement that the client delays (Nagle's algorithm).
//!
//! TCP keeps back the last, short segment of a response until all before it is acknowledged (RFC 896), and a client
//! acknowledges with its next request, or after a delay (RFC 1122, section 4.2.3.2). So a response that is kept back
//! leaves when either comes. One that is written meanwhile on the same connection leaves with it.

use std::ops::RangeInclusive;

use taillab_model::{Monotonic, Nanos};

use crate::id_map::IdMap;
use crate::matched::Matched;

/// How long a client waits with an acknowledgement (`TCP_DELACK_MIN` of Linux is 40 ms), and some milliseconds of
/// its timer.
const DELAY_NS: RangeInclusive<u64> = 36_000_000..=56_000_000;

/// A response that leaves so soon after its first write was not kept back.
const LEAST_NS: u64 = 200_000;

/// What a request acknowledges leaves so soon after its T1.
const AFTER_REQUEST: Nanos = Nanos::from_micros(100);

/// What was kept back on each connection, from window to window.
#[derive(Default)]
pub(super) struct DelayedAcks(IdMap<UnsentStretch>);

/// A stretch in which something that was written always waits to be sent.
#[derive(Clone, Copy)]
struct UnsentStretch {
    since_ns: u64,
    until_ns: u64,
}

impl DelayedAcks {
    /// For each request of the next window, whether its response waited for a delayed acknowledgement, if it waited.
    pub(super) fn of(&mut self, matched: &Matched) -> Vec<bool> {
        let places = 0..matched.requests.len();
        // a connection on which nothing waits any more needs no memory
        let from_ns = match matched.requests.is_empty() {
            true => 0,
            false => matched.requests.t1(0).nanos_since_boot(),
        };
        self.0.retain(|_, kept_back| kept_back.until_ns >= from_ns);
        places
            .map(|place| self.is_kept_back(matched, place))
            .collect()
    }

    fn is_kept_back(&mut self, matched: &Matched, place: usize) -> bool {
        let stamps = matched.requests.stamps(place);
        let Some(t5) = stamps.t5 else {
            return false;
        };
        let (t5_ns, t6_ns) = (t5.nanos_since_boot(), stamps.t6.nanos_since_boot());
        let new = UnsentStretch {
            since_ns: t5_ns,
            until_ns: t6_ns,
        };
        let on_connection = self.0.entry(matched.keys[place].connection).or_insert(new);
        if on_connection.until_ns < t5_ns {
            *on_connection = new;
        }
        on_connection.since_ns = on_connection.since_ns.min(t5_ns);
        on_connection.until_ns = on_connection.until_ns.max(t6_ns);
        let since_ns = on_connection.since_ns;
        DELAY_NS.contains(&t6_ns.saturating_sub(since_ns))
            || t6_ns.saturating_sub(t5_ns) >= LEAST_NS && leaves_with_a_request(matched, place, t5)
    }
}

/// Whether the client's next request on the connection came in right before the response at `place`, which was written at
/// `t5`, left.
fn leaves_with_a_request(matched: &Matched, place: usize, t5: Monotonic) -> bool {
    let requests = &matched.requests;
    let (t6, connection) = (requests.t6(place), matched.keys[place].connection);
    let before = (place + 1..requests.first_from(t6)).rev();
    let mut recent = before.take_while(|&other| requests.t1(other) + AFTER_REQUEST >= t6);
    recent.any(|other| matched.keys[other].connection == connection && requests.t1(other) > t5)
}
