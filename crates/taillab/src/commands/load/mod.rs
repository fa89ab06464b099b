//! `taillab load`: a server under load, seen by a client that says whether it can be believed.

mod files;
mod find;
mod placing;
mod resolve;
mod schedule;

use crate::cli::LoadArgs;
use crate::exit::{Exit, Failure};

pub fn run(args: LoadArgs) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, format!("{args:?}")))
}
