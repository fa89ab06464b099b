//! The `taillab` command.
fn main() {}
