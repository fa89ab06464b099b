//! From a recording to its report: analyse → save → show.
//!
//! Every measurement of a server ends here. `run` and `trace` bring a [`Spool`] that they have just written, `run` with the
//! records of its own client; `explain` brings a file from earlier, and `trace --live` the windows of a recording that
//! is still being made.

mod analyse;
mod canary;
mod client;
mod cuts;
pub mod limits;
mod live;
mod load;
pub mod next_steps;
mod recording;
mod rows;
mod save;
mod service_time;
mod spool;
#[cfg(test)]
mod tests;

pub use analyse::{Analysed, BeforeLoad, MeasurementFacts, RecordingCost};
pub use canary::{Canary, stalls};
pub use client::{Client, loaded_requests, response_times_at_worst, summarise_load};
pub use cuts::{cuts, late_sends, unseen_by_client};
pub use live::LiveWindows;
pub use load::{ClientMeasured, show_load};
pub use recording::{OwnLoad, Source, analyse};
pub use save::{Attachments, Presentation, save, show};
pub use spool::Spool;
