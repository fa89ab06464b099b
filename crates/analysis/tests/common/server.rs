//! A simulated server: FIFO from one socket to one or more threads, each on a CPU of its
//! own, with sleep and wake-up, preemption and recycled packet buffers. It emits what
//! the probe would, and knows the true stamps.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::{Event, EventKind, Monotonic, PacketId, RequestKey, Stamps, Tid};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) seed: u64,
    pub(crate) requests: usize,
    pub(crate) threads: usize,
    /// Arrival rate × mean service ÷ threads.
    pub(crate) load: f64,
    /// Ids run from 0 to this − 1 on each port, and then repeat.
    pub(crate) ids: u32,
    pub(crate) ports: u16,
    /// Chance that another thread takes the core during a read, and during the work.
    pub(crate) preemption: f64,
    pub(crate) mean_service_ns: f64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            seed: 1,
            requests: 200,
            threads: 1,
            load: 0.7,
            ids: 65_536,
            ports: 1,
            preemption: 0.05,
            mean_service_ns: 1e6,
        }
    }
}

pub(crate) struct Truth {
    pub(crate) key: RequestKey,
    pub(crate) stamps: Stamps,
}

pub(crate) struct Traffic {
    /// In order of time.
    pub(crate) events: Vec<Event>,
    /// In order of T1.
    pub(crate) truth: Vec<Truth>,
}

const FIRST_TID: Tid = 1_000;
const OTHER_TID: Tid = 77;

struct Worker {
    /// When it finished its last request.
    free: u64,
    /// Since when it has been on its core; `None` while it is not.
    on_core: Option<u64>,
}

fn instant(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

impl Server {
    pub(crate) fn run(&self) -> Traffic {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut events = Vec::new();
        let mut truth = Vec::new();
        // until the first request every core is idle, as its first event shows
        let mut workers: Vec<Worker> = (0..self.threads)
            .map(|cpu| {
                push(&mut events, 1, cpu, switched(OTHER_TID, 0, false));
                Worker {
                    free: 0,
                    on_core: None,
                }
            })
            .collect();
        // (freed at, id): a buffer is used again as soon as it is free, the last one first
        let mut buffers: Vec<(u64, u32)> = Vec::new();
        let mut fresh = 0_u32;
        let (mut t1, mut last_t2) = (1_000_000, 0);
        let gap = self.mean_service_ns / (self.load * self.threads as f64);
        for n in 0..self.requests {
            let mut exp = |mean: f64| 1 + (-mean * rng.random::<f64>().max(1e-12).ln()) as u64;
            t1 += exp(gap);
            let t2 = (t1 + exp(0.05 * self.mean_service_ns)).max(last_t2 + 1);
            last_t2 = t2;
            let id = (n / usize::from(self.ports)) as u32 % self.ids;
            let key =
                RequestKey::hashed(0, 40_000 + (n % usize::from(self.ports)) as u16, id as u16);
            let free_buffer = buffers.iter().rposition(|&(freed, _)| freed < t1);
            let packet = PacketId(match free_buffer {
                Some(place) => buffers.swap_remove(place).1,
                None => {
                    fresh += 1;
                    fresh
                }
            });
            push(
                &mut events,
                t1,
                self.threads,
                EventKind::PacketIn { packet, key },
            );
            push(&mut events, t2, 0, EventKind::Enqueued { packet });

            let cpu = (0..self.threads).min_by_key(|&w| workers[w].free).unwrap();
            let worker = &mut workers[cpu];
            let tid = FIRST_TID + cpu as Tid;
            let previous_t6 = worker.free;
            let doze = previous_t6 + exp(0.02 * self.mean_service_ns);
            if worker.on_core.is_some() && doze < t2 {
                push(&mut events, doze, cpu, switched(tid, 0, false));
                worker.on_core = None;
            }
            let mut now = t2.max(previous_t6);
            let mut on_core = worker.on_core.unwrap_or_else(|| {
                now += exp(0.05 * self.mean_service_ns);
                push(&mut events, now, cpu, switched(0, tid, false));
                now
            });
            let mut preempted = |now: &mut u64, rng: &mut Xoshiro256PlusPlus| {
                let mut step = |mean: f64| 1 + (mean * rng.random::<f64>()) as u64;
                let out = *now + step(1e4);
                let back = out + step(5.0 * self.mean_service_ns);
                push(&mut events, out, cpu, switched(tid, OTHER_TID, true));
                push(&mut events, back, cpu, switched(OTHER_TID, tid, true));
                *now = back;
                back
            };
            if rng.random_bool(self.preemption) {
                on_core = preempted(&mut now, &mut rng);
            }
            let t3 = t2.max(previous_t6).max(on_core);
            let mut exp = |mean: f64| 1 + (-mean * rng.random::<f64>().max(1e-12).ln()) as u64;
            let t4 = now + exp(0.1 * self.mean_service_ns);
            now = t4 + exp(0.7 * self.mean_service_ns);
            let transmit = exp(0.1 * self.mean_service_ns);
            if rng.random_bool(self.preemption) {
                on_core = preempted(&mut now, &mut rng);
            }
            let t5 = now + 1;
            let t6 = t5 + transmit;
            let returned = 72;
            push(
                &mut events,
                t4,
                cpu,
                EventKind::ReadReturned { tid, returned },
            );
            push(&mut events, t5, cpu, EventKind::WriteCalled { tid });
            push(&mut events, t6, cpu, EventKind::PacketOut { tid, key });
            worker.on_core = Some(on_core);
            worker.free = t6;
            buffers.push((t4, packet.0));
            truth.push(Truth {
                key,
                stamps: Stamps::new(
                    instant(t1),
                    [t2, t3, t4, t5].map(|t| Some(instant(t))),
                    instant(t6),
                ),
            });
        }
        events.sort_by_key(|event| event.at);
        Traffic { events, truth }
    }
}

/// A stretch in which the probe was blind on CPU 0.
pub(crate) struct Stretch {
    pub(crate) from: Monotonic,
    pub(crate) to: Monotonic,
}

impl Traffic {
    /// Lets a thread of init onto CPU 0 in a share of the times when the server's thread
    /// is off it, as on kernels that run no probe while init is current: its switch onto
    /// the core is seen, its switch off the core and all packets in between are not.
    pub(crate) fn hide_behind_init(&mut self, seed: u64, share: f64) -> Vec<Stretch> {
        const INIT: Tid = 1;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut seen = Vec::with_capacity(self.events.len());
        let mut left: Option<usize> = None; // the switch off, in `seen`
        for &event in &self.events {
            let EventKind::Switched { next, prev, .. } = event.kind else {
                seen.push(event);
                continue;
            };
            if event.cpu != 0 || next != FIRST_TID {
                left = (event.cpu == 0).then_some(seen.len()).or(left);
                seen.push(event);
                continue;
            }
            let Some(off) = left.take().filter(|_| rng.random_bool(share)) else {
                seen.push(event);
                continue;
            };
            let begin = seen[off].at;
            let length = event.at.saturating_since(begin).get();
            let mut from = begin;
            let mut to = event.at;
            if prev == 0 && length > 10 && rng.random() {
                // only a part of an idle time: idle, init, idle, thread
                from = instant(begin.nanos_since_boot() + length / 3);
                to = instant(begin.nanos_since_boot() + length * 2 / 3);
                let place = seen.partition_point(|e: &Event| e.at < from);
                let kind = switched(0, INIT, false);
                seen.insert(
                    place,
                    Event {
                        at: from,
                        cpu: 0,
                        kind,
                    },
                );
                seen.push(event); // "from idle", after "to init"
            } else if let EventKind::Switched { next, .. } = &mut seen[off].kind {
                *next = INIT;
            }
            seen.retain(|e| {
                let packet = matches!(e.kind, EventKind::Enqueued { .. });
                !(packet && e.at >= from && e.at <= to)
            });
            stretches.push(Stretch { from, to });
        }
        self.events = seen;
        stretches
    }
}

fn switched(prev: Tid, next: Tid, preempted: bool) -> EventKind {
    EventKind::Switched {
        prev,
        next,
        preempted,
        asleep: None,
    }
}

fn push(events: &mut Vec<Event>, at: u64, cpu: usize, kind: EventKind) {
    events.push(Event {
        at: instant(at),
        cpu: cpu as u16,
        kind,
    });
}
