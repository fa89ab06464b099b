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

mod budget;
mod bursts;
mod causes;
pub mod chart;
mod checks;
mod clients;
mod columns;
mod document;
mod error;
mod explained;
mod figures;
mod fixes;
mod hgrm;
pub mod hlog;
pub mod html;
pub mod json;
pub mod junit;
mod latency;
pub mod live;
pub mod load;
mod markup;
mod noise;
pub mod perfetto;
pub mod reproduction;
pub mod requests;
mod reservations;
pub mod rtt;
mod schedule;
mod server;
pub mod simulation;
mod split;
pub mod stages;
mod table;
mod tail;
pub mod terminal;
mod text;

pub use document::{Curve, Document, Series};
pub use error::ReportError;
pub use figures::{rate, two_digits_up, utc};
