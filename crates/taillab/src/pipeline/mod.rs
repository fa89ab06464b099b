//! From a recording to its report: analyse → save → show.
//!
//! Every measurement of a server ends here. `run` brings a recording with the records of its own
//! client, `trace` a file that it has just written, `explain` a file from earlier, and
//! `trace --live` the windows of a recording that is still being made.

mod analyse;
mod canary;
mod client;
mod cuts;
pub mod limits;
mod live;
mod load;
pub mod next_steps;
mod print;
mod recording;
mod rendered;
mod rights;
mod rows;
mod rundir;
mod save;
mod service_time;
#[cfg(test)]
mod withdrawn;

pub use analyse::{Analysed, BeforeLoad, Known, RecordingCost};
pub use canary::{Canary, stalls};
pub use client::{Client, loaded_requests, summarise_load};
pub use cuts::{cuts, late_sends, unseen_by_client};
pub use live::LiveWindows;
pub use load::{ClientMeasured, show_load};
pub use print::{print, print_result, style};
pub use recording::{Source, analyse};
pub use rendered::Rendered;
pub use rights::{Remaining, give_up_root, recover, without_root};
pub use rundir::{RECORDING, RunDir};
pub use save::{Attachments, Shown, save, save_figure, show, with_files};
