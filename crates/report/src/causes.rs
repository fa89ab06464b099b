//! Tables of an explanation: what the excess consists of, who caused it, what would remove it.

use taillab_model::explanation::{
    Band, Cause, CauseShare, ModelFit, OTHER_THREADS, PredictedPoint, Prediction, SlowRequest,
    Stretch, WorkerShare,
};

use crate::explained::{self, Composition, Part};
use crate::figures::{
    count, counted, interval, mean_length, micros, micros_f64, percent, quantile_name, ratio,
};
use crate::table::{Column, Table, cell, known, name};
use crate::text::Ink;

/// Marks of the parts, so that the bars in a terminal can be read without colours.
const MARKS: [char; 5] = ['█', '▓', '▒', '░', '╱'];

/// The colour and the mark of a part in a terminal.
pub(crate) fn mark(composition: &Composition<'_>, place: usize) -> (Ink, char) {
    match composition.parts[place] {
        Part::Cause(Cause::Unexplained) => (Ink::Bad, '?'),
        Part::Others => (Ink::Quiet, '·'),
        Part::Cause(_) => {
            let n = place.min(MARKS.len() - 1);
            (Ink::Cause(n as u8), MARKS[n])
        }
    }
}

/// The class of a part in the style sheet.
pub(crate) fn class(composition: &Composition<'_>, place: usize) -> String {
    match composition.parts[place] {
        Part::Cause(Cause::Unexplained) => "cause-unexplained".to_owned(),
        Part::Others => "cause-others".to_owned(),
        Part::Cause(_) => format!("cause-{}", place + 1),
    }
}

/// The share of each part in each band; `short` where there is little room.
pub(crate) fn composition_table(composition: &Composition<'_>, short: bool) -> Table {
    let head = |band: &Band| match (short, band.from_q <= 0.0) {
        (false, _) => explained::band_name(band),
        (true, true) => format!("≤{}", quantile_name(band.to_q)),
        (true, false) => format!(">{}", quantile_name(band.from_q)),
    };
    let mut columns = vec![Column::left("")];
    columns.extend(composition.bands.iter().map(|band| {
        let requests = counted(band.requests, "request", "requests");
        let column = Column::right(head(band)).note(requests);
        if short { column.gap(1) } else { column }
    }));
    let caption = "Share of the excess, below it the 95 % interval and the mean in microseconds";
    let mut table = Table::new(caption, columns);
    for (place, part) in composition.parts.iter().enumerate() {
        let (ink, mark) = mark(composition, place);
        let mut cells = vec![cell(part.label()).mark(ink, mark, class(composition, place))];
        for band in composition.bands {
            let share = composition.share(band, *part);
            let ink = match share {
                share if share >= 0.25 => Ink::Title,
                share if share.abs() < 0.005 => Ink::Quiet,
                _ => Ink::Plain,
            };
            let interval = (composition.interval(band, *part))
                .map(|share| format!("{} %\n", explained::share_interval(share)));
            let mean = micros_f64(composition.mean_excess_ns(band, *part));
            let note = format!("{}{mean} µs", interval.unwrap_or_default());
            let decimals = if short { 0 } else { 1 };
            cells.push(cell(percent(share, decimals)).ink(ink).note(note));
        }
        table.row(cells);
    }
    table
}

/// Each culprit with its share of the excess.
pub(crate) fn culprits_table(rows: &[&CauseShare]) -> Table {
    let what = |row: &CauseShare| explained::cause_and_culprit(row.cause, row.culprit.as_ref());
    shares_table(rows, what)
}

/// Whole causes with their shares of the excess; each names its chief culprits in `causes`.
pub(crate) fn wholes_table(rows: &[&CauseShare], causes: &[CauseShare]) -> Table {
    shares_table(rows, |row| {
        explained::cause_and_chief_culprits(row.cause, causes)
    })
}

fn shares_table(rows: &[&CauseShare], what: impl Fn(&CauseShare) -> String) -> Table {
    let columns = [
        Column::right("share").note("above p99".to_owned()).notes(),
        Column::right("of all").on_page(),
        Column::right("excess").on_page(),
        Column::right("requests").on_page(),
        Column::right("times").gap(2),
        Column::right("each lasts").gap(2),
        Column::right("delays").gap(2),
        Column::left("what").gap(2).wrapped(usize::MAX),
    ];
    let caption = "Shares of the excess with their 95 % intervals, in percent; “delays” is how \
                   many requests one occurrence delays on average";
    let mut table = Table::new(caption, columns).class("named-last");
    for row in rows {
        let tail = row.excess_share_above_p99;
        let upto = |row: &CauseShare| {
            let longest = row.longest_event_ns.filter(|_| row.events > 1);
            let long = row.long_events.filter(|long| long.events > 1);
            let long = long.map(|long| {
                format!(
                    "{} of them {}",
                    count(long.events),
                    mean_length(long.mean_ns)
                )
            });
            let upto = longest.map(|longest| format!("up to {longest}"));
            [long, upto]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", ")
        };
        let happened = |text: String| known((row.events > 0).then_some(text));
        table.row([
            name(percent(tail.value, 1)).note(explained::share_interval(tail)),
            cell(percent(row.share.value, 1)).note(explained::share_interval(row.share)),
            cell(row.excess_ns.to_string()),
            cell(count(row.requests)),
            happened(count(row.events)),
            happened(mean_length(row.mean_event_ns)).note(upto(row)),
            happened(explained::mean_count(row.requests_per_event)),
            cell(what(row)),
        ]);
    }
    table
}

/// The replay against the measurement.
pub(crate) fn fit_table(fit: &ModelFit) -> Table {
    let heads = ["measured", "replayed", "error"].map(Column::right);
    let columns = [Column::left("")].into_iter().chain(heads);
    let mut table = Table::new(
        "The replay against the measurement, in microseconds",
        columns,
    );
    for point in &fit.points {
        table.row([
            name(quantile_name(point.q)),
            cell(micros(point.measured_ns)),
            cell(micros(point.replayed_ns)),
            cell(percent(point.error, 1)),
        ]);
    }
    table
}

fn point_at(prediction: &Prediction, q: f64) -> Option<&PredictedPoint> {
    (prediction.points.iter()).find(|point| (point.q - q).abs() < 1e-12)
}

/// The predicted latency after each change, below a row with the latency now.
pub(crate) fn predictions_table(predictions: &[&Prediction]) -> Table {
    // the gain shown is the one at the highest percentile that the sample supports
    let far = (explained::FORECAST.into_iter().rev())
        .find(|&q| predictions.iter().any(|p| point_at(p, q).is_some()))
        .unwrap_or(explained::FORECAST[0]);
    let mut columns = vec![Column::left("µs, with 95 % intervals").short("µs")];
    columns.extend(explained::FORECAST.map(|q| Column::right(quantile_name(q)).notes()));
    columns.push(
        Column::right(quantile_name(far))
            .note("against now".to_owned())
            .on_page(),
    );
    let caption = "Predicted latency in microseconds with its 95 % interval, which includes the \
                   error of the model; the best first";
    let mut table = Table::new(caption, columns).class("predictions");
    let now = explained::FORECAST.map(|q| {
        let point = predictions.iter().find_map(|p| point_at(p, q));
        known(point.map(|point| micros(point.measured_ns))).ink(Ink::Measured)
    });
    table.row([cell("now")].into_iter().chain(now).chain([cell("")]));
    for prediction in predictions {
        let mut cells = vec![name(&prediction.change)];
        cells.extend(explained::FORECAST.map(|q| {
            let point = point_at(prediction, q);
            let interval = point.map_or_else(String::new, |at| match at.hi_ns {
                Some(_) => interval(at.lo_ns, at.hi_ns),
                None => String::new(),
            });
            known(point.map(|point| micros(point.predicted_ns)))
                .ink(Ink::Good)
                .note(interval)
        }));
        let gain = point_at(prediction, far)
            .filter(|point| point.measured_ns.get() > 0)
            .map(|point| point.predicted_ns.get() as f64 / point.measured_ns.get() as f64);
        cells.push(known(gain.map(ratio)).ink(Ink::Title));
        let row = table.row(cells);
        let mut text = prediction.description.clone();
        if let Some(cost) = &prediction.cost {
            text.push_str(&format!("; costs: {cost}"));
        }
        row.below(Ink::Quiet, text);
        if let Some(command) = &prediction.command {
            row.command(command);
        }
    }
    table
}

/// The threads that served, the slowest first.
pub(crate) fn workers_table(workers: &[WorkerShare], most: usize) -> Table {
    let mut workers: Vec<&WorkerShare> = workers.iter().collect();
    workers.sort_by(|a, b| b.mean_sojourn_ns.total_cmp(&a.mean_sojourn_ns));
    let heads = ["requests", "busy", "mean sojourn in µs"].map(Column::right);
    let columns = [Column::left("worker")].into_iter().chain(heads);
    let mut table = Table::new("The threads that served requests", columns);
    for worker in workers.into_iter().take(most) {
        table.row([
            cell(match worker.tid {
                OTHER_THREADS => worker.name.clone(),
                tid => format!("{} {tid}", worker.name),
            }),
            cell(count(worker.requests)),
            cell(percent(worker.busy_share, 1)),
            cell(micros_f64(worker.mean_sojourn_ns)),
        ]);
    }
    table
}

/// The longest stretches of a slow request in order of time, and those that are left out.
pub(crate) fn stretches_table(request: &SlowRequest) -> (Table, Vec<&Stretch>) {
    /// Stretches in the table; the shortest ones are only summed.
    const MOST: usize = 12;
    let mut longest: Vec<&Stretch> = request.stretches.iter().collect();
    longest.sort_by_key(|stretch| std::cmp::Reverse(stretch.lasted_ns));
    let left = longest.split_off(longest.len().min(MOST));
    let chief = longest.first().map(|stretch| stretch.lasted_ns);
    longest.sort_by_key(|stretch| stretch.from_ns);
    let columns = [
        Column::right("from µs"),
        Column::right("for µs").gap(2),
        Column::right("share").gap(2),
        Column::left("delay").gap(2),
        Column::left("why").gap(2).wrapped(usize::MAX),
    ];
    let mut table = Table::new("Stretches of the request", columns).class("named-last");
    let whole = request.sojourn_ns.get().max(1) as f64;
    for stretch in longest {
        let ink = match chief == Some(stretch.lasted_ns) {
            true => Ink::Title,
            false => Ink::Plain,
        };
        let whose = if stretch.inherited {
            "inherited"
        } else {
            "own"
        };
        let why = explained::stretch_reason(request, stretch);
        table.row([
            cell(micros(stretch.from_ns)).ink(Ink::Quiet),
            cell(micros(stretch.lasted_ns)).ink(ink),
            cell(percent(stretch.lasted_ns.get() as f64 / whole, 1)).ink(Ink::Quiet),
            cell(whose).ink(Ink::Quiet),
            cell(why).ink(ink),
        ]);
    }
    (table, left)
}
