//! `report.html`: one self-contained page for each kind of result.
//!
//! Everything is in the markup, so the page can be read without JavaScript; the script only
//! adds reading off values, zooming and hiding curves. The page's Content-Security-Policy
//! allows its own style and script by their hashes and nothing else, so nothing can be
//! fetched and text from outside could not run even if it were not escaped.

pub mod bars;
mod causes;
mod checks;
mod details;
pub mod figure;
mod fixes;
mod headline;
mod load;
mod over_time;
pub mod page;
mod predictions;
mod report;
mod slowest;
mod stages;

pub use self::load::render_load;
pub use self::report::render;
