//! The client's side of a measurement with a load of our own.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use taillab_analysis::cut::Spans;
use taillab_analysis::load::{
    LoadAnalysis, LoadClients, LoadFacts, LoadedRequest, response_times, summarise_kept,
};
use taillab_analysis::{ClientRecord, Matched};
use taillab_load::{FleetRun, Outcome};
use taillab_model::summary::ArrivalsVerdict;
use taillab_model::{ClientTimes, Distribution, Monotonic, Peer, WireTimes};
use taillab_report::requests::RequestRow;

/// The record of our own generator.
pub struct Client<'a> {
    /// The generator's record of each request.
    pub load: &'a FleetRun,
    /// The address that they come from, as the server sees it.
    pub address: IpAddr,
}

impl Client<'_> {
    /// All requests that left the client, in order of the actual send.
    pub fn records(&self) -> Vec<ClientRecord> {
        self.load
            .iter_as_sent()
            .filter(|entry| entry.outcome != Outcome::SendFailed)
            .filter_map(|entry| {
                Some(ClientRecord {
                    key: entry.key?,
                    times: entry.times,
                    operation: entry.operation,
                })
            })
            .collect()
    }

    /// Rows of the requests whose intended sends are not in `seen`, which is sorted.
    pub fn unseen<'a>(&'a self, seen: &'a [Monotonic]) -> impl Iterator<Item = RequestRow> + 'a {
        let address = self.address.to_canonical();
        self.load
            .iter()
            .filter(|entry| seen.binary_search(&entry.times.intended).is_err())
            .map(move |entry| RequestRow {
                server: None,
                peer: (entry.key).map(|key| Peer::At(SocketAddr::new(address, key.port))),
                id: entry.key.map(|key| key.id),
                ideal: None,
                worker: None,
                main_cause: None,
                client: Some(entry.times),
                operation: Some(entry.operation),
                warm_up: entry.warm_up,
            })
    }
}

/// The intended sends of the matched requests that the client knows.
pub fn intended_sends(matched: &Matched) -> impl Iterator<Item = Monotonic> {
    let places = 0..matched.requests.len();
    places.filter_map(|place| Some(matched.requests.client(place)?.intended))
}

/// Summarises the requests of a load's measurement: how many there were, and the times of those that are not cut.
pub fn summarise_load(
    load: &FleetRun,
    (target_rate_per_s, target_utilization): (f64, Option<f64>),
    arrivals: ArrivalsVerdict,
    cut: &Spans,
) -> LoadAnalysis {
    let facts = LoadFacts {
        target_rate_per_s,
        target_utilization,
        arrivals,
        client: load.cpu().cost(),
        errors: load.errors(),
        clients: load.clients().map(|(habits, connections)| LoadClients {
            kind: habits.kind,
            connections: u32::try_from(connections).unwrap_or(u32::MAX),
            pipeline: habits.pipeline.map(NonZeroU32::get),
            closing: load.closing(),
        }),
    };
    let kept =
        |request: &LoadedRequest| !cut.contain(request.turn()) && !cut.contain(request.times.sent);
    summarise_kept(|| loaded_requests(load), kept, facts)
}

/// The response times of all requests of a load's measurement, also of those that are cut.
pub fn response_times_at_worst(load: &FleetRun) -> Distribution {
    response_times(|| loaded_requests(load))
}

/// The requests of a load's measurement in order of the intended time. An answer after the time-out does
/// not count.
pub fn loaded_requests(load: &FleetRun) -> impl Iterator<Item = LoadedRequest> {
    load.iter_measured().map(|entry| {
        let answered = entry.outcome != Outcome::TimedOut;
        LoadedRequest {
            times: ClientTimes {
                received: entry.times.received.filter(|_| answered),
                ..entry.times
            },
            wire: WireTimes {
                received: entry.wire.received.filter(|_| answered),
                ..entry.wire
            },
            waited: entry.waited,
            connecting: entry.connecting,
        }
    })
}
