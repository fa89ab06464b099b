//! One module for each command.

pub mod burn;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod load;
pub mod run;
pub mod shell;
pub mod trace;
pub mod tune;
