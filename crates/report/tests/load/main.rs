//! Every output of `taillab load`, from invented loads.

mod files;
mod page;
mod samples;
mod schema;
mod terminal;
