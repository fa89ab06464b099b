//! `report.html`: one self-contained page for each kind of result.
//!
//! Everything is in the markup, so the page can be read without JavaScript; the script only
//! adds reading off values, zooming and hiding curves. The page's Content-Security-Policy
//! allows its own style and script by their hashes and nothing else, so nothing can be
//! fetched and text from outside could not run even if it were not escaped.

mod bars;
mod budget;
mod causes;
mod checks;
mod details;
mod figure;
mod fixes;
mod headline;
mod load;
mod noise;
mod over_time;
mod page;
mod predictions;
mod report;
mod reproduction;
mod rtt;
mod simulation;
mod slowest;
mod stages;

pub use self::budget::render as render_budget;
pub use self::load::render_load;
pub use self::noise::render as render_noise;
pub use self::report::render;
pub use self::reproduction::render as render_reproduction;
pub use self::rtt::render as render_rtt;
pub use self::simulation::render as render_simulation;
