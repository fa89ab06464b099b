//! Validation of the tool: known disturbances with their ground truth, and checks of how well the
//! ledger finds them.
//!
//! | module | what it does |
//! |---|---|
//! | [`injection`] | disturbs the machine around a server |
//! | [`fault`] | delays the requests of a built-in server |
//! | [`ground_truth`] | what was injected, and when |
//! | [`attribution`] | what each injected cause cost each request, and what it was charged to |
//! | [`causes`] | `taillab bench causes`: the kinds, their accounts and the verdict |

pub mod attribution;
pub mod causes;
pub mod fault;
pub mod ground_truth;
pub mod injection;
mod perf;
