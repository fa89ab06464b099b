//! Outputs of a measurement: terminal, JSON, HTML, Perfetto, Parquet and HdrHistogram logs.
//!
//! Small outputs are functions from a result to text; the caller owns files and standard output.
//! What grows with the requests ([`requests`], [`hlog`]) is written through a stream that the
//! caller hands in, so that memory does not grow.
//!
//! From the bottom up: `figures` writes numbers, `text` and `markup` write for a terminal and
//! for a page, `table` and [`chart`] hold what both show, the modules of a subject (`latency`,
//! `causes`, `stages` …) make tables and sentences, and [`terminal`] and [`html`] put them
//! together.
//!
//! The results of instruments (`crates/instruments`) are shown with the same parts, by the instruments themselves.

mod bursts;
mod causes;
pub mod chart;
mod checks;
mod clients;
pub mod columns;
mod document;
mod error;
pub mod explained;
pub mod figures;
mod fixes;
mod hgrm;
pub mod hlog;
pub mod html;
pub mod json;
pub mod junit;
pub mod latency;
pub mod live;
pub mod load;
pub mod markup;
pub mod metrics;
pub mod perfetto;
pub mod requests;
mod reservations;
mod schedule;
mod series;
mod server;
mod split;
pub mod stages;
pub mod table;
mod tail;
pub mod terminal;
pub mod text;

pub use document::{Curve, Document, Series};
pub use error::ReportError;
pub use figures::{rate, two_digits_up, utc};
