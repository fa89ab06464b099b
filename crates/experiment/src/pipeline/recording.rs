//! Reads a recording to its end, window by window.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::available_parallelism;

use taillab_analysis::matcher::{InOrder, MatchOptions, Timed};
use taillab_analysis::{ClientRecords, Window, Windows, streaming, window};
use taillab_console::args::AnalysisArgs;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::rundir::RunDir;
use taillab_host::{MemoryCap, Roots};
use taillab_model::{Event, Monotonic, RecordingContext, Tid};

use super::analyse::{Analysed, BeforeLoad, End, MeasurementFacts, Pass};
use super::client::{Client, intended_sends};
use super::rows::{RowFiles, Rows, WrittenRows};
use super::spool::Spool;

/// A run of up to so many requests is analysed at once, with exact percentiles: a minute at 66,000 requests per
/// second. It takes about 200 bytes of memory for each.
const OF_RUN: usize = 4_000_000;

/// A recording, which may be damaged or cut off where it is a file: what can be read is analysed.
pub struct Source<'a> {
    /// The recording. It is empty once it has been read: what follows needs the memory.
    pub spool: &'a mut Spool,
    /// What is known of the load, where it is our own.
    pub own: Option<OwnLoad<'a>>,
}

/// A load of our own.
pub struct OwnLoad<'a> {
    /// How its requests are matched.
    pub options: MatchOptions,
    /// The record of our client.
    pub client: Client<'a>,
}

impl<'a> Source<'a> {
    /// The recording of somebody else's load.
    pub const fn of(spool: &'a mut Spool) -> Self {
        Self { spool, own: None }
    }
}

/// Reads and analyses a recording. The files with a row for each request go to `dir`, which notes if they cannot be
/// written.
pub fn analyse(
    source: Source<'_>,
    args: &AnalysisArgs,
    facts: MeasurementFacts,
    dir: Option<&mut RunDir>,
) -> Result<Analysed, Failure> {
    // without it the analysis works as well, and what it reads is bounded elsewhere too
    let _cap = MemoryCap::begin(&Roots::default()).ok();
    let named = |error: &dyn std::fmt::Display| match &facts.path {
        Some(path) => Failure::failed(format!("{}: {error}", path.display())),
        None => Failure::failed(error),
    };
    let Source { spool, own } = source;
    let mut reader = spool.read().map_err(|error| named(&error))?;
    let context = reader.context().clone();
    let base = reader.base();
    let (client, options) = match own {
        Some(own) => (Some(own.client), own.options),
        None => (None, MatchOptions::of(&context).or_exit(Exit::Failed)?),
    };
    let (requests, exact) = match client {
        Some(_) => (OF_RUN, OF_RUN),
        None => (window::REQUESTS, streaming::EXACT),
    };
    let reading = Reading::new(reader.recorded(), options, &context, requests);
    let analysis = RecordingAnalysis {
        args,
        context: &context,
        base,
        exact,
        client: client.as_ref(),
        process: facts.process,
        before_load: facts.before_load.as_ref(),
        dir: dir.as_deref(),
    };
    let (pass, end) = analysis.run(reading);
    // a file that cannot be read explains why there is nothing to analyse
    if let Some(error) = reader.failure() {
        return Err(named(error));
    }
    let damage = reader.damage();
    let cut_off = damage.as_ref().is_some_and(|damage| damage.cut_off);
    let damage = damage.map(|damage| damage.to_string());
    if let (Some(damage), None) = (&damage, end.last) {
        return Err(named(damage));
    }
    let end = End {
        lost: reader.lost().total(),
        damage,
        cut_off,
        ..end
    };
    spool.clear();
    conclude(pass?, end, facts, dir)
}

/// The files with a row for each request, or why they are not written.
type WrittenFiles = Option<Result<WrittenRows, Failure>>;

/// Makes the report, and puts the files with a row for each request in their places. The report does not depend on
/// them: a failure to write them is noted in `dir`.
fn conclude(
    (pass, rows): (Pass<'_>, WrittenFiles),
    end: End,
    facts: MeasurementFacts,
    dir: Option<&mut RunDir>,
) -> Result<Analysed, Failure> {
    let analysed = pass.conclude(end, facts)?;
    if let (Some(rows), Some(dir)) = (rows, dir) {
        let written = rows.and_then(|rows| rows.keep(dir, &analysed.supported));
        dir.note(written);
    }
    Ok(analysed)
}

/// The windows of a recording, one after the other.
struct Reading<I: Iterator> {
    events: InOrder<I>,
    /// `None` after the last window.
    windows: Option<Windows>,
    first: Option<Monotonic>,
    last: Option<Monotonic>,
}

impl<I: Iterator<Item: Timed + Copy + Into<Event> + Send>> Reading<I> {
    fn new(events: I, options: MatchOptions, context: &RecordingContext, requests: usize) -> Self {
        Self {
            events: InOrder::new(events, options.disorder),
            windows: Some(Windows::new(options, context, requests)),
            first: None,
            last: None,
        }
    }

    fn next_window(&mut self) -> Option<Window> {
        let windows = self.windows.as_mut()?;
        for event in self.events.by_ref() {
            let event: Event = event.into();
            self.first = self.first.or(Some(event.at));
            self.last = Some(event.at);
            if let Some(window) = windows.observe(&event) {
                return Some(window);
            }
        }
        let windows = self.windows.take()?;
        Some(windows.finish(self.events.late()))
    }

    /// Reads the other windows. With more than one CPU a window is read while the one before it is
    /// analysed. Returns the time of the last event.
    fn rest(mut self, mut take: impl FnMut(Window)) -> Option<Monotonic>
    where
        I: Send,
    {
        if self.windows.is_none() {
            return self.last;
        }
        if available_parallelism().is_ok_and(|cpus| cpus == NonZeroUsize::MIN) {
            while let Some(window) = self.next_window() {
                take(window);
            }
            return self.last;
        }
        let (found, windows) = sync_channel(0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                while let Some(window) = self.next_window()
                    && found.send(window).is_ok()
                {}
                self.last
            });
            // where `take` panics this drops the channel, and the reader ends
            windows.into_iter().for_each(&mut take);
            match reader.join() {
                Ok(last) => last,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Where the measurement begins.
    fn measured_from(&self, context: &RecordingContext, base: Monotonic) -> Monotonic {
        let begins = context.measure_from_ns;
        let begins = begins.map_or(base, Monotonic::from_nanos_since_boot);
        begins.max(self.first.unwrap_or(base))
    }
}

/// The analysis of one recording.
struct RecordingAnalysis<'a, 'c> {
    args: &'a AnalysisArgs,
    context: &'c RecordingContext,
    base: Monotonic,
    /// Up to this many requests the quantiles are exact.
    exact: usize,
    client: Option<&'a Client<'a>>,
    /// The server's process, if it still runs.
    process: Option<Tid>,
    /// What was measured before the load.
    before_load: Option<&'a BeforeLoad>,
    dir: Option<&'a RunDir>,
}

impl<'c> RecordingAnalysis<'_, 'c> {
    /// Reads to the end, or until it is clear that nothing can be analysed.
    fn run<I>(self, mut reading: Reading<I>) -> (Result<(Pass<'c>, WrittenFiles), Failure>, End)
    where
        I: Iterator<Item: Timed + Copy + Into<Event> + Send> + Send,
    {
        let first = reading.next_window();
        let mut end = End {
            last: reading.last,
            ..End::default()
        };
        let pass = first
            .ok_or_else(|| Failure::failed("the recording cannot be read"))
            .and_then(|first| self.pass(first, reading, &mut end));
        (pass, end)
    }

    fn pass<I>(
        self,
        mut first: Window,
        reading: Reading<I>,
        end: &mut End,
    ) -> Result<(Pass<'c>, WrittenFiles), Failure>
    where
        I: Iterator<Item: Timed + Copy + Into<Event> + Send> + Send,
    {
        let from = reading.measured_from(self.context, self.base);
        let records = self.client.map(Client::records).unwrap_or_default();
        let address = self.client.map(|client| client.address);
        let mut records = ClientRecords::new(records, address, from);
        let mut seen: Vec<Monotonic> = Vec::new();
        let mut join = |window: &mut Window| {
            if self.client.is_some() {
                records.join(window);
                seen.extend(intended_sends(&window.matched));
            }
        };
        join(&mut first);
        let mut pass = Pass::begin(
            self.args,
            self.context,
            &first,
            from,
            self.exact,
            (self.process, self.before_load),
        )?;
        let mut unwritten = None;
        if let Some(dir) = self.dir {
            match RowFiles::begin(dir, from, self.context.started_unix_s) {
                Ok(files) => pass.rows = Some(Rows::new(from, files)),
                Err(failure) => unwritten = Some(Err(failure)),
            }
        }
        pass.push(&Arc::new(first));
        end.last = reading.rest(|mut window| {
            join(&mut window);
            pass.push(&Arc::new(window));
        });
        seen.sort_unstable();
        let rows = pass.rows.take().map(|rows| {
            let unseen = self.client.iter().flat_map(|client| client.unseen(&seen));
            rows.finish(unseen)
        });
        Ok((pass, rows.or(unwritten)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;

    use taillab_report::json;

    use super::*;

    /// Partly in memory and partly on the disk, or in a file: a recording is a recording.
    #[test]
    fn it_makes_no_difference_where_a_recording_is() {
        const RECORDING: &str = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../analysis/tests/golden/nginx_2_workers.tlc"
        );
        let result = |mut spool: Spool| {
            let facts = MeasurementFacts::default();
            let analysed = analyse(
                Source::of(&mut spool),
                &AnalysisArgs::default(),
                facts,
                None,
            );
            assert_eq!((spool.in_memory(), spool.file().is_none()), (0, true));
            json::of_report(&analysed.unwrap().report).unwrap()
        };
        let file = || File::open(RECORDING).unwrap();
        let half = file().metadata().unwrap().len() / 2;
        let mut spool = Spool::within(half, std::env::temp_dir());
        let bytes = io::copy(&mut file(), &mut spool).unwrap();
        assert_eq!(spool.written_to_disk(), bytes - half);
        let in_file = Spool::in_file(file());
        assert!(result(spool) == result(in_file));
    }
}
