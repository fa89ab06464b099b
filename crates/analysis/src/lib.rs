//! Pure analysis: kernel events to requests, the ideal queue, stages, statistics.
//!
//! No input or output, no clock, no operating system: everything here runs on a
//! recorded capture, on any machine. The path of the data:
//!
//! 1. [`matcher`] joins kernel events to requests ([`Matched`]);
//! 2. [`ClientRecords::join`] adds what the client knows of each;
//! 3. [`Analysis`] takes them window by window, compares them with the ideal queue ([`ideal`]),
//!    divides them into [`stages`], charges their excess to causes ([`ledger`]) and computes
//!    intervals ([`statistics`]);
//! 4. [`verdict::judge`] decides from the sums what a result may claim;
//! 5. [`streaming::RecordingSums::build`] makes only that.
//!
//! A load without the server's stamps takes a shorter path: [`load::summarise`], then the same
//! judge.

mod application;
mod bound;
mod chain;
pub mod client;
pub mod clients;
pub mod clustering;
mod coarsening;
pub mod commands;
mod comparison;
pub mod composition;
mod crowd;
pub mod cut;
pub mod exchange;
mod explain;
pub mod factorial;
pub mod fan_out;
pub mod findings;
mod fmt;
pub mod gaps;
pub mod heat_map;
mod heaviest;
mod id_map;
pub mod ideal;
pub mod ledger;
mod left_over;
pub mod load;
pub mod matched;
pub mod matcher;
mod overload;
mod own_work;
pub mod paired;
pub mod predict;
pub mod pseudonyms;
pub mod ratio;
pub mod redaction;
pub mod replay;
pub mod requests;
mod resent;
mod roots;
pub mod rtt;
pub mod scaling;
mod sent_again;
pub mod service_time;
mod shadow;
mod sleeping;
pub mod slices;
pub mod slowest;
pub mod spans;
mod speed;
mod spells;
pub mod spoken;
pub mod stages;
pub mod starts;
pub mod statistics;
pub mod streaming;
pub mod timeline;
pub mod untouched;
mod upstreams;
pub mod verdict;
pub mod window;

pub use client::{ClientRecord, ClientRecords};
pub use matched::{BlindWindow, ClientJoin, DatagramIds, MatchCounts, Matched, Unmatched};
pub use matcher::{Framing, MatchOptions, Matcher, match_events, match_recording};
pub use redaction::Redaction;
pub use requests::Requests;
pub use streaming::{Analysed, Analysis, AnalysisError, AnalysisOptions};
pub use window::{Window, Windows};
