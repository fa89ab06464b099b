//! Faults that a built-in server has on purpose, so that it is known what delayed it.
//!
//! | [`Fault`] | what happens | what a right explanation calls it |
//! |---|---|---|
//! | `slow:N,TIME` | every N-th request of a worker burns CPU time | slow service |
//! | `lock:TIME,TIME` | every so often a thread holds, for so long, the lock that each request takes | a lock, held by `lock-holder` |
//! | `fault:N,PAGES` | every N-th request touches fresh pages | slow service in page faults |
//! | `major-fault:N,PAGES` | every N-th request touches pages that are on disk only | blocked in a page fault |
//! | `io:N,READS` | every N-th request reads 256 KiB from disk, past the page cache | blocked on storage |
//!
//! Each occurrence is stamped by the thread that has it ([`record`]), into memory that was
//! there before. What the truth claims is the time that the fault took from the requests in
//! just this way, and no more: of a slow request the time on the CPU, of a lock the time from
//! asking for it to having it, of first touches all their time, and of whatever waits for the
//! disk the time asleep, by the kernel's own account of the thread ([`account`]). The work of
//! a read or a fault on the CPU, and waiting for a CPU after it, are no part of that.

mod account;
mod disk;
mod lock;
mod pages;
mod record;
mod spec;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::gettid;
use taillab_model::explanation::Cause;
use taillab_model::truth::{Truth, TruthSource};
use taillab_model::{Nanos, Tid};

use self::account::ThreadAccount;
use self::disk::DiskFile;
use self::lock::{Holder, ServerLock};
use self::pages::FreshPages;
use self::record::Recorder;
use super::ServeError;
use super::responder::Stop;
use crate::clock;

pub use self::spec::{BadFault, Fault};

/// The faults of one server, and the records of its workers.
pub(super) struct Faults {
    kinds: Vec<Kind>,
    /// Of every worker that has served, for each fault.
    records: Mutex<Vec<(usize, Arc<Recorder>)>>,
    holders: Mutex<Vec<Holder>>,
}

/// One fault with what all workers share of it.
enum Kind {
    Slow { every: u64, lasts: Nanos },
    Lock(Arc<ServerLock>),
    Fresh { every: u64, pages: usize },
    Major { every: u64, file: DiskFile },
    Io { every: u64, file: DiskFile },
}

impl Faults {
    /// Makes what the faults need. Threads of their own are started by [`Faults::start`].
    ///
    /// # Errors
    /// [`ServeError::Fault`].
    pub(super) fn new(specs: &[Fault]) -> Result<Self, ServeError> {
        let failed = |fault: &Fault, source: io::Error| ServeError::Fault {
            fault: *fault,
            source,
        };
        let kinds = specs
            .iter()
            .map(|fault| {
                Ok(match *fault {
                    Fault::Slow { every, lasts } => Kind::Slow {
                        every: every.get(),
                        lasts,
                    },
                    Fault::Lock { every, held } => {
                        Kind::Lock(Arc::new(ServerLock::new(every, held)))
                    }
                    Fault::FreshPages { every, pages } => Kind::Fresh {
                        every: every.get(),
                        pages: pages.get() as usize,
                    },
                    Fault::FilePages { every, pages } => Kind::Major {
                        every: every.get(),
                        file: DiskFile::mapped(pages.get() as usize)
                            .map_err(|source| failed(fault, source))?,
                    },
                    Fault::Io { every, reads } => Kind::Io {
                        every: every.get(),
                        file: DiskFile::direct(reads.get() as usize)
                            .map_err(|source| failed(fault, source))?,
                    },
                })
            })
            .collect::<Result<_, ServeError>>()?;
        Ok(Self {
            kinds,
            records: Mutex::default(),
            holders: Mutex::default(),
        })
    }

    /// Starts the threads that some faults have of their own.
    ///
    /// # Errors
    /// [`ServeError::Start`].
    pub(super) fn start(&self, stop: &Arc<Stop>) -> Result<(), ServeError> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in &self.kinds {
            if let Kind::Lock(lock) = kind {
                let holder = Holder::start(lock, stop).map_err(|source| ServeError::Start {
                    call: "clone",
                    source,
                })?;
                holders.push(holder);
            }
        }
        Ok(())
    }

    /// Waits for their end; the server has been told to stop.
    pub(super) fn end(&self) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        for holder in holders.iter_mut() {
            holder.join();
        }
    }

    /// The faults of one worker; `None` where there are none, so that a request costs nothing.
    pub(super) fn worker(self: &Arc<Self>) -> Option<Box<WorkerFaults>> {
        (!self.kinds.is_empty()).then(|| {
            Box::new(WorkerFaults {
                faults: Arc::clone(self),
                served: 0,
                own: Vec::new(),
            })
        })
    }

    /// What has been injected so far.
    pub(super) fn truth(&self, specs: &[Fault]) -> Truth {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut holders = holders.iter();
        let mut truth = Truth {
            sources: specs
                .iter()
                .map(|fault| TruthSource {
                    injected: fault.to_string(),
                    cause: fault.cause(),
                    culprit: match fault {
                        Fault::Lock { .. } => holders.next().and_then(Holder::culprit),
                        _ => None,
                    },
                })
                .collect(),
            ..Truth::default()
        };
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        for (source, recorder) in records.iter() {
            truth.unrecorded += recorder.take_into(*source as u16, &mut truth.intervals);
        }
        truth
            .intervals
            .sort_by_key(|interval| (interval.source, interval.from_ns));
        truth
    }
}

impl Fault {
    /// The cause that a right explanation names.
    pub fn cause(&self) -> Cause {
        match self {
            // a first touch is work of the worker on its core: it does not sleep in it
            Self::Slow { .. } | Self::FreshPages { .. } => Cause::SlowService,
            Self::Lock { .. } => Cause::BlockedLock,
            Self::FilePages { .. } => Cause::BlockedFault,
            Self::Io { .. } => Cause::BlockedIo,
        }
    }
}

/// The faults of one worker, on its thread.
pub(super) struct WorkerFaults {
    faults: Arc<Faults>,
    served: u64,
    /// One for each fault, made on the worker's thread.
    own: Vec<Own>,
}

struct Own {
    recorder: Arc<Recorder>,
    account: ThreadAccount,
    /// Of a fault with memory of the worker's own.
    pages: Option<FreshPages>,
}

impl std::fmt::Debug for WorkerFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerFaults").finish_non_exhaustive()
    }
}

impl WorkerFaults {
    /// To be called on the worker's thread, before it serves.
    pub(super) fn prepare(&mut self) {
        let tid = gettid().as_raw_nonzero().get() as Tid;
        let mut records = (self.faults.records.lock()).unwrap_or_else(PoisonError::into_inner);
        for (number, kind) in self.faults.kinds.iter().enumerate() {
            let recorder = Arc::new(Recorder::new(tid));
            records.push((number, Arc::clone(&recorder)));
            let pages = match kind {
                // without the pages there is no fault, which the truth then shows
                Kind::Fresh { pages, .. } => FreshPages::new(*pages).ok(),
                _ => None,
            };
            self.own.push(Own {
                recorder,
                account: ThreadAccount::new(),
                pages,
            });
        }
    }

    /// What happens to the next request beside its service.
    #[inline]
    pub(super) fn strike(&mut self) {
        self.served += 1;
        for (kind, own) in self.faults.kinds.iter().zip(&mut self.own) {
            match kind {
                Kind::Lock(lock) => lock.pass(&own.recorder, &own.account),
                Kind::Slow { every, lasts } if self.served.is_multiple_of(*every) => {
                    burn(*lasts, &own.recorder);
                }
                Kind::Fresh { every, .. } if self.served.is_multiple_of(*every) => {
                    if let Some(pages) = &mut own.pages {
                        own.recorder.unhindered_in(&own.account, || pages.touch());
                    }
                }
                Kind::Major { every, file } | Kind::Io { every, file }
                    if self.served.is_multiple_of(*every) =>
                {
                    file.strike(&own.recorder, &own.account);
                }
                _ => {}
            }
        }
    }
}

/// A gap beyond this between two looks at the clock (some ten nanoseconds apart) means that
/// something else had the CPU.
const GAP: Nanos = Nanos::new(1_500);

/// Keeps the CPU busy for as long, and notes when it had it: what interrupts and other
/// threads take meanwhile is theirs.
fn burn(lasts: Nanos, recorder: &Recorder) {
    let mut used = Nanos::ZERO;
    let mut from = clock::now();
    let mut last = from;
    loop {
        let at = clock::now();
        if at.saturating_since(last) > GAP {
            recorder.keep(from, last);
            used += last.saturating_since(from);
            from = at;
        }
        last = at;
        if used + at.saturating_since(from) >= lasts {
            recorder.keep(from, at);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(specs: &[&str], requests: u64) -> Truth {
        let specs: Vec<Fault> = specs.iter().map(|text| text.parse().unwrap()).collect();
        let faults = Arc::new(Faults::new(&specs).unwrap());
        let mut worker = faults.worker().unwrap();
        worker.prepare();
        for _ in 0..requests {
            worker.strike();
        }
        faults.truth(&specs)
    }

    #[test]
    fn every_nth_request_burns_at_least_its_time() {
        let truth = run(&["slow:10,200us"], 95);
        // nine times, each in one piece or, where others had the CPU meanwhile, in several
        assert!(truth.intervals.len() >= 9);
        assert!(truth.total() >= Nanos::from_micros(9 * 200));
        for interval in &truth.intervals {
            assert_eq!(interval.held, Some(gettid().as_raw_nonzero().get() as Tid));
        }
        assert_eq!(truth.sources[0].cause, Cause::SlowService);
    }

    #[test]
    fn faults_that_need_memory_or_a_disk_happen_as_often_as_asked() {
        // the tests' folder for temporary files may be in memory
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let file = DiskFile::direct_in(here.as_ref(), 2).unwrap();
        let (recorder, account) = (Recorder::new(1), ThreadAccount::new());
        for _ in 0..5 {
            file.strike(&recorder, &account);
        }
        let mut intervals = Vec::new();
        assert_eq!(recorder.take_into(0, &mut intervals), 0);
        assert_eq!(intervals.len(), 5);

        let file = DiskFile::mapped_in(here.as_ref(), 3).unwrap();
        let majors = || rustix_major_faults();
        let before = majors();
        for _ in 0..4 {
            file.strike(&recorder, &account);
        }
        assert!(majors() >= before + 12, "each page comes from the disk");

        let truth = run(&["fault:7,16", "slow:1000000,1ms"], 70);
        assert_eq!(truth.intervals.len(), 10);
        assert_eq!(truth.sources.len(), 2);
    }

    fn rustix_major_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        // the field majflt is the twelfth of all (proc_pid_stat(5))
        fields.split_whitespace().nth(9).unwrap().parse().unwrap()
    }

    #[test]
    fn a_worker_waits_for_the_holder_and_both_say_when() {
        let specs: Vec<Fault> = vec!["lock:4ms,3ms".parse().unwrap()];
        let faults = Arc::new(Faults::new(&specs).unwrap());
        let stop = Arc::new(Stop::new().unwrap());
        faults.start(&stop).unwrap();
        let mut worker = faults.worker().unwrap();
        worker.prepare();
        let end = clock::now() + Nanos::from_millis(200);
        let mut passes = 0_u64;
        while clock::now() < end {
            worker.strike();
            passes += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.set();
        faults.end();
        let truth = faults.truth(&specs);
        assert!(passes > truth.intervals.len() as u64);
        assert!(!truth.intervals.is_empty(), "the lock was never contended");
        let Some(taillab_model::explanation::Culprit::Thread { name, tid, .. }) =
            &truth.sources[0].culprit
        else {
            panic!("{:?}", truth.sources)
        };
        assert_eq!(name, "lock-holder");
        assert_ne!(*tid, truth.intervals[0].held);
    }
}
