//! How long the servers that the recorded one asks take to answer, by the stamps of its questions.

use std::collections::BTreeMap;

use taillab_model::explanation::UpstreamAnswers;
use taillab_model::{Monotonic, Nanos};

use crate::ledger::Labels;
use crate::statistics::Series;
use crate::timeline::{Question, Timeline};

/// Up to so many answers of a server are kept, and more are counted.
const EXACT: usize = 8_192;

/// Collects the answers of other servers while the windows of a recording come.
#[derive(Clone, Debug)]
pub(crate) struct Upstreams {
    measure_from: Monotonic,
    /// Answers up to here have been counted.
    upto: Monotonic,
    by_server: BTreeMap<u16, Series>,
}

impl Upstreams {
    pub(crate) const fn new(measure_from: Monotonic) -> Self {
        Self {
            measure_from,
            upto: measure_from,
            by_server: BTreeMap::new(),
        }
    }

    /// Adds the answers up to `upto`, or until the timeline ends.
    pub(crate) fn add(&mut self, timeline: &Timeline, upto: Monotonic) {
        let upto = upto.min(timeline.to());
        let (from_ns, upto_ns) = (self.upto.nanos_since_boot(), upto.nanos_since_boot());
        let lines = timeline.workers().iter();
        let answered = lines.flat_map(|line| line.questions().answered(from_ns, upto_ns));
        let measured =
            answered.filter(|question| question.from_ns >= self.measure_from.nanos_since_boot());
        let mut answered: Vec<Question> = measured.copied().collect();
        // threads ask at the same time
        answered.sort_unstable_by_key(|question| question.to_ns);
        for question in answered {
            let took = Nanos::new(question.to_ns - question.from_ns);
            let series = self.by_server.entry(question.server);
            series.or_insert_with(|| Series::new(EXACT)).extend(&[took]);
        }
        self.upto = self.upto.max(upto);
    }

    /// The servers with a name, the one that was waited for longest first.
    pub(crate) fn finish(self, labels: &Labels) -> Vec<UpstreamAnswers> {
        let named = (self.by_server.into_iter()).filter_map(|(number, series)| {
            Some(UpstreamAnswers {
                server: labels.upstream_name(number)?.to_owned(),
                answers: series.finish().distribution(),
            })
        });
        let mut all: Vec<UpstreamAnswers> = named.collect();
        all.sort_by(|one, other| other.total_ns().total_cmp(&one.total_ns()));
        all
    }
}
