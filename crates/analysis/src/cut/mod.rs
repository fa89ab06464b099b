//! Cuts: parts of a measurement in which the generator did not keep its schedule, because it was held up.
//!
//! They are left out of the experiment's view ([`Scheduled`](taillab_model::summary::Scheduled)), which says what
//! arrivals by the schedule see, and of nothing else: what the server did with the arrivals that came is true
//! whatever the sender did.
//!
//! [`cuts_of`] finds them in the generator's own record: stretches in which something held it up, so
//! that it sent late, and then many requests at once. [`Cutter`] follows the requests and determines how
//! long such a stretch has an effect: until the queue is in the state that it would have had without it.
//!
//! The remaining arrivals still follow the intended process. A stall of the generator begins
//! independently of the server's queue, and after a cut the queue is in the state that it would have
//! been in anyway. Only the end of a cut depends on the queue: it waits for an idle server. So requests
//! of long busy periods are under-represented, and more so the longer the busy period. How many are
//! missing above each percentile is estimated from those that remain. If too many are missing, the
//! percentile is withdrawn
//! ([`MAX_UNSETTLED_SHARE`](taillab_model::summary::MAX_UNSETTLED_SHARE)).

mod cutter;
mod find;
mod occupants;

pub use crate::spans::{Span, Spans};
pub use cutter::Cutter;
pub use find::{Thread, cuts_of, merged};
pub use occupants::{Occupancy, Occupants};
