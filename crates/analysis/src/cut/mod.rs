//! What of a measurement is in no statistic because the generator was not what it should have been.
//!
//! [`cuts_of`] finds it in the generator's own record: stretches in which something held it up, so
//! that it sent late, and then much at once. [`Cutter`] follows the requests and says until when such a stretch
//! has an effect: until the queue is what it would have been without it.
//!
//! The arrivals that are left are those of the process wanted, since a stall of the generator has nothing
//! to do with the queue of the server when it begins, and after a cut the queue has the state that it would have
//! had anyway. Only the end of a cut depends on the queue: it waits for an idle server. So requests
//! of long busy periods are too few, and the longer they had lasted the fewer. How many are missing
//! above each percentile is known from those that are left, and where these are many, the percentile is withdrawn
//! ([`MAX_UNSETTLED_SHARE`](taillab_model::summary::MAX_UNSETTLED_SHARE)).

mod cutter;
mod find;
mod occupants;

pub use crate::spans::{Span, Spans};
pub use cutter::Cutter;
pub use find::{Thread, cuts_of, merged};
pub use occupants::Occupants;
