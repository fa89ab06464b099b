//! Validation of the tool: known disturbances with their ground truth, and checks of how well the
//! ledger finds them. Faults of the built-in servers, and the form of the truth, are in [`taillab_load`].
//!
//! | module | what it does |
//! |---|---|
//! | [`injection`] | disturbs the machine around a server |
//! | [`attribution`] | what each injected cause cost each request, and what it was charged to |
//! | [`causes`] | `taillab-testkit causes`: the kinds, their accounts and the verdict (`docs/bench-causes.md`) |
//!
//! `unsafe` is needed for page faults, direct reads and injections.

pub mod attribution;
pub mod causes;
pub mod injection;
