//! What the outputs for people show, and the three views of a server's latency.

use taillab_model::summary::Report;
use taillab_model::{Distribution, Nanos};

use crate::schedule;

/// A report, and what the outputs for people (terminal, HTML) show with it.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The result.
    pub report: &'a Report,
    /// Host, kernel and settings, as `environment.json` has them, where they are known.
    pub environment: Option<&'a serde_json::Value>,
    /// The experiment with every default filled in, as `experiment.toml` has it, where there
    /// is one.
    pub experiment_toml: Option<&'a str>,
    /// The curves of the main figure; a view without one is left out. The curves of the explanation
    /// are in the report.
    pub curves: &'a [Curve],
}

impl<'a> Document<'a> {
    /// The views that exist, each with its distribution, in the order of [`Series::ALL`].
    pub(crate) fn views(&self) -> Vec<(Series, &'a Distribution)> {
        let Report { server, load, .. } = self.report;
        let mut views = Vec::new();
        if self.is_compared() {
            views.push((Series::Ideal, server.ideal.base()));
        }
        views.push((Series::Measured, &server.measured.sojourn));
        views.extend((load.as_ref()).map(|load| (Series::Client, &load.response_time)));
        views
    }

    /// How long the connections took to open, where each request has one of its own: a stage of the client's view.
    pub(crate) fn connecting(&self) -> Option<&'a Distribution> {
        let clients = self.report.load.as_ref()?.clients.as_ref()?;
        clients.connecting.as_ref().map(|of| &of.time)
    }

    /// Whether the ideal has each request's own work, as where requests differ in that.
    pub(crate) fn has_own_work(&self) -> bool {
        self.report.server.ideal.base_of_own_work().is_some()
    }

    /// Whether the server is compared with an ideal one.
    pub(crate) fn is_compared(&self) -> bool {
        self.report.server.ideal.is_compared()
    }

    /// What the causes' shares are of.
    pub(crate) fn shared_out(&self) -> SharedOut {
        match self.is_compared() {
            true => SharedOut::Excess,
            false => SharedOut::Delays,
        }
    }

    /// How long the server whose sojourn is the ideal one works on each request.
    fn ideal_work(&self) -> &'static str {
        match self.has_own_work() {
            true => "as long for each as its own work took undisturbed",
            false => "exactly t for each",
        }
    }

    /// What the views are, in one sentence.
    pub(crate) fn views_explained(&self) -> String {
        if !self.is_compared() {
            return NOT_COMPARED.to_owned();
        }
        let rest = match self.report.load {
            Some(_) => CLIENT_EXPLAINED,
            // with each request's own work, the excess is over another ideal, that of t
            None if self.has_own_work() => ".",
            None => EXCESS_EXPLAINED,
        };
        let connecting = match self.connecting() {
            Some(_) => CONNECTING_EXPLAINED,
            None => "",
        };
        let kept = match schedule::cut(self.report).and(self.report.load.as_ref()) {
            Some(_) => KEPT_EXPLAINED,
            None => "",
        };
        let work = self.ideal_work();
        format!("{IDEAL_EXPLAINED}{work}{SERVER_EXPLAINED}{rest}{connecting}{kept}")
    }
}

/// A complementary distribution function to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve<S = Series> {
    /// The distribution.
    pub series: S,
    /// (time, share of requests that took at least as long), in order of time.
    pub points: Vec<(Nanos, f64)>,
}

/// The three views of one run's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Series {
    /// The sojourn that the ideal queue would give the same arrivals.
    Ideal,
    /// The measured sojourn, T6 − T1.
    Measured,
    /// What the client waits: from the intended send to the response.
    Client,
}

impl Series {
    /// All three, from the best to what a user sees.
    pub const ALL: [Self; 3] = [Self::Ideal, Self::Measured, Self::Client];

    /// The name for people.
    pub const fn label(self) -> &'static str {
        self.names().0
    }

    /// The name in machine-readable outputs.
    pub const fn key(self) -> &'static str {
        self.names().1
    }

    /// The class in the style sheet of a page.
    pub(crate) const fn class(self) -> &'static str {
        self.names().2
    }

    /// Label, key and class.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ideal => ("ideal", "ideal", "ideal"),
            Self::Measured => ("measured", "measured", "measured"),
            Self::Client => ("client’s view", "client_response", "client"),
        }
    }
}

const NOT_COMPARED: &str = "“Measured” is how long each request stayed, from the driver handing \
its packet to the stack (T1) to the driver taking the response (T6). It is not compared with an \
ideal server; the verdict says why.";
const IDEAL_EXPLAINED: &str = "“Ideal” is how long each request would have stayed in a perfect \
first-come, first-served server that needs ";
const SERVER_EXPLAINED: &str = " and gets the very same arrivals; “measured” is how long it really \
stayed, from the driver handing its packet to the stack (T1) to \
the driver taking the response (T6)";
const CLIENT_EXPLAINED: &str = "; “client’s view” is how long a user waits, from the moment the \
schedule wanted the request sent to the moment its response was read.";
const CONNECTING_EXPLAINED: &str = " Its part “connecting” is from the SYN of the request’s own connection \
until the request was sent on it.";
const KEPT_EXPLAINED: &str = " It leaves out the requests that the generator could not send on \
schedule.";
/// What the shares of causes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedOut {
    /// Of what is more than the ideal.
    Excess,
    /// Of what held requests up.
    Delays,
}

impl SharedOut {
    /// The heading of the causes.
    pub(crate) const fn heading(self) -> &'static str {
        match self {
            Self::Excess => "Where the excess comes from",
            Self::Delays => "Where the delays come from",
        }
    }

    /// As it stands in a sentence.
    pub(crate) const fn above_p99(self) -> &'static str {
        match self {
            Self::Excess => "the excess above p99",
            Self::Delays => "the delays above p99",
        }
    }
}

const EXCESS_EXPLAINED: &str = ". The difference is the excess.";
