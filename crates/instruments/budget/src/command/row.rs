//! A row under construction.

use std::fmt::Display;

use taillab_analysis::statistics::{ccdf, distribution_of};
use taillab_model::Nanos;
use taillab_model::noise::NoiseRow;

use super::bench::Bench;
use crate::result::{BudgetRow, Class, PaperFigures, Standing};

/// A row and its samples, from which the networks are computed.
pub struct Row {
    pub shown: BudgetRow,
    /// In no order; empty where there is no latency.
    pub samples: Vec<Nanos>,
}

impl Row {
    /// A row without figures yet. `how` says what is measured, or what replaces it.
    pub fn new(
        component: &str,
        standing: Standing,
        how: &str,
        paper: Option<PaperFigures>,
    ) -> Self {
        Self {
            shown: BudgetRow {
                component: component.to_owned(),
                standing,
                how: how.to_owned(),
                parameters: Vec::new(),
                latency: None,
                ccdf: Vec::new(),
                class_of_median: None,
                class_of_tail: None,
                paper,
            },
            samples: Vec::new(),
        }
    }

    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        let parameter = (name.to_owned(), value.to_string());
        self.shown.parameters.push(parameter);
        self
    }

    /// Whether something was measured.
    pub fn has_figures(&self) -> bool {
        let latency = self.shown.latency.as_ref();
        latency.is_some_and(|latency| latency.count > 0)
    }

    /// Measures it on the two CPUs, where there are two.
    pub fn on_two_cpus<E: Display>(
        self,
        bench: &Bench<'_>,
        measure: impl FnOnce(u32) -> Result<Vec<Nanos>, E>,
    ) -> Self {
        let row = self.with("cpu", bench.here).with("length", bench.length);
        match bench.there {
            Some(there) => row.with("other cpu", there).measured(measure(there)),
            None => row.unavailable(
                "this needs two CPUs, but this process may use only one (taskset, cpuset)",
            ),
        }
    }

    /// Adds what was measured, or why it could not be.
    pub fn measured(self, samples: Result<Vec<Nanos>, impl Display>) -> Self {
        match samples {
            Ok(samples) if samples.is_empty() => self.unavailable("nothing came back in time"),
            Ok(samples) => self.of_samples(samples),
            Err(error) => self.unavailable(error),
        }
    }

    fn of_samples(self, samples: Vec<Nanos>) -> Self {
        let latency = distribution_of(&samples);
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        let points = ccdf(&sorted);
        let shown = BudgetRow {
            class_of_median: sorted.get(sorted.len() / 2).map(|ns| Class::of(*ns)),
            class_of_tail: latency.max.map(Class::of),
            latency: Some(latency),
            ccdf: points
                .into_iter()
                .map(|(ns, share)| (ns.get(), share))
                .collect(),
            ..self.shown
        };
        Self { shown, samples }
    }

    /// Adds the figures of a loop that reads the clock.
    pub fn of_loop(mut self, noise: NoiseRow) -> Self {
        self.shown.class_of_median = noise.reads.quantile(0.5).map(Class::of);
        self.shown.class_of_tail = noise.reads.max.map(Class::of);
        self.shown.ccdf = noise.ccdf;
        self.shown.latency = Some(noise.reads);
        self
    }

    /// Says why there are no figures.
    pub fn unavailable(mut self, why: impl Display) -> Self {
        self.shown.standing = Standing::Unavailable;
        self.shown.how = why.to_string();
        self
    }
}
