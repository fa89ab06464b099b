//! The kernels: one algorithm for each kind of queue, chosen by the specification.
//!
//! A kernel simulates `L` independent replications at once, one per lane, from blocks of arrival and service
//! times. Times are doubles in nanoseconds since a moving origin, and multiples of the
//! [grid](taillab_queueing::grid). Kernels only add, subtract and compare them, so they are exact. If requests
//! leave and arrive at the same instant, those that leave go first.

mod assigned;
mod events;
mod heap;
mod kernel;
mod kiefer_wolfowitz;
mod matching;
mod per_lane;
mod priority;
mod ring;
mod round_robin;
mod sharing;
mod shortest_queue;
mod time_sliced;

#[cfg(test)]
mod agreement;

use crate::station::Station;
use taillab_queueing::discipline::{Assignment, Discipline};
use taillab_queueing::grid::Grid;
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::random::law::index_below;

use assigned::Assigned;
use events::{EventQueue, Rules};
pub(crate) use kernel::{Block, Finished, Kernel, LANES, ROWS};
use matching::{Matching, Pick};
use per_lane::PerLane;
use sharing::Sharing;
use shortest_queue::ShortestQueue;

impl Station<'_> {
    /// The kernel for this queue, for the replications `first`, `first + 1`, ….
    pub(crate) fn kernel<const L: usize>(&self, grid: Grid, first: u64) -> Box<dyn Kernel<L>> {
        let (workers, constant_service) = (self.count(), self.service.constant().is_some());
        let choices = LaneRng::new(self.seed, Purpose::Choice, first);
        match self.discipline {
            Discipline::Fifo => self.fifo(),
            Discipline::RoundRobin => Box::new(round_robin::RoundRobin::new(workers)),
            Discipline::Lifo => Box::new(Matching::new(self.fifo(), Pick::Newest, choices)),
            Discipline::RandomRequest => {
                Box::new(Matching::new(self.fifo(), Pick::Random, choices))
            }
            Discipline::RandomWorker => Box::new(Assigned::random(workers, choices)),
            Discipline::Static { .. } => {
                let maps = std::array::from_fn(|lane| self.connections(first + lane as u64));
                Box::new(Assigned::by_connection(workers, maps, choices))
            }
            Discipline::JoinShortestQueue => {
                PerLane::boxed(Some(choices), |_| ShortestQueue::new(workers, None))
            }
            Discipline::PowerOfD { d } => PerLane::boxed(Some(choices), |_| {
                ShortestQueue::new(workers, Some(*d as usize))
            }),
            Discipline::WorkStealing { .. } => PerLane::boxed(Some(choices), |lane| {
                EventQueue::new(&self.rules(first + lane as u64))
            }),
            Discipline::ProcessorSharing if constant_service => {
                PerLane::boxed(None, |_| Sharing::in_turn(workers))
            }
            Discipline::ProcessorSharing => {
                PerLane::boxed(None, |_| Sharing::in_any_order(workers))
            }
            Discipline::TimeSliced { quantum, switch } => PerLane::boxed(None, |_| {
                let (quantum, switch) = (quantum.get() as f64, switch.get() as f64);
                time_sliced::TimeSliced::new(workers, quantum, switch)
            }),
            Discipline::Priority {
                background,
                service,
                first: class,
            } => PerLane::boxed(None, |lane| {
                let background = priority::Background::new(
                    service.mean_ns() / (background * self.capacity()),
                    service,
                    grid,
                    self.seed,
                    first + lane as u64,
                );
                priority::Priority::new(workers, *class, background)
            }),
        }
    }

    fn fifo<const L: usize>(&self) -> Box<dyn Kernel<L>> {
        let workers = self.count();
        if self.service.constant().is_some() {
            // with equal service times, the workers become free in turn
            Box::new(round_robin::RoundRobin::max_plus(workers))
        } else if workers <= kiefer_wolfowitz::MOST_WORKERS {
            Box::new(kiefer_wolfowitz::KieferWolfowitz::new(workers))
        } else {
            Box::new(heap::Heap::new(workers))
        }
    }

    /// The rules of this queue for the general event loop, in one replication.
    fn rules(&self, replication: u64) -> Rules {
        Rules {
            discipline: self.discipline.clone(),
            workers: self.count(),
            connections: self.connections(replication),
            services_by_start: false,
        }
    }

    /// The worker of each connection, in one replication; empty for disciplines without connections.
    pub(crate) fn connections(&self, replication: u64) -> Vec<u32> {
        let Discipline::Static {
            connections,
            assignment,
        } = *self.discipline
        else {
            return Vec::new();
        };
        let workers = self.workers.get();
        let mut rng = LaneRng::<1>::new(self.seed, Purpose::Assignment, replication);
        (0..connections)
            .map(|i| match assignment {
                Assignment::RoundRobin => i % workers,
                Assignment::Random => index_below(rng.next_of(0), workers.into()) as u32,
            })
            .collect()
    }
}
