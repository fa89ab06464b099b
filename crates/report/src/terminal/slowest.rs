//! The slowest requests one by one: what each CPU did between T1 and T6, and why it took so
//! long.

use std::ops::RangeInclusive;

use taillab_model::Nanos;
use taillab_model::explanation::{Activity, Culprit, SlowRequest};

use super::page::Page;
use crate::causes::stretches_table;
use crate::explained;
use crate::figures::counted;
use crate::text::{INDENT, Ink, Style, clean, columns};

/// Columns before the bars: `CPU 127`.
const LABEL: usize = 8;
/// Marks of what ran; the server is a full block, an idle CPU a dot.
const LETTERS: RangeInclusive<char> = 'a'..='z';
const SERVER: char = '█';
const IDLE: char = '·';
/// The mark of everything beyond the last letter.
const OTHERS: char = '+';

/// The timelines, in the order given.
pub fn render(requests: &[SlowRequest], style: Style) -> String {
    let mut page = Page::new(style);
    if requests.is_empty() {
        page.paragraph(Ink::Quiet, "No slow request was examined in detail.");
        return page.text;
    }
    page.paragraph(
        Ink::Quiet,
        "The slowest requests, from T1 to T6. A delay is inherited if it delayed an earlier request \
         that this one waited behind.",
    );
    for (i, request) in requests.iter().enumerate() {
        page.slow_request(i + 1, request);
    }
    page.text
}

impl Page {
    fn slow_request(&mut self, place: usize, request: &SlowRequest) {
        self.line("");
        let lead = format!("#{place} ");
        let width = columns(&lead);
        let lead = self.style.paint(Ink::Title, &lead);
        let title = explained::slow_request_title(request);
        self.hanging(&lead, width, Ink::Plain, &title);
        let scale = Scale {
            length: request.sojourn_ns.get().max(1),
            width: self.style.width - INDENT - LABEL,
        };
        self.stamps(request, scale);
        let after: Vec<String> = (request.stamps_ns.iter().zip(2..))
            .filter_map(|(at, n)| Some(format!("T{n} {}", (*at)?)))
            .collect();
        let legend = self.cpu_bars(request, scale);
        if !after.is_empty() {
            self.paragraph(Ink::Quiet, &format!("after T1: {}", after.join(", ")));
        }
        if !legend.is_empty() {
            self.paragraph(Ink::Quiet, &legend);
        }
        self.stretches(request);
    }

    /// A ruler with the stamps in their places.
    fn stamps(&mut self, request: &SlowRequest, scale: Scale) {
        let mut ruler = vec!['─'; scale.width];
        let stamps = std::iter::once(Some(Nanos::ZERO)).chain(request.stamps_ns);
        for (i, stamp) in stamps.enumerate() {
            if let Some(at) = stamp {
                let digit = char::from_digit(i as u32 + 1, 10).unwrap_or('?');
                // of two in one place the later one shows
                ruler[scale.column(at.get())] = digit;
            }
        }
        let label = self.style.paint(Ink::Quiet, &format!("{:<LABEL$}", "T"));
        self.line(&format!(
            "{:INDENT$}{label}{}",
            "",
            String::from_iter(ruler)
        ));
    }

    /// A bar for each CPU; returns what the marks mean.
    fn cpu_bars(&mut self, request: &SlowRequest, scale: Scale) -> String {
        let others = others(request);
        let mark = |who: Option<&Culprit>| match who {
            None => (Ink::Quiet, IDLE),
            Some(who) if explained::is_worker(request, who) => (Ink::Client, SERVER),
            Some(who) => {
                let place = others.iter().position(|(other, _)| *other == who);
                let letter = place.and_then(|place| LETTERS.clone().nth(place));
                (Ink::Measured, letter.unwrap_or(OTHERS))
            }
        };
        for cpu in explained::cpus(request) {
            let label = self
                .style
                .paint(Ink::Quiet, &format!("{:<LABEL$}", format!("CPU {cpu}")));
            let mut line = format!("{:INDENT$}{label}", "");
            for cell in cells(request, cpu, scale) {
                match cell.map(|activity| mark(activity.who.as_ref())) {
                    Some((ink, mark)) => line.push_str(&self.style.paint(ink, &mark.to_string())),
                    None => line.push(' '),
                }
            }
            self.line(&line);
        }
        let has = |of: &dyn Fn(Option<&Culprit>) -> bool| {
            request.activities.iter().any(|a| of(a.who.as_ref()))
        };
        let mut legend = Vec::new();
        if has(&|who| who.is_some_and(|who| explained::is_worker(request, who))) {
            legend.push(format!("{SERVER} the worker"));
        }
        if has(&|who| who.is_none()) {
            legend.push(format!("{IDLE} idle"));
        }
        for ((who, total), letter) in others.iter().zip(LETTERS) {
            legend.push(format!("{letter} {} ({total})", clean(&who.to_string())));
        }
        if others.len() > LETTERS.count() {
            legend.push(format!("{OTHERS} others"));
        }
        legend.join(", ")
    }

    fn stretches(&mut self, request: &SlowRequest) {
        let (table, left) = stretches_table(request);
        self.table(&table);
        if !left.is_empty() {
            let sum: Nanos = left.iter().map(|stretch| stretch.lasted_ns).sum();
            let left = counted(left.len() as u64, "shorter stretch", "shorter stretches");
            self.paragraph(Ink::Quiet, &format!("and {left} of {sum} together"));
        }
    }
}

#[derive(Clone, Copy)]
struct Scale {
    /// Nanoseconds of the whole bar.
    length: u64,
    width: usize,
}

impl Scale {
    fn column(self, at_ns: u64) -> usize {
        let at = u128::from(at_ns.min(self.length)) * self.width as u128;
        ((at / u128::from(self.length)) as usize).min(self.width - 1)
    }
}

/// What took most of each column's time on a CPU.
fn cells(request: &SlowRequest, cpu: u16, scale: Scale) -> Vec<Option<&Activity>> {
    let mut most: Vec<(u64, Option<&Activity>)> = vec![(0, None); scale.width];
    let edge = |column: usize| {
        let at = u128::from(scale.length) * column as u128 / scale.width as u128;
        at as u64
    };
    for activity in request.activities.iter().filter(|a| a.cpu == cpu) {
        let from = activity.from_ns.get();
        let to = from.saturating_add(activity.lasted_ns.get());
        let (first, last) = (scale.column(from), scale.column(to));
        for (column, most) in (first..).zip(&mut most[first..=last]) {
            let inside = to
                .min(edge(column + 1))
                .saturating_sub(from.max(edge(column)));
            if inside > most.0 {
                *most = (inside, Some(activity));
            }
        }
    }
    most.into_iter().map(|(_, activity)| activity).collect()
}

/// Everything else that ran from T1 to T6, the longest first.
fn others(request: &SlowRequest) -> Vec<(&Culprit, Nanos)> {
    explained::summed(request.activities.iter().filter_map(|activity| {
        let who = activity.who.as_ref()?;
        (!explained::is_worker(request, who)).then_some((who, activity.lasted_ns))
    }))
}
