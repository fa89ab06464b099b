//! The kernel's stamps of the requests, in columns that exist only if stamps are on.

use taillab_model::{Monotonic, Nanos, WireTimes};

use crate::stamps::KernelStamps;

/// The largest error when stamps are converted to the generator's clock.
const TOLERANCE: Nanos = Nanos::from_micros(1);

/// 8 bytes per request for each kind of stamp.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelTimes {
    sent: Vec<Option<Monotonic>>,
    received: Vec<Option<Monotonic>>,
}

impl KernelTimes {
    /// Columns for `requests` rows, all memory touched.
    pub(super) fn new(stamps: KernelStamps, requests: usize) -> Self {
        let column = |wanted: bool| {
            let rows = if wanted { requests } else { 0 };
            // filled first with bytes that are not zero: zeroed pages would stay untouched
            let mut column = vec![Some(Monotonic::from_nanos_since_boot(0)); rows];
            column.fill(None);
            column
        };
        Self {
            sent: column(stamps.sent),
            received: column(stamps.received),
        }
    }

    pub(super) fn get(&self, k: usize) -> WireTimes {
        WireTimes {
            sent: self.sent.get(k).copied().flatten(),
            received: self.received.get(k).copied().flatten(),
        }
    }

    /// Notes when request `k` left, which the generator sent at `before`.
    ///
    /// A stamp earlier than the send is dropped: it belongs to another datagram, or the clock was
    /// set in between. So is a second stamp of the same request: a packet sent
    /// again, or an old number of the socket.
    #[inline]
    pub(super) fn sent(&mut self, k: usize, at: Monotonic, before: Monotonic) {
        if let Some(row) = self.sent.get_mut(k)
            && row.is_none()
            && at + TOLERANCE >= before
        {
            *row = Some(at);
        }
    }

    /// Notes when the answer to request `k` came in. The generator sent the request at `sent` and
    /// got the answer at `after`.
    #[inline]
    pub(super) fn received(&mut self, k: usize, at: Monotonic, sent: Monotonic, after: Monotonic) {
        if let Some(row) = self.received.get_mut(k)
            && at + TOLERANCE >= sent
            && at <= after + TOLERANCE
        {
            *row = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1000)
    }

    #[test]
    fn plausible_stamps_are_kept_and_others_are_not() {
        let mut times = KernelTimes::new(KernelStamps::ALL, 4);
        times.sent(0, at(11), at(10));
        times.sent(0, at(12), at(10));
        times.received(0, at(19), at(10), at(20));
        let expected = WireTimes {
            sent: Some(at(11)),
            received: Some(at(19)),
        };
        assert_eq!(times.get(0), expected);
        // before the send, after the receipt
        times.sent(1, at(5), at(10));
        times.received(1, at(25), at(10), at(20));
        times.received(2, at(5), at(10), at(20));
        // no such request
        times.sent(9, at(11), at(10));
        for k in [1, 2, 9] {
            assert_eq!(times.get(k), WireTimes::default());
        }
    }

    #[test]
    fn without_stamps_there_are_no_columns() {
        let mut times = KernelTimes::new(KernelStamps::NONE, 1000);
        times.sent(0, at(11), at(10));
        times.received(0, at(11), at(10), at(20));
        assert_eq!(times.get(0), WireTimes::default());
        assert_eq!(times.sent.capacity() + times.received.capacity(), 0);
        assert_eq!(size_of::<Option<Monotonic>>(), 8);
    }
}
