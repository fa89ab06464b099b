//! Explains the tail of round trips: divides every round trip into parts, and compares the slow ones with the
//! usual ones.
//!
//! Slow round trips come in bursts. So intervals are computed over blocks of neighbouring round trips (a
//! ratio of sums, linearised), not over single round trips.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use taillab_model::explanation::{Cause, Culprit, Share};
use taillab_model::interval::ratio_of_sums;
use taillab_model::rtt::{
    RoundTrip, RttBand, RttDisturbance, RttEnd, RttExplanation, RttPart, RttPartMean,
};
use taillab_model::{ClientTimes, Event, Monotonic, Nanos, Peer, RecordingContext, Tid};

use super::split::{Ends, Splitter};
use crate::client::{ClientRecord, ClientRecords};
use crate::ledger::Labels;
use crate::matched::DatagramIds;
use crate::matcher::{InOrder, MatchOptions};
use crate::statistics::distribution_of;
use crate::window::{Window, Windows};

const PARTS: usize = RttPart::ALL.len();
/// The number of blocks of neighbouring round trips.
const BLOCKS: usize = 50;
/// The minimum number of round trips in a band.
const LEAST: usize = 20;
/// The usual round trips lie between these quantiles.
const USUAL: Range<f64> = 0.25..0.75;
/// Where the bands of slow round trips begin; disturbances are shown for the first band.
const SLOW: [f64; 3] = [0.99, 0.999, 0.9999];
/// The number of disturbances that are named.
const NAMED: usize = 8;

/// One round trip.
#[derive(Debug, Serialize, Deserialize)]
struct Trip {
    rtt: u64,
    parts: [u64; PARTS],
}

/// A disturbance: what had a CPU, at which end.
type Key = (RttEnd, Cause, Option<Culprit>);

/// How long something had a CPU within a round trip.
#[derive(Debug, Serialize, Deserialize)]
struct TakenFrom {
    /// Its place among the round trips.
    trip: usize,
    key: Key,
    ns: u64,
}

/// The round trips of one recording, divided into parts. It can be serialised, so that a process without root divides
/// what the one that measures has recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DividedTrips {
    trips: Vec<Trip>,
    incomplete: u64,
    taken: Vec<TakenFrom>,
}

impl DividedTrips {
    /// Divides the round trips of a recording. `events` are in order of time; `round_trips` are in order of their
    /// sends, and each lies within the recording.
    pub fn of(
        events: impl Iterator<Item = Event>,
        context: &RecordingContext,
        round_trips: &[RoundTrip],
        ends: Ends<'_>,
    ) -> Self {
        let options = MatchOptions {
            datagram_ids: Some(DatagramIds::Order),
            hashed_clients: context.hashed_clients,
            ..MatchOptions::for_streams(context.timeout_ns.unwrap_or(Nanos::from_secs(1)), true)
        };
        let mut windows = Windows::new(options, context, usize::MAX);
        let mut events = InOrder::new(events, options.disorder);
        for event in events.by_ref() {
            windows.observe(&event);
        }
        let mut window = windows.finish(events.late());
        join(&mut window, round_trips, ends);
        let own = threads_of(&window, ends);
        let splitter = Splitter {
            timeline: &window.timeline,
            ends,
            own: &own,
        };
        let mut labels = Labels::new(context);
        let mut divided = Self::default();
        for place in 0..window.matched.requests.len() {
            let request = window.matched.requests.get(place);
            let connection = window.matched.keys[place].connection;
            let port = window.matched.clients.of(connection).map_or(0, Peer::port);
            let Some((times, received)) = request.client.and_then(|c| Some((c, c.received?)))
            else {
                continue;
            };
            let client = ends.clients.iter().find(|client| client.port == port);
            let split = client.and_then(|client| {
                let trip = times.sent..received;
                let worker = window.matched.workers[place];
                splitter.split(client, worker, trip, &request.server, &mut labels)
            });
            let Some(split) = split else {
                continue;
            };
            let at = divided.trips.len();
            divided.trips.push(Trip {
                rtt: received.saturating_since(times.sent).get(),
                parts: split.parts,
            });
            for (end, label, ns) in split.taken {
                let key = (end, labels.cause(label), labels.culprit_of_group(label));
                divided.taken.push(TakenFrom { trip: at, key, ns });
            }
        }
        let found = divided.trips.len() as u64;
        divided.incomplete = (round_trips.len() as u64).saturating_sub(found);
        divided
    }
}

/// Explains the round trips of several recordings.
#[derive(Debug, Default)]
pub struct Explainer {
    trips: Vec<Trip>,
    incomplete: u64,
    disturbances: BTreeMap<Key, Vec<(usize, u64)>>,
}

impl Explainer {
    /// Adds the round trips of a recording.
    pub fn add(&mut self, divided: DividedTrips) {
        let before = self.trips.len();
        self.trips.extend(divided.trips);
        self.incomplete += divided.incomplete;
        for TakenFrom { trip, key, ns } in divided.taken {
            let of_key = self.disturbances.entry(key).or_default();
            of_key.push((before + trip, ns));
        }
    }

    /// The explanation of all recordings together; `None` if no round trip has all stamps.
    pub fn finish(self, lost_events: u64) -> Option<RttExplanation> {
        if self.trips.is_empty() {
            return None;
        }
        let lengths: Vec<Nanos> = self.trips.iter().map(|trip| Nanos::new(trip.rtt)).collect();
        let mut order: Vec<usize> = (0..self.trips.len()).collect();
        order.sort_by_key(|&at| self.trips[at].rtt);
        let between = |quantiles: Range<f64>| {
            let rank = |q: f64| ((q * order.len() as f64).ceil() as usize).min(order.len());
            &order[rank(quantiles.start)..rank(quantiles.end)]
        };
        let usual_trips = between(USUAL);
        let mut bands = Vec::new();
        let mut disturbances = Vec::new();
        if usual_trips.len() >= LEAST {
            let usual = self.usual(usual_trips);
            bands.push(self.band(USUAL, usual_trips, None));
            let slow = SLOW.map(|from| (from, between(from..1.0)));
            for (from, trips) in slow.into_iter().filter(|(_, trips)| trips.len() >= LEAST) {
                bands.push(self.band(from..1.0, trips, Some(&usual)));
            }
            if slow[0].1.len() >= LEAST {
                disturbances = self.disturbances(slow[0].1, &usual);
            }
        }
        Some(RttExplanation {
            round_trips: self.trips.len() as u64,
            incomplete: self.incomplete,
            lost_events,
            rtt: distribution_of(&lengths),
            bands,
            disturbances,
        })
    }

    fn usual(&self, trips: &[usize]) -> UsualTrip {
        let n = trips.len() as f64;
        let mean = |of: &dyn Fn(&Trip) -> u64| {
            let sum: f64 = trips.iter().map(|&at| of(&self.trips[at]) as f64).sum();
            sum / n
        };
        UsualTrip {
            rtt: mean(&|trip| trip.rtt),
            parts: std::array::from_fn(|part| mean(&|trip| trip.parts[part])),
        }
    }

    fn band(&self, quantiles: Range<f64>, trips: &[usize], usual: Option<&UsualTrip>) -> RttBand {
        let ratio = |part: &dyn Fn(&Trip) -> f64, of: &dyn Fn(&Trip) -> f64| {
            let each = trips.iter().map(|&at| {
                let trip = &self.trips[at];
                (at, part(trip), of(trip))
            });
            ratio_over_blocks(each, self.trips.len())
        };
        let nanos = |ns: f64| Nanos::new(ns.max(0.0).round() as u64);
        let part = |part: RttPart| {
            let place = part as usize;
            let mean = ratio(&|trip| trip.parts[place] as f64, &|_| 1.0);
            RttPartMean {
                part,
                mean_ns: nanos(mean.value),
                lo_ns: mean.lo.map(nanos),
                hi_ns: mean.hi.map(nanos),
                excess: usual.map(|usual| {
                    let longer = |trip: &Trip| trip.parts[place] as f64 - usual.parts[place];
                    ratio(&longer, &|trip| trip.rtt as f64 - usual.rtt)
                }),
            }
        };
        RttBand {
            from_q: quantiles.start,
            to_q: quantiles.end,
            round_trips: trips.len() as u64,
            mean_ns: nanos(ratio(&|trip| trip.rtt as f64, &|_| 1.0).value),
            parts: RttPart::ALL.map(part).to_vec(),
        }
    }

    fn disturbances(&self, slow: &[usize], usual: &UsualTrip) -> Vec<RttDisturbance> {
        let mut found: Vec<RttDisturbance> = (self.disturbances.iter())
            .filter_map(|((end, cause, culprit), all)| {
                let mut of_trip: BTreeMap<usize, u64> = BTreeMap::new();
                for &(at, ns) in all {
                    *of_trip.entry(at).or_default() += ns;
                }
                let in_slow = |at: &usize| of_trip.get(at).copied().unwrap_or(0);
                let total: u64 = slow.iter().map(in_slow).sum();
                let each = slow.iter().map(|&at| {
                    let longer = self.trips[at].rtt as f64 - usual.rtt;
                    (at, in_slow(&at) as f64, longer)
                });
                (total > 0).then(|| RttDisturbance {
                    end: *end,
                    cause: *cause,
                    culprit: culprit.clone(),
                    round_trips: slow.iter().filter(|at| in_slow(at) > 0).count() as u64,
                    total_ns: Nanos::new(total),
                    share: ratio_over_blocks(each, self.trips.len()),
                })
            })
            .collect();
        found.sort_by_key(|disturbance| std::cmp::Reverse(disturbance.total_ns));
        found.truncate(NAMED);
        found
    }
}

/// Means of the usual round trips, in nanoseconds.
struct UsualTrip {
    rtt: f64,
    parts: [f64; PARTS],
}

/// Joins the client's times to the requests of the window. A connection has one message under way at a
/// time, so its port and the order in time identify a request.
fn join(window: &mut Window, round_trips: &[RoundTrip], ends: Ends<'_>) {
    for key in &mut window.matched.keys {
        key.id = 0;
    }
    let records = round_trips.iter().filter_map(|trip| {
        let client = ends.clients.get(usize::from(trip.connection))?;
        Some(ClientRecord {
            key: taillab_model::SentKey {
                port: client.port,
                id: 0,
            },
            times: ClientTimes {
                intended: trip.sent,
                sent: trip.sent,
                received: (!trip.lost).then_some(trip.sent + trip.rtt),
            },
            operation: taillab_model::Operation::Call,
        })
    });
    ClientRecords::new(records, None, Monotonic::from_nanos_since_boot(0)).join(window);
}

/// The threads of both ends.
fn threads_of(window: &Window, ends: Ends<'_>) -> Vec<Tid> {
    let clients = ends.clients.iter().map(|client| client.thread);
    let mut own: Vec<Tid> = clients
        .chain(window.matched.workers.iter().copied())
        .collect();
    own.sort_unstable();
    own.dedup();
    own
}

/// Σ part ÷ Σ all with its interval. The place of each item among `places` determines its block.
fn ratio_over_blocks(each: impl Iterator<Item = (usize, f64, f64)>, places: usize) -> Share {
    let mut blocks = [(0.0, 0.0, 0_u64); BLOCKS];
    for (at, part, all) in each {
        let block = &mut blocks[at * BLOCKS / places.max(1)];
        *block = (block.0 + part, block.1 + all, block.2 + 1);
    }
    let full: Vec<(f64, f64)> = (blocks.iter())
        .filter(|block| block.2 > 0)
        .map(|block| (block.0, block.1))
        .collect();
    ratio_of_sums(&full)
}

#[cfg(test)]
mod tests;
