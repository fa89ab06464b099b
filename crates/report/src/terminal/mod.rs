//! The result as a person reads it in a terminal.

mod budget;
mod chart;
mod compare;
mod doctor;
mod explanation;
mod fixes;
mod load;
mod noise;
mod page;
mod report;
mod reproduction;
mod rtt;
mod screen;
mod simulation;
mod slowest;
mod tune;

pub use self::budget::render as render_budget;
pub use self::chart::render as render_chart;
pub use self::compare::render as render_comparison;
pub use self::doctor::{Detail, render as render_doctor};
pub use self::load::{load_screen, render_load};
pub use self::noise::render as render_noise;
pub use self::report::{details, render};
pub use self::reproduction::render as render_reproduction;
pub use self::rtt::render as render_rtt;
pub use self::screen::{NextStep, screen};
pub use self::simulation::render as render_simulation;
pub use self::slowest::render as slowest;
pub use self::tune::render as render_tune;
pub use crate::text::{Style, wrap};
