//! Detects servers for which a sample of T2 to T5 is not enough.
//!
//! A thread that reads several requests before it answers one works for the first of them while the
//! others wait. If most reads are not recorded, this is not visible: T3 of a request in the sample comes
//! out too early, and work for other requests counts as its own. But such a server can be detected: a
//! response to a request outside of the sample leaves between the read of a request in the sample and
//! its response.

use taillab_model::{MiddleStamps, Monotonic};

use crate::matched::Matched;

/// Counts that show how the server of a sampled recording reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// One request in this many is in the sample; 0 if all are, or none.
    one_in: u32,
    /// Measured requests of the sample that have T4 and a known worker.
    asked: u64,
    /// Those of them whose worker answered another request between T4 and T6.
    together: u64,
}

impl Sample {
    /// Takes the requests of the next window.
    pub(crate) fn add(&mut self, matched: &Matched, measure_from: Monotonic) {
        let MiddleStamps::Sampled(_) = matched.stamps else {
            return;
        };
        self.one_in = matched.stamps.one_in().unwrap_or(0);
        let known = matched.measured_places(measure_from).filter_map(|place| {
            let worker = matched.workers[place];
            (worker != 0).then(|| (worker, matched.requests.t6(place), place))
        });
        let mut answers: Vec<_> = known.collect();
        answers.sort_unstable();
        let mut before = None;
        for (worker, t6, place) in answers {
            if !matched.is_asked(place) {
                before = Some((worker, t6));
                continue;
            }
            let [_, _, t4, _] = matched.requests.stamps(place).middle();
            if let Some(t4) = t4 {
                self.asked += 1;
                let between = before.is_some_and(|(by, at)| by == worker && at > t4);
                self.together += u64::from(between);
            }
        }
    }

    /// The share of the requests that were read together with others; `None` if it is too small to
    /// matter, or if T2 to T5 are known for all requests.
    pub(crate) fn read_together(&self) -> Option<f64> {
        /// Up to this share, the causes do not change.
        const FEW: f64 = 0.02;
        let share = self.together as f64 / self.asked.max(1) as f64;
        (share > FEW).then_some(share)
    }

    /// The limit of a result that is based on a sample, in words.
    pub(crate) fn limit(&self) -> Option<String> {
        let Self { one_in, asked, .. } = self;
        (*one_in > 0).then(|| {
            format!(
                "T2 to T5 were recorded of one request in {one_in}: stages and causes are those of \
                 these {asked} requests, and their intervals are as wide as that makes them. For \
                 what other requests did to them, and for the replay, T2 to T5 of the others are \
                 estimated from T1, T6 and the threads."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{Request, RequestKey, Stamps, Tid};

    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1_000)
    }

    /// Keys of which one is asked for, and the other is not.
    fn keys(stamps: MiddleStamps) -> [RequestKey; 2] {
        let key = |id| RequestKey {
            address: 0,
            port: 1,
            id,
        };
        let first = |asked| {
            (0..)
                .map(key)
                .find(|key| stamps.ask(*key) == asked)
                .unwrap()
        };
        [first(true), first(false)]
    }

    /// Requests (asked, T4, T6, worker).
    fn read_together(requests: &[(bool, u64, u64, Tid)]) -> Option<f64> {
        let stamps = "sampled:1/4".parse().unwrap();
        let [asked_key, other] = keys(stamps);
        let request = |&(asked, t4, t6, _): &(bool, u64, u64, Tid)| Request {
            server: Stamps {
                t1: at(1),
                t2: None,
                t3: None,
                t4: asked.then(|| at(t4)),
                t5: None,
                t6: at(t6),
            },
            client: None,
            operation: None,
        };
        let matched = Matched {
            requests: requests.iter().map(request).collect(),
            keys: (requests.iter())
                .map(|(asked, ..)| if *asked { asked_key } else { other })
                .collect(),
            workers: requests.iter().map(|(.., worker)| *worker).collect(),
            stamps,
            ..Matched::default()
        };
        let mut sample = Sample::default();
        sample.add(&matched, at(0));
        assert!(sample.limit().unwrap().contains("one request in 4"));
        sample.read_together()
    }

    #[test]
    fn a_server_that_answers_what_it_has_read_reads_nothing_together() {
        let requests = [(false, 10, 20, 5), (true, 21, 30, 5), (false, 31, 40, 5)];
        assert_eq!(read_together(&requests), None);
        // another worker's answer says nothing of this one
        let requests = [(false, 10, 25, 6), (true, 21, 30, 5)];
        assert_eq!(read_together(&requests), None);
        assert_eq!(read_together(&[]), None);
    }

    #[test]
    fn an_answer_between_a_read_and_its_answer_shows_reads_of_several() {
        let requests = [(false, 10, 25, 5), (true, 11, 30, 5), (false, 12, 40, 5)];
        assert_eq!(read_together(&requests), Some(1.0));
    }

    #[test]
    fn of_all_requests_nothing_is_a_sample() {
        let mut sample = Sample::default();
        sample.add(&Matched::default(), at(0));
        assert_eq!((sample.limit(), sample.read_together()), (None, None));
    }
}
