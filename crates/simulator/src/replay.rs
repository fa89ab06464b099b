//! Simulates a queue request by request, with known arrivals, service times and vacations of the workers.

use std::num::NonZeroU32;

use taillab_model::Nanos;

use crate::error::{SimulationError, TraceError, parameter};
use crate::kernels::{EventQueue, Served};
use crate::station::Station;
use crate::unavailable::Unavailable;
use taillab_queueing::discipline::Discipline;
use taillab_queueing::grid::Grid;
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::service::Service;

/// A queue for replays.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The number of workers.
    pub workers: NonZeroU32,
    /// The discipline, without preemption.
    pub discipline: Discipline,
    /// The factor of each worker's service times; empty if all are 1.
    pub slowdown: Vec<f64>,
    /// The vacations of workers, on the same clock as the arrivals.
    pub unavailable: Vec<Unavailable>,
    /// The seed of random choices.
    pub seed: u64,
}

/// One request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// When it arrives, from any common origin.
    pub arrival: Nanos,
    /// Its service time.
    pub service: Nanos,
    /// The worker that must serve it, in order of arrival, for a server with a queue for each worker. `None`
    /// leaves it to the discipline.
    pub worker: Option<u32>,
}

/// The result for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedRequest {
    /// When its service starts.
    pub start: Nanos,
    /// When it leaves, including vacations of its worker.
    pub departure: Nanos,
    /// The worker that serves it, from 0.
    pub worker: u32,
}

impl Replay {
    /// FIFO over these workers, without vacations.
    pub fn fifo(workers: NonZeroU32) -> Self {
        Self {
            workers,
            discipline: Discipline::Fifo,
            slowdown: Vec::new(),
            unavailable: Vec::new(),
            seed: 1,
        }
    }

    /// Replays the requests; the result is in the same order. Times up to 2⁵³ ns
    /// (104 days) are exact to the nanosecond. A service time that a slowdown stretches is rounded to a
    /// whole one.
    ///
    /// # Errors
    /// [`SimulationError`] if the requests are out of order, a worker does not exist, or the discipline is
    /// preemptive.
    pub fn run(&self, requests: &[ReplayRequest]) -> Result<Vec<ReplayedRequest>, SimulationError> {
        // a placeholder: each request has its own service time
        let service = Service::deterministic(Nanos::new(1));
        let station = Station {
            service: &service,
            workers: self.workers,
            discipline: &self.discipline,
            slowdown: &self.slowdown,
            unavailable: &self.unavailable,
            seed: self.seed,
        };
        station.check()?;
        if self.discipline.is_preemptive() {
            return Err(SimulationError::Unsupported {
                discipline: self.discipline.to_string(),
                feature: "a replay request by request",
            });
        }
        let workers = self.workers.get();
        let mut earlier = Nanos::ZERO;
        for (i, request) in requests.iter().enumerate() {
            if request.arrival < earlier {
                return Err(SimulationError::Trace(TraceError::Unsorted {
                    position: i as u64 + 1,
                    earlier: earlier.get(),
                    later: request.arrival.get(),
                }));
            }
            if let Some(worker) = request.worker {
                let (what, wanted) = ("the worker of a request", "below the number of workers");
                parameter(what, wanted, f64::from(worker), worker < workers)?;
            }
            earlier = request.arrival;
        }
        let mut queue = EventQueue::new(&station.rules(Grid::WHOLE, 0));
        let mut choices = LaneRng::<1>::new(self.seed, Purpose::Choice, 0);
        let unserved = ReplayedRequest {
            start: Nanos::MAX,
            departure: Nanos::MAX,
            worker: 0,
        };
        let mut replayed = vec![unserved; requests.len()];
        let mut note = |served: Served| {
            replayed[served.id as usize] = ReplayedRequest {
                start: Nanos::new(served.start as u64),
                departure: Nanos::new(served.departure as u64),
                worker: served.worker as u32,
            };
        };
        for request in requests {
            queue.request(
                request.arrival.get() as f64,
                request.service.get() as f64,
                choices.next_of(0),
                request.worker.map(|w| w as usize),
                &mut note,
            );
        }
        queue.serve_rest(&mut note);
        Ok(replayed)
    }
}
