//! The kernels: one way of calculating for each kind of queue, chosen by the specification.
//!
//! A kernel simulates `L` independent replications at once, one per lane, from blocks
//! of arrival and service times. Times are doubles in nanoseconds since a moving origin,
//! multiples of the [grid](taillab_queueing::grid): kernels add, subtract and compare, so they are
//! exact. Where requests leave and arrive at the same instant, those that leave go first.

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

use crate::unavailable::Unavailable;
use taillab_queueing::discipline::{Assignment, Discipline};
use taillab_queueing::grid::Grid;
use taillab_queueing::random::lanes::{LaneRng, Purpose};
use taillab_queueing::random::law::index_below;

use assigned::Assigned;
pub(crate) use events::{EventQueue, Rules, Served};
pub(crate) use kernel::{Block, Finished, Kernel, LANES, ROWS};
use matching::{Matching, Pick};
use per_lane::PerLane;
use sharing::Sharing;
use shortest_queue::ShortestQueue;

/// What a kernel is to simulate.
#[derive(Clone, Copy)]
pub(crate) struct QueueSpec<'a> {
    pub(crate) discipline: &'a Discipline,
    pub(crate) workers: usize,
    /// All service times are equal.
    pub(crate) constant_service: bool,
    /// The factor of each worker's service times; empty when all are 1.
    pub(crate) slowdown: &'a [f64],
    pub(crate) unavailable: &'a [Unavailable],
    /// The mean time between two arrivals of the background class.
    pub(crate) background_gap_ns: f64,
    pub(crate) grid: Grid,
    pub(crate) seed: u64,
}

impl QueueSpec<'_> {
    /// The kernel for this queue, for the replications `first`, `first + 1`, ….
    pub(crate) fn kernel<const L: usize>(&self, first: u64) -> Box<dyn Kernel<L>> {
        let choices = LaneRng::new(self.seed, Purpose::Choice, first);
        if !self.slowdown.is_empty() || !self.unavailable.is_empty() {
            return self.events(first, choices);
        }
        match self.discipline {
            Discipline::Fifo => self.fifo(),
            Discipline::RoundRobin => Box::new(round_robin::RoundRobin::new(self.workers)),
            Discipline::Lifo => Box::new(Matching::new(self.fifo(), Pick::Newest, choices)),
            Discipline::RandomRequest => {
                Box::new(Matching::new(self.fifo(), Pick::Random, choices))
            }
            Discipline::RandomWorker => Box::new(Assigned::random(self.workers, choices)),
            Discipline::Static {
                connections,
                assignment,
            } => {
                let map = |lane| {
                    let replication = first + lane as u64;
                    connection_map(
                        *connections,
                        *assignment,
                        self.workers,
                        self.seed,
                        replication,
                    )
                };
                let maps = std::array::from_fn(map);
                Box::new(Assigned::by_connection(self.workers, maps, choices))
            }
            Discipline::JoinShortestQueue => {
                PerLane::boxed(Some(choices), |_| ShortestQueue::new(self.workers, None))
            }
            Discipline::PowerOfD { d } => PerLane::boxed(Some(choices), |_| {
                ShortestQueue::new(self.workers, Some(*d as usize))
            }),
            Discipline::WorkStealing { .. } => self.events(first, choices),
            Discipline::ProcessorSharing if self.constant_service => {
                PerLane::boxed(None, |_| Sharing::in_turn(self.workers))
            }
            Discipline::ProcessorSharing => {
                PerLane::boxed(None, |_| Sharing::in_any_order(self.workers))
            }
            Discipline::TimeSliced { quantum, switch } => PerLane::boxed(None, |_| {
                let (quantum, switch) = (quantum.get() as f64, switch.get() as f64);
                time_sliced::TimeSliced::new(self.workers, quantum, switch)
            }),
            Discipline::Priority {
                service,
                first: class,
                ..
            } => PerLane::boxed(None, |lane| {
                let background = priority::Background::new(
                    self.background_gap_ns,
                    service,
                    self.grid,
                    self.seed,
                    first + lane as u64,
                );
                priority::Priority::new(self.workers, *class, background)
            }),
        }
    }

    fn fifo<const L: usize>(&self) -> Box<dyn Kernel<L>> {
        if self.constant_service {
            // with equal service times the workers become free in turn
            Box::new(round_robin::RoundRobin::max_plus(self.workers))
        } else if self.workers <= kiefer_wolfowitz::MOST_WORKERS {
            Box::new(kiefer_wolfowitz::KieferWolfowitz::new(self.workers))
        } else {
            Box::new(heap::Heap::new(self.workers))
        }
    }

    fn events<const L: usize>(&self, first: u64, choices: LaneRng<L>) -> Box<dyn Kernel<L>> {
        PerLane::boxed(Some(choices), |lane| {
            EventQueue::new(&self.rules(first + lane as u64))
        })
    }

    /// The rules of this queue for the general event loop, in one replication.
    pub(crate) fn rules(&self, replication: u64) -> Rules {
        Rules {
            discipline: self.discipline.clone(),
            workers: self.workers,
            slowdown: self.slowdown.to_vec(),
            unavailable: self.unavailable.to_vec(),
            connections: match self.discipline {
                Discipline::Static {
                    connections,
                    assignment,
                } => connection_map(
                    *connections,
                    *assignment,
                    self.workers,
                    self.seed,
                    replication,
                ),
                _ => Vec::new(),
            },
            grid: self.grid,
            services_by_start: false,
        }
    }
}

/// The worker of each connection, in one replication.
pub(crate) fn connection_map(
    connections: u32,
    assignment: Assignment,
    workers: usize,
    seed: u64,
    replication: u64,
) -> Vec<u32> {
    let mut rng = LaneRng::<1>::new(seed, Purpose::Assignment, replication);
    (0..connections)
        .map(|i| match assignment {
            Assignment::RoundRobin => i % workers as u32,
            Assignment::Random => index_below(rng.next_of(0), workers as u64) as u32,
        })
        .collect()
}
