//! Pure analysis: kernel events to requests, the ideal queue, stages, statistics.
//!
//! No input or output, no clock, no operating system: everything here runs on a
//! recorded capture, on any machine. The way of the data:
//!
//! 1. [`matcher`] joins kernel events to requests ([`Matched`]);
//! 2. [`Matched::join_client`] adds what the client knows of each;
//! 3. [`summary::analyse`] compares them with the ideal queue ([`ideal`]), takes them
//!    apart ([`stages`]) and puts intervals on it all ([`statistics`]);
//! 4. [`verdict::judge`] says whether the measurement can be believed.
//!
//! A load without the server's stamps takes a shorter way: [`load::summarise`], then the same
//! verdict.

pub mod client;
pub mod clustering;
mod coarsening;
pub mod composition;
pub mod explain;
pub mod fan_out;
pub mod findings;
mod fmt;
pub mod heat_map;
pub mod ideal;
pub mod ledger;
pub mod load;
pub mod long;
pub mod matched;
pub mod matcher;
pub mod median;
pub mod predict;
pub mod replay;
pub mod requests;
mod resent;
pub mod slowest;
pub mod stages;
pub mod statistics;
pub mod summary;
pub mod timeline;
pub mod verdict;
pub mod window;

pub use client::{ClientJoin, ClientRecord};
pub use explain::{ExplainOptions, Explained, explain, explain_each};
pub use matched::{BlindWindow, DatagramIds, MatchCounts, Matched, Unmatched};
pub use matcher::{Framing, MatchOptions, Matcher, match_events};
pub use median::{MedianEstimate, median};
pub use requests::Requests;
pub use summary::{AnalyseOptions, Analysis, AnalysisError, analyse};
pub use window::{Window, Windows};
