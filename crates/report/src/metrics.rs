//! The figures of a live trace for a monitoring system, in the text format of OpenMetrics 1.0.
//!
//! All are counters that only grow, so that rates and percentiles of any period can be computed from two readings.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use taillab_model::explanation::{CauseShare, Culprit};
use taillab_model::summary::{Matching, ServerResult, Stages};
use taillab_model::{Nanos, Stage};

use crate::stages;

/// The type of the text, for the header of an answer over HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper ends of the buckets of the sojourn. They never change, so that readings of all versions can be compared.
pub const BUCKETS: [Nanos; 20] = [
    Nanos::from_micros(5),
    Nanos::from_micros(10),
    Nanos::from_micros(20),
    Nanos::from_micros(50),
    Nanos::from_micros(100),
    Nanos::from_micros(200),
    Nanos::from_micros(500),
    Nanos::from_millis(1),
    Nanos::from_millis(2),
    Nanos::from_millis(5),
    Nanos::from_millis(10),
    Nanos::from_millis(20),
    Nanos::from_millis(50),
    Nanos::from_millis(100),
    Nanos::from_millis(200),
    Nanos::from_millis(500),
    Nanos::from_secs(1),
    Nanos::from_secs(2),
    Nanos::from_secs(5),
    Nanos::from_secs(10),
];

/// What is counted since the start of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Sojourns in each of [`BUCKETS`] that are in none before it; the last ones are longer than all.
    sojourns: [u64; BUCKETS.len() + 1],
    sojourn_ns: u128,
    complete: u64,
    stages_ns: [f64; 5],
    /// By the keys of cause and class of culprit.
    excess_ns: BTreeMap<(&'static str, &'static str), f64>,
    responses: u64,
    matched: u64,
    ambiguous: u64,
    unanswered: u64,
    lost_events: u64,
    forgotten: u64,
    blind_ns: u128,
    /// Seconds whose events were not analysed in time.
    skipped: u64,
}

impl Metrics {
    /// Adds the result of a window, with the sojourns of its requests.
    pub fn add(&mut self, result: &ServerResult, sojourns: &[Nanos]) {
        self.add_sojourns(sojourns);
        self.add_stages(&result.stages);
        self.add_causes(&result.causes);
        self.add_matching(&result.matching);
        self.forgotten += result.left_out.forgotten;
    }

    /// Sets how many seconds were skipped since the start.
    pub fn set_skipped(&mut self, skipped: u64) {
        self.skipped = skipped;
    }

    fn add_sojourns(&mut self, sojourns: &[Nanos]) {
        for sojourn in sojourns {
            let place = BUCKETS.partition_point(|end| end < sojourn);
            self.sojourns[place] += 1;
            self.sojourn_ns += u128::from(sojourn.get());
        }
    }

    fn add_stages(&mut self, stages: &Stages) {
        self.complete += stages.t1_t2.count;
        for (sum, stage) in self.stages_ns.iter_mut().zip(stages::all(stages)) {
            *sum += stage.mean.unwrap_or_default() * stage.count as f64;
        }
    }

    /// What no culprit is known for has the class `none`.
    fn add_causes(&mut self, causes: &[CauseShare]) {
        for whole in causes.iter().filter(|cause| cause.culprit.is_none()) {
            let mut rest = whole.excess_ns.get() as f64;
            for part in causes.iter().filter(|part| part.cause == whole.cause) {
                let Some(culprit) = &part.culprit else {
                    continue;
                };
                let charged = part.excess_ns.get() as f64;
                rest -= charged;
                self.charge(whole, class(culprit), charged);
            }
            self.charge(whole, "none", rest.max(0.0));
        }
    }

    fn charge(&mut self, cause: &CauseShare, class: &'static str, ns: f64) {
        if ns > 0.0 {
            *self
                .excess_ns
                .entry((cause.cause.key(), class))
                .or_default() += ns;
        }
    }

    fn add_matching(&mut self, matching: &Matching) {
        self.responses += matching.responses;
        self.matched += matching.matched;
        self.ambiguous += matching.ambiguous;
        self.unanswered += matching.unanswered;
        self.lost_events += matching.lost_events;
        self.blind_ns += u128::from(matching.blind_ns.get());
    }

    /// The text, of a trace of this server by this version of the program.
    pub fn text(&self, server: &str, version: &str) -> String {
        let mut text = Text::default();
        text.family(
            "taillab",
            "info",
            None,
            "What is traced, and by which version.",
        );
        text.sample(
            "taillab_info",
            &[("version", version), ("server", server)],
            1.0,
        );
        self.sojourn(&mut text);
        self.stages(&mut text);
        self.excess(&mut text);
        let counts = [
            (
                "taillab_responses",
                self.responses,
                "Responses that the server sent.",
            ),
            (
                "taillab_matched",
                self.matched,
                "Responses whose request is known: those in taillab_sojourn_seconds.",
            ),
            (
                "taillab_ambiguous",
                self.ambiguous,
                "Responses that more than one request could have caused.",
            ),
            (
                "taillab_unanswered",
                self.unanswered,
                "Requests whose response never left.",
            ),
            (
                "taillab_lost_events",
                self.lost_events,
                "Kernel events that were lost.",
            ),
            (
                "taillab_forgotten",
                self.forgotten,
                "Connections and threads that were forgotten while they were in use.",
            ),
        ];
        for (name, count, help) in counts {
            text.family(name, "counter", None, help);
            text.sample(&format!("{name}_total"), &[], count as f64);
        }
        let blind = "Time in which the probe was blind, summed over the server's CPUs.";
        text.family("taillab_blind_seconds", "counter", Some("seconds"), blind);
        text.sample(
            "taillab_blind_seconds_total",
            &[],
            self.blind_ns as f64 / 1e9,
        );
        let skipped =
            "Seconds that are not in these figures, since they were not analysed in time.";
        text.family(
            "taillab_skipped_seconds",
            "counter",
            Some("seconds"),
            skipped,
        );
        text.sample("taillab_skipped_seconds_total", &[], self.skipped as f64);
        text.end()
    }

    fn sojourn(&self, text: &mut Text) {
        let name = "taillab_sojourn_seconds";
        let help = "How long requests were in the server, from T1 to T6.";
        text.family(name, "histogram", Some("seconds"), help);
        let bucket = format!("{name}_bucket");
        let mut up_to = 0;
        for (end, count) in BUCKETS.iter().zip(self.sojourns) {
            up_to += count;
            let le = float(end.as_secs_f64());
            text.sample(&bucket, &[("le", &le)], up_to as f64);
        }
        let all: u64 = self.sojourns.iter().sum();
        text.sample(&bucket, &[("le", "+Inf")], all as f64);
        text.sample(&format!("{name}_count"), &[], all as f64);
        text.sample(&format!("{name}_sum"), &[], self.sojourn_ns as f64 / 1e9);
    }

    fn stages(&self, text: &mut Text) {
        let name = "taillab_stage_seconds";
        let help = "The stages of requests with all six stamps.";
        text.family(name, "summary", Some("seconds"), help);
        for (stage, ns) in Stage::ALL.iter().zip(self.stages_ns) {
            let labels = [("stage", stage.key())];
            text.sample(&format!("{name}_count"), &labels, self.complete as f64);
            text.sample(&format!("{name}_sum"), &labels, ns / 1e9);
        }
    }

    fn excess(&self, text: &mut Text) {
        let name = "taillab_excess_seconds";
        let help = "Excess of the sojourn over the ideal, summed over the requests, by cause and class of culprit.";
        text.family(name, "counter", Some("seconds"), help);
        for ((cause, class), ns) in &self.excess_ns {
            let labels = [("cause", *cause), ("culprit", *class)];
            text.sample(&format!("{name}_total"), &labels, ns / 1e9);
        }
    }
}

/// What kind of thing a culprit is. Names are no labels: there may be any number of them.
const fn class(culprit: &Culprit) -> &'static str {
    match culprit {
        Culprit::Thread { .. } => "thread",
        Culprit::OwnThread { .. } => "own_thread",
        Culprit::Interrupt { .. } => "interrupt",
        Culprit::Softirq { .. } => "softirq",
        Culprit::SystemCall { .. } => "system_call",
        Culprit::Worker { .. } => "worker",
        Culprit::Runtime { .. } => "runtime",
        Culprit::Sending { .. } => "sending",
        Culprit::Upstream { .. } => "upstream",
        Culprit::SharedCpu { .. } => "shared_cpu",
        Culprit::IdleState { .. } => "idle_state",
        Culprit::Chain { .. } => "chain",
    }
}

/// A number in the canonical form of the format: exponents have two digits.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

/// The text under construction.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        // a string takes everything
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    fn family(&mut self, name: &str, kind: &str, unit: Option<&str>, help: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
        if let Some(unit) = unit {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {}", escaped(help)));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = (labels.iter())
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        self.line(format_args!("{name}{labels} {}", float(value)));
    }

    fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    (text.replace('\\', "\\\\").replace('"', "\\\"")).replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
