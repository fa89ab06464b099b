//! Reads a recording to its end, window by window.

use std::fs::File;
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
use taillab_model::{Event, Monotonic, Recording, RecordingContext, RecordingReader, Tid};

use super::analyse::{Analysed, BeforeLoad, End, MeasurementFacts, Pass};
use super::client::{Client, intended_sends};
use super::rows::{RowFiles, Rows, WrittenRows};

/// Where the events of a measurement are.
pub enum Source<'a> {
    /// In a file, which may be damaged or cut off: what can be read is analysed.
    File(File),
    /// In memory, with the record of our own client and how its requests are matched. It is analysed as
    /// one window: cutting it would gain nothing.
    Memory(Box<Recording>, MatchOptions, Client<'a>),
}

/// Reads and analyses a recording. The files with a row for each request go to `dir`, which notes if they cannot be
/// written.
pub fn analyse(
    source: Source<'_>,
    args: &AnalysisArgs,
    facts: MeasurementFacts,
    mut dir: Option<&mut RunDir>,
) -> Result<Analysed, Failure> {
    // without it the analysis works as well, and what it reads is bounded elsewhere too
    let _cap = MemoryCap::begin(&Roots::default()).ok();
    match source {
        Source::File(file) => analyse_file(file, args, facts, dir),
        Source::Memory(recording, options, client) => {
            let context = recording.context.clone();
            let (base, lost) = (recording.base, recording.lost.total());
            let reading = Reading::new(recording.into_events(), options, &context, usize::MAX);
            let analysis = RecordingAnalysis {
                args,
                context: &context,
                base,
                exact: usize::MAX,
                client: Some(&client),
                process: facts.process,
                before_load: facts.before_load.as_ref(),
                dir: dir.as_deref(),
            };
            let (pass, end) = analysis.run(reading);
            conclude(pass?, End { lost, ..end }, facts, dir.take())
        }
    }
}

fn analyse_file(
    file: File,
    args: &AnalysisArgs,
    facts: MeasurementFacts,
    dir: Option<&mut RunDir>,
) -> Result<Analysed, Failure> {
    let named = |error: &dyn std::fmt::Display| match &facts.path {
        Some(path) => Failure::failed(format!("{}: {error}", path.display())),
        None => Failure::failed(error),
    };
    let mut reader = RecordingReader::open_whole(file).map_err(|error| named(&error))?;
    let context = reader.context().clone();
    let base = reader.base();
    let options = MatchOptions::of(&context).or_exit(Exit::Failed)?;
    let reading = Reading::new(reader.recorded(), options, &context, window::REQUESTS);
    let analysis = RecordingAnalysis {
        args,
        context: &context,
        base,
        exact: streaming::EXACT,
        client: None,
        process: facts.process,
        before_load: None,
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
