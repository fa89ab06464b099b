//! Matched requests as rows of a table, and the files that they go to.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Seek};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use taillab_analysis::Matched;
use taillab_analysis::ledger::{Entry, Labels};
use taillab_analysis::verdict::Supported;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::rundir::{RunDir, Space};
use taillab_host::user_files::UnfinishedFile;
use taillab_model::explanation::Cause;
use taillab_model::summary::ClaimName;
use taillab_model::{Monotonic, Nanos, Peer, Request, Tid};
use taillab_report::requests::RequestRow;
use taillab_report::{ReportError, hlog, requests};

/// The rows of a recording while its windows are analysed. A row is complete when the request's account
/// is, at its T6.
pub struct Rows {
    from: Monotonic,
    files: RowFiles,
    /// For each request that is not written yet: its main cause, once it is known.
    fates: VecDeque<Fate>,
    /// The rows of earlier windows that are not written yet.
    waiting: VecDeque<UnaccountedRow>,
    written: usize,
}

/// A row of a matched request before its account.
#[derive(Clone, Copy)]
struct UnaccountedRow {
    request: Request,
    peer: Option<Peer>,
    id: u16,
    ideal: Option<Nanos>,
    worker: Tid,
    measured: bool,
}

impl UnaccountedRow {
    fn with_cause(self, main_cause: Option<Cause>) -> RequestRow {
        RequestRow {
            server: Some(self.request.server),
            peer: self.peer,
            id: Some(self.id),
            ideal: self.ideal,
            worker: (self.worker != 0).then_some(self.worker),
            main_cause,
            client: self.request.client,
            operation: self.request.operation,
            warm_up: !self.measured,
        }
    }
}

/// What most of a request's excess is charged to.
#[derive(Clone, Copy)]
enum Fate {
    Open,
    Known(Option<Cause>),
}

impl Rows {
    /// The rows of a measurement that begins at `from`.
    pub fn new(from: Monotonic, files: RowFiles) -> Self {
        Self {
            from,
            files,
            fates: VecDeque::new(),
            waiting: VecDeque::new(),
            written: 0,
        }
    }

    /// Registers the next requests; their rows follow with [`Self::write`]. Without accounts, as where no
    /// disturbances were recorded, their rows wait for nothing.
    pub fn came(&mut self, matched: &Matched, have_accounts: bool) {
        let fates = (0..matched.requests.len()).map(|place| {
            match have_accounts && matched.is_measured(place, self.from) {
                true => Fate::Open,
                // the ledger does not account for it
                false => Fate::Known(None),
            }
        });
        self.fates.extend(fates);
    }

    /// Takes the main cause of one of these requests from its account.
    pub fn account(&mut self, entry: &Entry<'_>, labels: &Labels) {
        // a row without an account may have been written already
        let place = entry.place.checked_sub(self.written);
        if let Some(fate) = place.and_then(|place| self.fates.get_mut(place)) {
            // without T2 to T5 the account is only an estimate
            let cause = entry.asked.then(|| entry.main_cause(labels));
            *fate = Fate::Known(cause.flatten());
        }
    }

    /// Writes the rows that are complete; `matched` and `ideal` (of the measured ones) belong to the
    /// requests that came last.
    pub fn write(&mut self, matched: &Matched, ideal: Vec<Nanos>) {
        while let Some(row) = self.waiting.front().copied()
            && self.write_next(row)
        {
            self.waiting.pop_front();
        }
        let mut ideal = ideal.into_iter();
        for (place, request) in matched.requests.iter().enumerate() {
            let measured = matched.is_measured(place, self.from);
            let key = matched.keys[place];
            let row = UnaccountedRow {
                request,
                peer: matched.clients.of(key.connection),
                id: key.id,
                ideal: if measured { ideal.next() } else { None },
                worker: matched.workers[place],
                measured,
            };
            if !self.waiting.is_empty() || !self.write_next(row) {
                self.waiting.push_back(row);
            }
        }
    }

    /// Writes the next row if its cause is known.
    fn write_next(&mut self, row: UnaccountedRow) -> bool {
        let Some(Fate::Known(cause)) = self.fates.front().copied() else {
            return false;
        };
        self.fates.pop_front();
        self.written += 1;
        self.files.push(row.with_cause(cause));
        true
    }

    /// Writes the remaining rows, and then `others`.
    pub fn finish(
        mut self,
        others: impl Iterator<Item = RequestRow>,
    ) -> Result<WrittenRows, Failure> {
        // requests that the ledger could not account for, and those behind them
        for row in self.waiting {
            let cause = match self.fates.pop_front() {
                Some(Fate::Known(cause)) => cause,
                Some(Fate::Open) | None => None,
            };
            self.files.push(row.with_cause(cause));
        }
        for row in others {
            self.files.push(row);
        }
        self.files.finish()
    }
}

/// Both files, completely written but not yet under their final names.
pub struct WrittenRows([RowFile; 2]);

/// What no row may have, because the evidence does not support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omission {
    Nothing,
    /// The cause of its excess.
    Causes,
    /// The ideal, and with it the excess and its cause.
    Ideal,
}

impl Omission {
    fn of(supported: &Supported) -> Self {
        if !supported.claim(ClaimName::Ideal) {
            Self::Ideal
        } else if !supported.claim(ClaimName::Causes) {
            Self::Causes
        } else {
            Self::Nothing
        }
    }
}

struct RowFile {
    name: &'static str,
    copies: Copies,
    unfinished: UnfinishedFile,
    file: BufWriter<File>,
}

/// Copies a file without something.
type CopyFile = fn(File, &mut BufWriter<File>) -> Result<(), ReportError>;

/// How to leave something out of a file.
#[derive(Clone, Copy)]
struct Copies {
    without_ideal: CopyFile,
    /// `None` where the file has no causes.
    without_causes: Option<CopyFile>,
}

impl Copies {
    fn without(self, left_out: Omission) -> Option<CopyFile> {
        match left_out {
            Omission::Nothing => None,
            Omission::Causes => self.without_causes,
            Omission::Ideal => Some(self.without_ideal),
        }
    }
}

impl WrittenRows {
    /// Gives them their final names, the second also where the first cannot be written. A row is written as soon as its
    /// account is complete, and the last request can still decide what is supported: what is not is left out of a copy.
    pub fn keep(self, dir: &mut RunDir, supported: &Supported) -> Result<(), Failure> {
        let left_out = Omission::of(supported);
        let mut kept = Ok(());
        for written in self.0 {
            kept = kept.and(written.keep(dir, left_out));
        }
        kept
    }
}

impl RowFile {
    fn keep(self, dir: &mut RunDir, left_out: Omission) -> Result<(), Failure> {
        let Some(copy) = self.copies.without(left_out) else {
            return dir.finish(self.unfinished, self.file);
        };
        let whole = self.file.into_inner();
        let mut whole = whole
            .map_err(std::io::IntoInnerError::into_error)
            .or_exit(Exit::Failed)?;
        whole.rewind().or_exit(Exit::Failed)?;
        let (unfinished, mut rest) = dir.begin(self.name)?;
        copy(whole, &mut rest).or_exit(Exit::Failed)?;
        dir.finish(unfinished, rest)
    }
}

/// Rows in a batch.
const BATCH: usize = 4_096;

/// The most batches that wait for a writer.
const WAITING: usize = 2;

/// `requests.parquet` and `latency.hlog` while they are written, each by its own thread, so that
/// encoding runs in parallel with the analysis if a CPU is free.
pub struct RowFiles {
    batch: Vec<RequestRow>,
    writers: [Writer; 2],
    space: Space,
    /// Why they do not grow any more.
    full: Option<std::io::Error>,
}

struct Writer {
    name: &'static str,
    unfinished: UnfinishedFile,
    batches: SyncSender<Arc<[RequestRow]>>,
    thread: JoinHandle<Result<BufWriter<File>, ReportError>>,
}

impl RowFiles {
    /// Begins both. Their times count from `from`, which is `started_unix_s` on the wall clock.
    pub fn begin(dir: &RunDir, from: Monotonic, started_unix_s: u64) -> Result<Self, Failure> {
        Ok(Self {
            batch: Vec::with_capacity(BATCH),
            space: dir.space(),
            full: None,
            writers: [
                Writer::begin(dir, "requests.parquet", |rows, out| {
                    requests::write_parquet(rows, out).map(drop)
                })?,
                Writer::begin(dir, "latency.hlog", move |rows, out| {
                    hlog::write(rows, from, started_unix_s, out)
                })?,
            ],
        })
    }

    /// Takes the next row.
    pub fn push(&mut self, row: RequestRow) {
        self.batch.push(row);
        if self.batch.len() == BATCH {
            self.send();
        }
    }

    fn send(&mut self) {
        let batch: Arc<[RequestRow]> = self.batch.as_slice().into();
        self.batch.clear();
        if self.full.is_none() {
            self.full = self.space.ensure_left().err();
        }
        if self.full.is_some() {
            return;
        }
        for writer in &self.writers {
            // a writer that ended early reports its error at the end
            let _ = writer.batches.send(Arc::clone(&batch));
        }
    }

    /// Writes the rest.
    pub fn finish(mut self) -> Result<WrittenRows, Failure> {
        self.send();
        if let Some(error) = self.full {
            // both are removed, which makes room
            return Err(Failure::failed(format!(
                "cannot write requests.parquet and latency.hlog: {error}; free some space or choose another place \
                 with --output"
            )));
        }
        let [requests, latency] = self.writers;
        let without_causes: CopyFile = |file, out| requests::copy_without_causes(file, out);
        Ok(WrittenRows([
            requests.finish(Copies {
                without_ideal: |file, out| requests::copy_without_ideal(file, out),
                without_causes: Some(without_causes),
            })?,
            latency.finish(Copies {
                without_ideal: |file, out| hlog::copy_without_ideal(file, out),
                without_causes: None,
            })?,
        ]))
    }
}

/// The rows of the batches, as they arrive.
fn received(batches: &Receiver<Arc<[RequestRow]>>) -> impl Iterator<Item = RequestRow> {
    let batches = batches.iter();
    batches.flat_map(|batch| (0..batch.len()).map(move |place| batch[place]))
}

impl Writer {
    fn begin(
        dir: &RunDir,
        name: &'static str,
        write: impl FnOnce(
            &mut dyn Iterator<Item = RequestRow>,
            &mut BufWriter<File>,
        ) -> Result<(), ReportError>
        + Send
        + 'static,
    ) -> Result<Self, Failure> {
        let (unfinished, mut out) = dir.begin(name)?;
        let (batches, rows) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                write(&mut received(&rows), &mut out)?;
                Ok(out)
            })
            .or_exit(Exit::Failed)?;
        Ok(Self {
            name,
            unfinished,
            batches,
            thread,
        })
    }

    fn finish(self, copies: Copies) -> Result<RowFile, Failure> {
        drop(self.batches);
        let file = match self.thread.join() {
            Ok(written) => written.or_exit(Exit::Failed)?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(RowFile {
            name: self.name,
            copies,
            unfinished: self.unfinished,
            file,
        })
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{Request, RequestKey, Stamps};

    use super::*;

    #[test]
    fn a_row_waits_only_where_its_account_comes() {
        let at = Monotonic::from_nanos_since_boot;
        let request = |t1| Request::from(Stamps::new(at(t1), [None; 4], at(t1 + 5)));
        let matched = Matched {
            requests: [10, 20].into_iter().map(request).collect(),
            keys: vec![RequestKey::default(); 2],
            workers: vec![1; 2],
            ..Matched::default()
        };
        let place = tempfile::tempdir().unwrap();
        let dir = RunDir::create(place.path().join("run"), 0).unwrap();
        let waiting = |have_accounts| {
            let files = RowFiles::begin(&dir, at(1), 0).unwrap();
            let mut rows = Rows::new(at(1), files);
            rows.came(&matched, have_accounts);
            rows.write(&matched, vec![Nanos::new(5); 2]);
            rows.waiting.len()
        };
        assert_eq!((waiting(true), waiting(false)), (2, 0));
    }
}
