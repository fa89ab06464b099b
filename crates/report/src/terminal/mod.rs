//! The result as a person reads it in a terminal.

mod chart;
mod compare;
mod doctor;
mod explanation;
mod fixes;
mod load;
mod page;
mod report;
mod screen;
mod slowest;
mod tune;

pub use self::chart::render as render_chart;
pub use self::compare::render as render_comparison;
pub use self::doctor::{Detail, render as render_doctor};
pub use self::load::{load_screen, render_load};
pub use self::page::Page;
pub use self::report::{details, render};
pub use self::screen::{NextStep, screen};
pub use self::slowest::render as slowest;
pub use self::tune::render as render_tune;
pub use crate::text::{Style, wrap};
