//! One module for each command.

pub mod bench;
pub mod budget;
pub mod burn;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod load;
pub mod noise;
pub mod reproduce;
pub mod rtt;
pub mod run;
pub mod serve;
pub mod shell;
pub mod sim;
pub mod trace;
pub mod tune;
