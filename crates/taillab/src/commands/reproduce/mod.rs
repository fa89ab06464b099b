//! `taillab reproduce`: a paper's figures, and its claims next to our numbers. Those of *Where Has My Time Gone?* stand
//! next to the rows of `budget`.

mod deconstructing;
mod tales;

pub use self::deconstructing::run as deconstructing;
pub use self::tales::run as tales;
