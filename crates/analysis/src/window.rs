//! Cuts a stream of events into windows, so that memory does not grow with its length.
//!
//! [`Windows`] takes events and returns a [`Window`] whenever enough requests have been decided:
//! the requests, and the timeline that belongs to them. A window ends at an instant, not at a
//! request: requests that are in the server then continue in the next window, and so does the
//! ledger that [follows](crate::ledger::Attribution) them. So a cut changes no account.
//!
//! The last [`MARGIN`] before the newest event is left to the next window, because later events may
//! still refer to it: an interrupt is recorded at its end, a blind window when a later event reveals it.
//! Only what reaches back further is lost by cutting.

use taillab_model::{Event, Monotonic, Nanos, RecordingContext};

use crate::ledger::LOOK_BACK;
use crate::matched::Matched;
use crate::matcher::{MatchOptions, Matcher};
use crate::spans::earlier;
use crate::timeline::{MOST_THREADS, Timeline, TimelineBuilder};

/// The least number of requests in a window of a recording that is read from a file.
pub const REQUESTS: usize = 250_000;

/// How long after the end of a window events are still read for it. A TCP retransmission may be
/// recorded this much later (the shortest time-out is 200 ms).
pub const MARGIN: Nanos = Nanos::from_millis(300);

/// The first window shows what is usual for the server. It has at least this many matched requests,
/// unless fewer are asked for.
const SHOWS: usize = 1_000;

/// While no request comes, the timeline is forgotten after so many events. A window that is never complete
/// would hold it for ever.
const IDLE_EVENTS: u32 = 1 << 18;

/// With so many threads a window ends, however few requests it has: half of what the timeline remembers. Where most of
/// them are still needed after that, the next one ends half of the way from there to what it remembers at most.
const CROWDED: usize = MOST_THREADS / 2;

/// The number of events between two checks whether a window is complete.
const LOOK_EVERY: u32 = 4_096;

/// A stretch of a recording: its requests, and what the CPUs did.
#[derive(Clone, Debug)]
pub struct Window {
    /// The requests that arrived before [`Window::upto`] and are not in an earlier window.
    pub matched: Matched,
    /// From the T1 of the oldest request that is in the server at `from`, or a little
    /// earlier, until after `upto`.
    pub timeline: Timeline,
    /// Where the previous window ended; boot for the first.
    pub from: Monotonic,
    /// Where the window ends; [`Monotonic::MAX`] for the last.
    pub upto: Monotonic,
}

impl Window {
    /// Whether no other window comes after this one.
    pub fn is_last(&self) -> bool {
        self.upto == Monotonic::MAX
    }

    /// A whole recording as one window.
    pub fn whole(matched: Matched, timeline: Timeline) -> Self {
        Self {
            matched,
            timeline,
            from: Monotonic::from_nanos_since_boot(0),
            upto: Monotonic::MAX,
        }
    }
}

/// Makes windows from events that come one at a time, in order of time.
pub struct Windows {
    matcher: Matcher,
    timeline: TimelineBuilder,
    requests: usize,
    since_look: u32,
    /// With so many threads the window ends.
    crowded: usize,
    /// Events since a request was held.
    idle: u32,
    from: Monotonic,
    /// T1 and T6 of the requests that were in the server when the last window ended.
    inside: Vec<(Monotonic, Monotonic)>,
}

impl Windows {
    /// Windows of at least this many requests.
    pub fn new(options: MatchOptions, context: &RecordingContext, requests: usize) -> Self {
        Self {
            matcher: Matcher::of_recording(options, context),
            timeline: TimelineBuilder::new(context),
            requests: requests.max(1),
            since_look: 0,
            crowded: CROWDED,
            idle: 0,
            from: Monotonic::from_nanos_since_boot(0),
            inside: Vec::new(),
        }
    }

    /// Takes the next event, and returns a window if one is complete.
    #[inline]
    pub fn observe(&mut self, event: &Event) -> Option<Window> {
        self.matcher.observe(event);
        self.timeline.observe(event);
        let held = self.matcher.held();
        self.idle = match held == 0 && !self.matcher.holds_back() {
            true => self.idle + 1,
            false => 0,
        };
        if self.idle >= IDLE_EVENTS {
            self.idle = 0;
            self.timeline.part(self.keep_from(event.at));
        }
        // threads that have ended are forgotten only with the window that needs them
        let is_crowded = self.timeline.remembered() >= self.crowded;
        if held < self.requests && !is_crowded {
            return None;
        }
        self.since_look += 1;
        if self.since_look < LOOK_EVERY {
            return None;
        }
        self.since_look = 0;
        let is_first = self.from == Monotonic::from_nanos_since_boot(0);
        let matched = if is_first {
            SHOWS.min(self.requests)
        } else {
            0
        };
        let least = match is_crowded {
            true => 1,
            false => self.requests,
        };
        self.cut(event.at, least, matched)
    }

    /// Cuts a window of everything that is settled, even if that is only a few requests; `None` if no
    /// matched request is settled. `now` is the time of the last event.
    pub fn cut_now(&mut self, now: Monotonic) -> Option<Window> {
        self.cut(now, 1, 1)
    }

    /// Cuts a window if at least this many requests are settled, and at least this many of them matched.
    fn cut(&mut self, now: Monotonic, least: usize, matched: usize) -> Option<Window> {
        let settled = self.matcher.settled()?;
        let upto = settled.min(earlier(now, MARGIN));
        if upto <= self.from {
            return None;
        }
        let found = self.matcher.found_before(upto);
        if found < matched || found + self.matcher.unmatched_before(upto) < least {
            return None;
        }
        let matched = self.matcher.take_settled(upto);
        let requests = &matched.requests;
        let times = (0..requests.len()).map(|place| (requests.t1(place), requests.t6(place)));
        self.inside.extend(times);
        self.inside.retain(|(_, t6)| *t6 >= upto);
        let timeline = self.timeline.part(self.keep_from(upto));
        self.crowded = CROWDED.max(usize::midpoint(self.timeline.remembered(), MOST_THREADS));
        Some(Window {
            matched,
            timeline,
            from: std::mem::replace(&mut self.from, upto),
            upto,
        })
    }

    /// From when on the timeline is needed after `upto`.
    fn keep_from(&self, upto: Monotonic) -> Monotonic {
        let oldest = self.inside.iter().map(|(t1, _)| *t1).min();
        let keep_from = earlier(upto, LOOK_BACK);
        oldest.map_or(keep_from, |oldest| oldest.min(keep_from))
    }

    /// The last window, when there are no more events.
    pub fn finish(self, late_events: u64) -> Window {
        let mut matched = self.matcher.finish();
        matched.late_events = late_events;
        Window {
            matched,
            timeline: self.timeline.finish(),
            from: self.from,
            upto: Monotonic::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{EventKind, PacketId, RequestKey};

    use super::*;
    use crate::matched::DatagramIds;

    /// What the CPUs did before a request comes is of no use.
    #[test]
    fn a_server_without_requests_fills_no_memory() {
        let context = RecordingContext::default();
        let mut windows = Windows::new(MatchOptions::default(), &context, 1_000);
        let mut at = Monotonic::from_nanos_since_boot(1_000_000);
        for _ in 0..3 * IDLE_EVENTS {
            at = at + Nanos::from_micros(100);
            let lasted = Nanos::from_micros(10);
            let kind = EventKind::Softirq { vector: 3, lasted };
            assert!(windows.observe(&Event { at, cpu: 0, kind }).is_none());
        }
        let window = windows.finish(0);
        let line = window.timeline.cpu(0).unwrap().segments();
        assert!(line.count() < 3 * IDLE_EVENTS as usize);
    }

    /// One request every 100 µs, of which the server answers the first ones.
    #[test]
    fn requests_without_an_answer_fill_windows_too() {
        let options = MatchOptions {
            stale_after: Nanos::from_millis(10),
            datagram_ids: Some(DatagramIds::Ids),
            ..MatchOptions::default()
        };
        let mut windows = Windows::new(options, &RecordingContext::default(), 1_000);
        let mut found = Vec::new();
        for number in 0..40_000_u16 {
            let at = Monotonic::from_nanos_since_boot(1_000_000 + u64::from(number) * 100_000);
            let key = RequestKey::hashed(0, 1, number);
            let packet = PacketId(number.into());
            let came = EventKind::PacketIn { packet, key };
            let left = EventKind::PacketOut { tid: 9, key };
            let events = [(at, came), (at + Nanos::from_micros(10), left)];
            let seen = if number < 2_000 { 2 } else { 1 };
            for (at, kind) in events.into_iter().take(seen) {
                found.extend(windows.observe(&Event { at, cpu: 0, kind }));
            }
        }
        assert!(found.len() > 4, "{} windows", found.len());
        found.push(windows.finish(0));
        let sizes = found.iter().map(|window| &window.matched);
        let sizes = sizes.map(|matched| (matched.requests.len(), matched.unmatched.len()));
        let sum = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        assert_eq!(sum, (2_000, 38_000));
        assert!(found[0].matched.requests.len() >= SHOWS);
    }

    /// One request every 100 µs, each of a thread of its own. Now and then one has no answer, which keeps what came after it
    /// from being settled for four seconds: longer than it takes for the threads to be a crowd.
    #[test]
    fn a_crowd_that_is_still_needed_does_not_cut_windows_all_the_time() {
        let options = MatchOptions {
            stale_after: Nanos::from_secs(4),
            datagram_ids: Some(DatagramIds::Ids),
            ..MatchOptions::default()
        };
        let mut windows = Windows::new(options, &RecordingContext::default(), 1_000_000);
        let mut found = Vec::new();
        for number in 0..150_000_u32 {
            let at = Monotonic::from_nanos_since_boot(1_000_000 + u64::from(number) * 100_000);
            let key = RequestKey::hashed(0, (number >> 16) as u16, number as u16);
            let packet = PacketId(number);
            let tid = 1_000 + number;
            let switched = |prev, next| EventKind::Switched {
                prev,
                next,
                preempted: false,
                asleep: None,
            };
            let events = [
                EventKind::PacketIn { packet, key },
                switched(0, tid),
                EventKind::WriteCalled { tid },
                switched(tid, 0),
                EventKind::PacketOut { tid, key },
            ];
            let seen = if number % 50 == 0 { 4 } else { 5 };
            for (kind, after) in events.into_iter().zip(0..).take(seen) {
                let at = at + Nanos::from_micros(after);
                found.extend(windows.observe(&Event { at, cpu: 0, kind }));
            }
        }
        assert!((2..20).contains(&found.len()), "{} windows", found.len());
        found.push(windows.finish(0));
        let forgotten = found.iter().map(|window| window.timeline.forgotten());
        assert_eq!(forgotten.sum::<u64>(), 0);
    }
}
