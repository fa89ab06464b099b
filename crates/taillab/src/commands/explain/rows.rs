//! Matched requests as rows of a table.

use taillab_analysis::Matched;
use taillab_model::explanation::Cause;
use taillab_model::{Monotonic, Nanos};
use taillab_report::requests::RequestRow;

/// What is known of each matched request beside its stamps.
pub struct Known {
    /// Ideal sojourns of the measured requests, in order of T1.
    pub ideal: Vec<Nanos>,
    /// The main cause of each request; empty where they were not explained.
    pub main_causes: Vec<Option<Cause>>,
    /// Where the measurement begins.
    pub from: Monotonic,
}

impl Known {
    /// A row for each matched request, in order of T1.
    pub fn rows<'a>(&'a self, matched: &'a Matched) -> impl Iterator<Item = RequestRow> + 'a {
        let mut ideal = self.ideal.iter().copied();
        let requests = matched.requests.iter().enumerate();
        requests.map(move |(place, request)| {
            let measured = matched.is_measured(place, self.from);
            let worker = matched.workers[place];
            RequestRow {
                server: Some(request.server),
                ideal: if measured { ideal.next() } else { None },
                worker: (worker != 0).then_some(worker),
                main_cause: self.main_causes.get(place).copied().flatten(),
                client: request.client,
                operation: request.operation,
                warm_up: !measured,
            }
        })
    }
}
