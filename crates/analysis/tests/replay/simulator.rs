//! A server on one CPU, nanosecond by nanosecond, with everything known.
//!
//! Softirqs go before other threads, and these before the server's workers; workers run in the
//! order in which they became runnable, unless one yields, and each serves its requests in order.
//! Times are short, so that the obvious way is fast enough; no code is shared with what is tested.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::Matched;
use taillab_analysis::replay::{CoreTimeline, CpuStretch, Occupant, SourceId, StretchEnd};
use taillab_model::explanation::{Cause, Culprit};
use taillab_model::{Monotonic, Request, RequestKey, Stamps, Tid};

/// The server, its load and its disturbances.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) requests: usize,
    pub(crate) workers: usize,
    /// Mean time between requests.
    pub(crate) gap_ns: f64,
    /// Work on a request until its response: least and most.
    pub(crate) work_ns: (u64, u64),
    /// Work after a response.
    pub(crate) after_ns: u64,
    /// The length of a wake-up of the idle CPU: least and most.
    pub(crate) wake_ns: (u64, u64),
    /// The length of each request's softirq, and whether it runs on the server's CPU.
    pub(crate) softirq_ns: u64,
    pub(crate) softirq_here: bool,
    /// How often another thread runs, and for how long; 0: never.
    pub(crate) background_every_ns: u64,
    pub(crate) background_ns: u64,
    /// One of this many is a thread of the kernel and not a program; 0: none.
    pub(crate) kernel_one_in: u64,
    /// Another thread of lower priority fills the time in which no worker wants the CPU, which
    /// then is never idle.
    pub(crate) filled: bool,
    /// One request in this many sleeps in its middle, for how long, and why; 0: none.
    pub(crate) blocked_one_in: usize,
    pub(crate) blocked_ns: u64,
    pub(crate) blocked_by: Cause,
    /// The first worker gets the CPU only when no other worker wants it.
    pub(crate) first_yields: bool,
    pub(crate) seed: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            requests: 20_000,
            workers: 1,
            gap_ns: 200.0,
            work_ns: (60, 100),
            after_ns: 8,
            wake_ns: (20, 60),
            softirq_ns: 30,
            softirq_here: true,
            background_every_ns: 50_000,
            background_ns: 4_000,
            kernel_one_in: 0,
            filled: false,
            blocked_one_in: 0,
            blocked_ns: 0,
            blocked_by: Cause::BlockedLock,
            first_yields: false,
            seed: 1,
        }
    }
}

/// The timeline of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Track {
    pub(crate) segments: Vec<CpuStretch>,
}

pub(crate) const SOFTIRQ: SourceId = SourceId(0);
pub(crate) const BACKGROUND: SourceId = SourceId(1);
pub(crate) const KERNEL: SourceId = SourceId(2);

impl CoreTimeline for Track {
    fn cpus(&self, _: &[Tid]) -> Vec<u16> {
        vec![0]
    }

    fn segments(&self, _: u16) -> impl Iterator<Item = CpuStretch> + '_ {
        self.segments.iter().copied()
    }

    fn sources(&self) -> usize {
        3
    }

    fn source(&self, id: SourceId) -> (Cause, Option<Culprit>) {
        match id {
            SOFTIRQ => (
                Cause::Softirq,
                Some(Culprit::Softirq {
                    name: "NET_RX".to_owned(),
                }),
            ),
            _ => (
                Cause::Background,
                Some(Culprit::Thread {
                    name: if id == KERNEL { "kworker/u8:1" } else { "dpkg" }.to_owned(),
                    pid: Some(77),
                    tid: None,
                    process: None,
                }),
            ),
        }
    }
}

impl Track {
    fn add(&mut self, at: u64, who: Occupant) {
        let same = self
            .segments
            .last()
            .is_some_and(|last| last.to_ns == at && last.who == who);
        if same {
            if let Some(last) = self.segments.last_mut() {
                last.to_ns = at + 1;
            }
        } else {
            self.segments.push(CpuStretch {
                from_ns: at,
                to_ns: at + 1,
                who,
            });
        }
    }

    /// Sets how the worker left the CPU at the end of its last segment.
    fn left(&mut self, tid: Tid, how: StretchEnd) {
        let mut back = self.segments.iter_mut().rev();
        let last = back
            .find(|segment| matches!(segment.who, Occupant::Server { tid: on, .. } if on == tid));
        if let Some(last) = last {
            last.who = Occupant::Server { tid, end: how };
        }
    }
}

/// The truth of one request.
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    t1: u64,
    worker: usize,
    work: u64,
    wake: u64,
    blocked: u64,
    t2: u64,
    read: u64,
    t6: u64,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    queue: VecDeque<usize>,
    /// The request that it serves, and the work left until its response, and after it.
    serving: Option<usize>,
    before: u64,
    after: u64,
    asleep: bool,
    /// Until when it sleeps in the middle of a request.
    blocked_until: Option<u64>,
    has_slept_inside: bool,
}

pub(crate) fn tid(worker: usize) -> Tid {
    100 + worker as Tid
}

impl Server {
    fn jobs(&self) -> Vec<Job> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut at = 1_000.0_f64;
        (0..self.requests)
            .map(|i| {
                let uniform: f64 = random.random();
                at -= self.gap_ns * (1.0 - uniform).ln();
                let one_in = self.blocked_one_in;
                Job {
                    t1: at as u64,
                    worker: random.random_range(0..self.workers),
                    work: random.random_range(self.work_ns.0..=self.work_ns.1),
                    wake: random.random_range(self.wake_ns.0..=self.wake_ns.1),
                    blocked: match one_in {
                        0 => 0,
                        n if i % n == n / 2 => self.blocked_ns,
                        _ => 0,
                    },
                    ..Job::default()
                }
            })
            .collect()
    }

    /// Takes the worker that gets the CPU from those that want it.
    fn next_of(&self, runnable: &mut VecDeque<usize>) -> Option<usize> {
        let goes_first = |worker: &usize| !self.first_yields || *worker != 0;
        let place = runnable.iter().position(goes_first);
        runnable.remove(place.unwrap_or(0))
    }

    /// Runs the server: what the matcher would find, and who was on the CPU.
    pub(crate) fn run(&self) -> (Matched, Track) {
        let mut jobs = self.jobs();
        let mut track = Track::default();
        let mut workers = vec![
            Worker {
                asleep: true,
                ..Worker::default()
            };
            self.workers
        ];
        let mut packets: VecDeque<(usize, u64)> = VecDeque::new();
        let mut runnable: VecDeque<usize> = VecDeque::new();
        let mut on_core: Option<usize> = None;
        let mut waking = 0_u64;
        let (mut next, mut left) = (0, jobs.len());
        let (mut background, mut by) = (0_u64, BACKGROUND);
        let mut now = 0_u64;
        while left > 0 {
            while next < jobs.len() && jobs[next].t1 <= now {
                packets.push_back((next, self.softirq_ns));
                next += 1;
            }
            if self.background_every_ns > 0 && now % self.background_every_ns == 777 {
                background += self.background_ns;
                let burst = now / self.background_every_ns;
                let kernel = self.kernel_one_in > 0 && burst.is_multiple_of(self.kernel_one_in);
                by = if kernel { KERNEL } else { BACKGROUND };
            }
            for (w, worker) in workers.iter_mut().enumerate() {
                if worker.blocked_until.is_some_and(|until| until <= now) {
                    worker.blocked_until = None;
                    runnable.push_back(w);
                }
            }
            if on_core.is_none() && background == 0 && waking == 0 {
                on_core = self.next_of(&mut runnable);
            }
            // one nanosecond
            let mut delivered = None;
            let mut softirq_ran = false;
            if let Some((packet, work)) = packets.front_mut() {
                *work -= 1;
                softirq_ran = self.softirq_here;
                if *work == 0 {
                    delivered = Some(*packet);
                }
            }
            if delivered.is_some() {
                packets.pop_front();
            }
            let who = if softirq_ran {
                Occupant::Other(SOFTIRQ)
            } else if background > 0 {
                background -= 1;
                Occupant::Other(by)
            } else if waking > 0 {
                waking -= 1;
                Occupant::Idle { deep: false }
            } else if let Some(w) = on_core {
                let worker = &mut workers[w];
                if worker.serving.is_none()
                    && worker.after == 0
                    && let Some(i) = worker.queue.pop_front()
                {
                    worker.serving = Some(i);
                    worker.before = jobs[i].work;
                    worker.has_slept_inside = false;
                    jobs[i].read = now;
                }
                if worker.after > 0 {
                    worker.after -= 1;
                } else {
                    worker.before -= 1;
                }
                Occupant::Server {
                    tid: tid(w),
                    end: StretchEnd::Interrupted,
                }
            } else if self.filled {
                Occupant::Other(BACKGROUND)
            } else {
                Occupant::Idle { deep: false }
            };
            track.add(now, who);
            now += 1;
            if let (Occupant::Server { .. }, Some(w)) = (who, on_core) {
                let worker = &mut workers[w];
                if let Some(i) = worker.serving {
                    let half = jobs[i].work / 2;
                    if jobs[i].blocked > 0 && worker.before == half && !worker.has_slept_inside {
                        worker.has_slept_inside = true;
                        worker.blocked_until = Some(now + jobs[i].blocked);
                        let until_ns = now + jobs[i].blocked;
                        let cause = self.blocked_by;
                        track.left(tid(w), StretchEnd::Sleeps { cause, until_ns });
                        on_core = None;
                    } else if worker.before == 0 {
                        jobs[i].t6 = now;
                        worker.serving = None;
                        worker.after = self.after_ns;
                        left -= 1;
                    }
                }
            }
            if let Some(i) = delivered {
                jobs[i].t2 = now;
                let w = jobs[i].worker;
                workers[w].queue.push_back(i);
                if workers[w].asleep {
                    workers[w].asleep = false;
                    let idle =
                        on_core.is_none() && runnable.is_empty() && background == 0 && waking == 0;
                    if idle && !self.filled {
                        waking = jobs[i].wake;
                    }
                    runnable.push_back(w);
                }
            }
            if let Some(w) = on_core {
                let worker = &mut workers[w];
                let done = worker.serving.is_none() && worker.after == 0;
                if done && worker.queue.is_empty() {
                    worker.asleep = true;
                    let cause = Cause::BlockedOther;
                    let until_ns = u64::MAX;
                    track.left(tid(w), StretchEnd::Sleeps { cause, until_ns });
                    on_core = None;
                }
            }
        }
        (matched(&jobs), track)
    }
}

fn matched(jobs: &[Job]) -> Matched {
    let at = Monotonic::from_nanos_since_boot;
    let request = |job: &Job| {
        let middle = [Some(at(job.t2)), None, Some(at(job.read)), None];
        Request::from(Stamps::new(at(job.t1), middle, at(job.t6)))
    };
    let key = |job: &Job| RequestKey::hashed(0, job.worker as u16, 0);
    Matched {
        requests: jobs.iter().map(request).collect(),
        keys: jobs.iter().map(key).collect(),
        workers: jobs.iter().map(|job| tid(job.worker)).collect(),
        ..Matched::default()
    }
}
