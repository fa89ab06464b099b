//! Deliberate faults of a built-in server, so that the cause of its delays is known.
//!
//! | [`Fault`] | what happens | the right explanation |
//! |---|---|---|
//! | `slow:N,TIME` | every N-th request of a worker burns CPU time | slow service |
//! | `lock:EVERY,LENGTH` | at intervals of EVERY, a thread holds the lock that each request takes, for LENGTH | a lock, held by `lock-holder` |
//! | `lock:EVERY,LENGTH,read` | the same, and meanwhile that thread reads from disk, past the page cache | blocked on storage, for which `lock-holder` waits |
//! | `lock:EVERY,LENGTH,burn` | the same, and meanwhile that thread burns CPU time | a lock, held by `lock-holder`; where it has the worker's CPU, own threads that compete |
//! | `fault:N,PAGES` | every N-th request touches fresh pages | slow service in page faults |
//! | `major-fault:N,PAGES` | every N-th request touches up to 32 pages that are on disk only, 2 MiB apart | blocked in a page fault |
//! | `io:N,READS` | every N-th request makes READS reads of 2 MiB from disk, past the page cache | blocked on storage |
//! | `upstream:N,PORT` | every N-th request asks the server at 127.0.0.1:PORT, and waits for its answer | upstream, that server |
//! | `nagle:N` | every N-th response is written in two pieces, on connections without TCP_NODELAY | the client, by Nagle's algorithm |
//! | `skew:N` | one in N connections goes to the first worker, which then has more than its share | imbalance |
//!
//! The thread that has the fault stamps each occurrence ([`record`]), into memory that it allocated
//! before. The ground truth counts only the time that the fault itself took: for a slow request the
//! time on the CPU, for a lock or another server the time asleep, and for page faults and reads all their time except
//! waits for a CPU, by the kernel's own account of the thread ([`account`]).

mod account;
mod disk;
mod lock;
mod mapping;
mod pages;
mod record;
mod spec;
mod upstream;

use std::env::temp_dir;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::gettid;
use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit, SendWait};

use self::account::ThreadAccount;
use self::disk::DiskFile;
use self::lock::{Holder, ServerLock};
use self::pages::FreshPages;
use self::record::Recorder;
use self::upstream::UpstreamClient;
use crate::ground_truth::{GroundTruth, InjectedSource};

pub use self::spec::{BadFault, Fault, HolderActivity};
use crate::clock;
use crate::serve::BeforeRequest;

/// This machine does not have what a fault needs.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server cannot have the fault {fault}: {source}; it needs some memory, and for faults from \
     disk a folder on a disk, which its user may write to: set TMPDIR to one"
)]
pub struct FaultError {
    fault: Fault,
    source: io::Error,
}

/// The faults of one server, and the records of its workers.
pub struct Faults {
    specs: Vec<Fault>,
    /// One for each fault.
    shared: Vec<SharedPart>,
    /// The recorders of all workers so far, each with the index of its fault.
    records: Mutex<Vec<(usize, Arc<Recorder>)>>,
}

/// The part of a fault that all workers share.
enum SharedPart {
    Nothing,
    Lock {
        lock: Arc<ServerLock>,
        holder: Holder,
    },
    File(DiskFile),
}

impl SharedPart {
    fn new(fault: Fault) -> io::Result<Self> {
        Ok(match fault {
            // skew affects how connections are assigned, Nagle how responses are written: see `Spec`
            Fault::Slow { .. }
            | Fault::FreshPages { .. }
            | Fault::Upstream { .. }
            | Fault::Nagle { .. }
            | Fault::Skew { .. } => Self::Nothing,
            Fault::Lock { every, held, does } => {
                let lock = Arc::new(ServerLock::new(every, held));
                let holder = Holder::start(&lock, does)?;
                Self::Lock { lock, holder }
            }
            Fault::FilePages { pages, .. } => {
                Self::File(DiskFile::mapped_in(&temp_dir(), pages.get() as usize)?)
            }
            Fault::Io { reads, .. } => {
                Self::File(DiskFile::direct_in(&temp_dir(), reads.get() as usize)?)
            }
        })
    }
}

impl Faults {
    /// Sets up the faults and starts the extra threads that some of them need. These run on the CPUs of
    /// the calling thread until the value is dropped.
    ///
    /// # Errors
    /// [`FaultError`] for the first fault that cannot be set up.
    pub fn new(specs: &[Fault]) -> Result<Arc<Self>, FaultError> {
        let shared = specs
            .iter()
            .map(|&fault| SharedPart::new(fault).map_err(|source| FaultError { fault, source }))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            specs: specs.to_vec(),
            shared,
            records: Mutex::default(),
        }))
    }

    /// What the server's workers do before each request; `None` without faults, so that a
    /// request costs nothing.
    pub fn before_request(self: &Arc<Self>) -> Option<BeforeRequest> {
        let faults = Arc::clone(self);
        (!self.specs.is_empty()).then(|| -> BeforeRequest {
            Arc::new(move || {
                let mut worker = WorkerFaults::new(Arc::clone(&faults));
                Box::new(move || worker.strike())
            })
        })
    }

    /// Ends the threads of the faults: a server that waits for them can then stop.
    pub fn end(&self) {
        for shared in &self.shared {
            if let SharedPart::Lock { holder, .. } = shared {
                holder.end();
            }
        }
    }

    /// What has been injected so far.
    pub fn truth(&self) -> GroundTruth {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // with several workers no single one is the culprit of all occurrences
        let only_worker = |source: usize| {
            let mut of = records.iter().filter(|(other, _)| *other == source);
            let (first, second) = (of.next(), of.next());
            first
                .filter(|_| second.is_none())
                .map(|(_, it)| it.worker())
        };
        let sources = self.specs.iter().zip(&self.shared).enumerate();
        let mut truth = GroundTruth {
            sources: sources
                .map(|(source, (fault, shared))| InjectedSource {
                    injected: fault.to_string(),
                    cause: fault.cause(),
                    culprit: match (fault, shared) {
                        (_, SharedPart::Lock { holder, .. }) => holder.culprit(),
                        (Fault::Io { .. }, _) => Some(Culprit::SystemCall {
                            name: disk::READ.to_owned(),
                        }),
                        (Fault::Slow { .. } | Fault::FreshPages { .. }, _) => only_worker(source),
                        (Fault::Upstream { port, .. }, _) => Some(Culprit::Upstream {
                            servers: vec![upstream::address(*port).to_string()],
                        }),
                        (Fault::Nagle { .. }, _) => Some(Culprit::Sending {
                            what: SendWait::Nagle.what().to_owned(),
                        }),
                        (Fault::FilePages { .. } | Fault::Lock { .. } | Fault::Skew { .. }, _) => {
                            None
                        }
                    },
                })
                .collect(),
            ..GroundTruth::default()
        };
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
            // a first touch is CPU work of the worker: it does not sleep
            Self::Slow { .. } | Self::FreshPages { .. } => Cause::SlowService,
            Self::Lock {
                does: HolderActivity::Read,
                ..
            } => Cause::BlockedIo,
            Self::Lock { .. } => Cause::BlockedLock,
            Self::Nagle { .. } => Cause::Client,
            Self::FilePages { .. } => Cause::BlockedFault,
            Self::Io { .. } => Cause::BlockedIo,
            Self::Upstream { .. } => Cause::Upstream,
            Self::Skew { .. } => Cause::Imbalance,
        }
    }
}

/// The faults of one worker, on its thread.
struct WorkerFaults {
    faults: Arc<Faults>,
    served: u64,
    /// One for each fault.
    own: Vec<WorkerFault>,
}

/// One fault of one worker.
struct WorkerFault {
    recorder: Arc<Recorder>,
    account: ThreadAccount,
    /// The worker's own pages, for [`Fault::FreshPages`].
    pages: Option<FreshPages>,
    /// The worker's own connection, for [`Fault::Upstream`].
    asker: Option<UpstreamClient>,
}

impl WorkerFaults {
    /// Call this on the worker's thread.
    fn new(faults: Arc<Faults>) -> Self {
        let tid = gettid().as_raw_nonzero().get() as Tid;
        let own = faults
            .specs
            .iter()
            .map(|fault| WorkerFault {
                recorder: Arc::new(Recorder::new(tid)),
                account: ThreadAccount::new(),
                pages: match fault {
                    // without the pages there is no fault, and the truth shows none
                    Fault::FreshPages { pages, .. } => FreshPages::new(pages.get() as usize).ok(),
                    _ => None,
                },
                asker: match fault {
                    Fault::Upstream { port, .. } => Some(UpstreamClient::new(*port)),
                    _ => None,
                },
            })
            .collect::<Vec<_>>();
        let records = own.iter().map(|own| Arc::clone(&own.recorder)).enumerate();
        (faults.records.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .extend(records);
        Self {
            faults,
            served: 0,
            own,
        }
    }

    /// Applies the faults to the next request, in addition to its service.
    #[inline]
    fn strike(&mut self) {
        self.served += 1;
        let faults = self.faults.specs.iter().zip(&self.faults.shared);
        for ((fault, shared), own) in faults.zip(&mut self.own) {
            match (fault, shared) {
                (_, SharedPart::Lock { lock, .. }) => lock.pass(&own.recorder, &own.account),
                (Fault::Slow { every, lasts }, _) if self.served.is_multiple_of(every.get()) => {
                    clock::keep_busy(*lasts, |from, to| own.recorder.keep(from, to));
                }
                (Fault::FreshPages { every, .. }, _) if self.served.is_multiple_of(every.get()) => {
                    if let Some(pages) = &mut own.pages {
                        own.recorder.unhindered_in(&own.account, || pages.touch());
                    }
                }
                (
                    Fault::FilePages { every, .. } | Fault::Io { every, .. },
                    SharedPart::File(file),
                ) if self.served.is_multiple_of(every.get()) => {
                    file.strike(&own.recorder, &own.account);
                }
                (Fault::Upstream { every, .. }, _) if self.served.is_multiple_of(every.get()) => {
                    if let Some(asker) = &mut own.asker {
                        asker.ask(&own.recorder, &own.account);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use taillab_model::Nanos;

    use super::*;

    fn run(specs: &[&str], requests: u64) -> GroundTruth {
        let specs: Vec<Fault> = specs.iter().map(|text| text.parse().unwrap()).collect();
        let faults = Faults::new(&specs).unwrap();
        let mut before = faults.before_request().unwrap()();
        for _ in 0..requests {
            before();
        }
        faults.truth()
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
        let before = major_faults();
        for _ in 0..4 {
            file.strike(&recorder, &account);
        }
        assert!(
            major_faults() >= before + 12,
            "each page comes from the disk"
        );

        let truth = run(&["fault:7,16", "slow:1000000,1ms"], 70);
        assert_eq!(truth.intervals.len(), 10);
        assert_eq!(truth.sources.len(), 2);
    }

    #[test]
    fn a_request_that_asks_another_server_waits_for_its_answer() {
        let backend = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = backend.local_addr().unwrap().port();
        let answers = std::thread::spawn(move || {
            let (mut from, _) = backend.accept().unwrap();
            for _ in 0..3 {
                let mut asked = [0];
                io::Read::read_exact(&mut from, &mut asked).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                io::Write::write_all(&mut from, &asked).unwrap();
            }
        });
        let truth = run(&[&format!("upstream:5,{port}")], 17);
        answers.join().unwrap();
        assert_eq!(truth.intervals.len(), 3);
        assert!(truth.total() > Nanos::from_millis(30), "{}", truth.total());
        assert_eq!(truth.sources[0].cause, Cause::Upstream);

        // nobody listens there any more
        let truth = run(&[&format!("upstream:5,{port}")], 17);
        assert!(truth.intervals.is_empty());
    }

    fn major_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        // the field majflt is the twelfth of all (proc_pid_stat(5))
        fields.split_whitespace().nth(9).unwrap().parse().unwrap()
    }

    /// How often the calling thread has gone to sleep so far.
    fn times_asleep() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_worker_waits_for_the_holder_and_both_say_when() {
        let specs: Vec<Fault> = vec!["lock:4ms,3ms".parse().unwrap()];
        let faults = Faults::new(&specs).unwrap();
        let mut before = faults.before_request().unwrap()();
        let end = clock::now() + Nanos::from_secs(30);
        let (mut passes, mut waits) = (0, 0);
        // a busy machine may keep one of them from its CPU for a while, and each pass may find the lock taken at first
        while waits < 3 || passes < waits + 3 {
            assert!(clock::now() < end, "{waits} waits in {passes} passes");
            let slept = times_asleep();
            before();
            // the kernel counts a sleep in it, which only the lock can be the reason for
            waits += usize::from(times_asleep() > slept);
            passes += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        faults.end();
        let truth = faults.truth();
        assert!(truth.total() > Nanos::ZERO, "{truth:?}");
        assert!(passes > truth.intervals.len());
        let Some(Culprit::Thread { name, tid, .. }) = &truth.sources[0].culprit else {
            panic!("{:?}", truth.sources)
        };
        assert_eq!(name, "lock-holder");
        assert_ne!(*tid, truth.intervals[0].held);
    }
}
