//! A row under construction.

use std::fmt::Display;

use taillab_analysis::statistics::{ccdf, distribution_of};
use taillab_model::Nanos;
use taillab_model::budget::{BudgetRow, Class, PaperFigures, Standing};
use taillab_model::noise::NoiseRow;

/// A row and its samples, from which networks are added up.
pub struct Row {
    pub shown: BudgetRow,
    /// In no order; empty where there is no latency.
    pub samples: Vec<Nanos>,
}

impl Row {
    /// Something was measured.
    pub fn has_figures(&self) -> bool {
        let latency = self.shown.latency.as_ref();
        latency.is_some_and(|latency| latency.count > 0)
    }
}

/// What a row is about.
pub struct About {
    pub component: &'static str,
    pub standing: Standing,
    /// By what it is substituted, or what was done.
    pub how: String,
    pub parameters: Vec<(String, String)>,
    pub paper: Option<PaperFigures>,
}

impl About {
    /// The row with what was measured, or with why it could not be.
    pub fn row(self, samples: Result<Vec<Nanos>, impl Display>) -> Row {
        match samples {
            Ok(samples) if samples.is_empty() => {
                self.unavailable("nothing came back in time".to_owned())
            }
            Ok(samples) => self.of_samples(samples),
            Err(error) => self.unavailable(error.to_string()),
        }
    }

    fn of_samples(self, samples: Vec<Nanos>) -> Row {
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
            ..self.shown()
        };
        Row { shown, samples }
    }

    /// The row of a loop that reads the clock.
    pub fn of_loop(self, noise: NoiseRow) -> Row {
        let shown = BudgetRow {
            class_of_median: noise.reads.quantile(0.5).map(Class::of),
            class_of_tail: noise.reads.max.map(Class::of),
            ccdf: noise.ccdf,
            latency: Some(noise.reads),
            ..self.shown()
        };
        Row {
            shown,
            samples: Vec::new(),
        }
    }

    /// The row without figures.
    pub fn unavailable(self, why: String) -> Row {
        let shown = BudgetRow {
            standing: Standing::Unavailable,
            how: why,
            ..self.shown()
        };
        Row {
            shown,
            samples: Vec::new(),
        }
    }

    fn shown(self) -> BudgetRow {
        BudgetRow {
            component: self.component.to_owned(),
            standing: self.standing,
            how: self.how,
            parameters: self.parameters,
            latency: None,
            ccdf: Vec::new(),
            class_of_median: None,
            class_of_tail: None,
            paper: self.paper,
        }
    }
}

/// A name and a value.
pub fn parameter(name: &str, value: impl Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}
