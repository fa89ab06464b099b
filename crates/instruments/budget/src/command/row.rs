//! What is measured, and the row that becomes of it.

use std::fmt::Display;

use taillab_analysis::statistics::{ccdf, distribution_of};
use taillab_model::noise::NoiseRow;
use taillab_model::{Distribution, Nanos};

use super::bench::Bench;
use crate::result::{BudgetRow, Class, PaperFigures, Standing};

/// A component that is about to be measured.
pub struct Component {
    name: String,
    standing: Standing,
    /// What is measured, or what replaces it.
    how: String,
    parameters: Vec<(String, String)>,
    paper: Option<PaperFigures>,
}

/// A row of the result.
pub enum Row {
    /// With figures.
    Measured(Component, Figures),
    /// Without, and why.
    Unavailable(Component, String),
}

/// What was measured.
pub struct Figures {
    latency: Distribution,
    /// (nanoseconds, share that took longer).
    ccdf: Vec<(u64, f64)>,
    median: Option<Nanos>,
    /// In no order, to compute the networks from; a loop has none.
    samples: Vec<Nanos>,
}

impl Component {
    /// A component of this name.
    pub fn new(name: &str, standing: Standing, how: &str, paper: Option<PaperFigures>) -> Self {
        Self {
            name: name.to_owned(),
            standing,
            how: how.to_owned(),
            parameters: Vec::new(),
            paper,
        }
    }

    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        let parameter = (name.to_owned(), value.to_string());
        self.parameters.push(parameter);
        self
    }

    /// The same, of which something else is measured instead.
    pub fn substituted(self, how: String) -> Self {
        Self {
            standing: Standing::Substituted,
            how,
            ..self
        }
    }

    /// Measures it on the two CPUs, where there are two.
    pub fn on_two_cpus<E: Display>(
        self,
        bench: &Bench<'_>,
        measure: impl FnOnce(u32) -> Result<Vec<Nanos>, E>,
    ) -> Row {
        let of = self.with("cpu", bench.here).with("length", bench.length);
        match bench.there {
            Some(there) => of.with("other cpu", there).measured(measure(there)),
            None => of.unavailable(
                "this needs two CPUs, but this process may use only one (taskset, cpuset)",
            ),
        }
    }

    /// The row of what was measured, or of why it could not be.
    pub fn measured(self, samples: Result<Vec<Nanos>, impl Display>) -> Row {
        match samples {
            Ok(samples) if samples.is_empty() => self.unavailable("nothing came back in time"),
            Ok(samples) => Row::Measured(self, Figures::of(samples)),
            Err(error) => self.unavailable(error),
        }
    }

    /// The row of a loop that reads the clock.
    pub fn of_loop(self, noise: NoiseRow) -> Row {
        let figures = Figures {
            median: noise.reads.quantile(0.5),
            latency: noise.reads,
            ccdf: noise.ccdf,
            samples: Vec::new(),
        };
        Row::Measured(self, figures)
    }

    /// The row without figures, and why.
    pub fn unavailable(self, why: impl Display) -> Row {
        Row::Unavailable(self, why.to_string())
    }
}

impl Figures {
    fn of(samples: Vec<Nanos>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        let points = ccdf(&sorted).into_iter();
        Self {
            latency: distribution_of(&samples),
            ccdf: points.map(|(ns, share)| (ns.get(), share)).collect(),
            median: sorted.get(sorted.len() / 2).copied(),
            samples,
        }
    }
}

impl Row {
    /// A component that nothing here can measure, and why.
    pub fn unavailable(name: &str, why: impl Display, paper: Option<PaperFigures>) -> Self {
        Component::new(name, Standing::Unavailable, "", paper).unavailable(why)
    }

    /// The component's name.
    pub fn name(&self) -> &str {
        let (Self::Measured(of, _) | Self::Unavailable(of, _)) = self;
        &of.name
    }

    /// The latency, where something was measured.
    pub fn latency(&self) -> Option<&Distribution> {
        match self {
            Self::Measured(_, figures) => Some(&figures.latency),
            Self::Unavailable(..) => None,
        }
    }

    /// Each latency; none of a loop.
    pub fn samples(&self) -> &[Nanos] {
        match self {
            Self::Measured(_, figures) => &figures.samples,
            Self::Unavailable(..) => &[],
        }
    }

    /// Whether something was measured.
    pub fn has_figures(&self) -> bool {
        self.latency().is_some_and(|latency| latency.count > 0)
    }

    /// As the result has it.
    pub fn shown(self) -> BudgetRow {
        match self {
            Self::Measured(of, figures) => BudgetRow {
                component: of.name,
                standing: of.standing,
                how: of.how,
                parameters: of.parameters,
                class_of_median: figures.median.map(Class::of),
                class_of_tail: figures.latency.max.map(Class::of),
                latency: Some(figures.latency),
                ccdf: figures.ccdf,
                paper: of.paper,
            },
            Self::Unavailable(of, why) => BudgetRow {
                component: of.name,
                standing: Standing::Unavailable,
                how: why,
                parameters: of.parameters,
                latency: None,
                ccdf: Vec::new(),
                class_of_median: None,
                class_of_tail: None,
                paper: of.paper,
            },
        }
    }
}
