//! The number of requests in the server, from arrivals and departures in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use taillab_model::Monotonic;

use crate::matched::Matched;

/// A change of the number of requests in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request arrived.
    Came,
    /// A request left.
    Left,
}

/// Tracks which requests are in the server while the windows of a recording come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// T6 of the requests in the server.
    leave: BinaryHeap<Reverse<Monotonic>>,
}

impl Crowd {
    /// Calls `tell` for each change in the next window, with its time, the number of requests in the
    /// server before it, and its kind. Departures after the window's last arrival come with the
    /// next window.
    pub(crate) fn walk(&mut self, matched: &Matched, mut tell: impl FnMut(Monotonic, usize, Step)) {
        for place in 0..matched.requests.len() {
            let (t1, t6) = (matched.requests.t1(place), matched.requests.t6(place));
            self.step(t1..t6, &mut tell);
        }
    }

    /// The same for one request that is in the server so long.
    pub(crate) fn step(
        &mut self,
        stay: Range<Monotonic>,
        tell: &mut impl FnMut(Monotonic, usize, Step),
    ) {
        self.leave_until(stay.start, tell);
        tell(stay.start, self.leave.len(), Step::Came);
        self.leave.push(Reverse(stay.end));
    }

    /// The same for the requests that are still in the server after the last window.
    pub(crate) fn finish(mut self, mut tell: impl FnMut(Monotonic, usize, Step)) {
        self.leave_until(Monotonic::MAX, &mut tell);
    }

    fn leave_until(&mut self, at: Monotonic, tell: &mut impl FnMut(Monotonic, usize, Step)) {
        while let Some(&Reverse(left)) = self.leave.peek()
            && left <= at
        {
            tell(left, self.leave.len(), Step::Left);
            self.leave.pop();
        }
    }
}
