//! Queueing theory of taillab: arrivals, service, disciplines, exact results, the ideal queue.
//!
//! Pure: no input or output, no operating system, no clock. [`arrivals`] and [`service`] give the
//! generator and the simulator the same random streams. [`ideal`] is the queue that a server is compared
//! with. [`exact`] has the exact results of queueing theory.
//!
//! `unsafe` is needed for vector instructions, chosen at run time.
//!
//! Another arrival process or service distribution belongs here, for the generator and the simulator. Of another
//! queueing discipline, the name belongs to [`discipline`]; its kernel is in the simulator.

pub mod arrivals;
pub mod discipline;
pub mod exact;
pub mod fanout;
pub mod grid;
pub mod ideal;
pub mod isa;
pub mod notation;
pub mod random;
pub mod service;
