//! Tries what the forecasts promise, on the server itself: `run … --fix`.
//!
//! Each mitigation is applied and taken back in pairs of neighbouring blocks of load, in an order
//! drawn at random, so that a machine whose speed drifts slows both alike. The first trial changes
//! nothing: where that "improves" something, nothing is believed. Whatever is changed is in the
//! journal of `taillab tune` first, so a `taillab tune revert` undoes it after a crash.

mod blocks;
mod candidates;
mod changes;
mod decide;
pub mod export;
mod session;
mod trial;

use std::time::Duration;

use taillab_host::Interrupt;
use taillab_model::fix::Fix;
use taillab_model::summary::Report;

use self::blocks::Blocks;
use self::session::Session;
use crate::exit::Failure;
use crate::experiment::Experiment;
use crate::progress::Progress;
use crate::say::Say;
use crate::testbed::{BackgroundLoad, Rig};

/// How the fixes are tried.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The winners stay applied.
    pub keep: bool,
    /// For how long is tried.
    pub budget: Duration,
}

/// What the trials are made with.
pub struct Setting<'a> {
    /// The server and its load.
    pub experiment: &'a Experiment,
    /// Requests per second of each block.
    pub rate_per_s: f64,
    /// The measurement with its forecasts.
    pub report: &'a Report,
    /// Ctrl-C.
    pub interrupt: Interrupt,
    /// What is said meanwhile.
    pub say: Say,
}

/// What was tried.
pub struct Tried {
    /// Each mitigation, in the order of the trials; those before a failure too.
    pub fixes: Vec<Fix>,
    /// What the winners changed.
    pub winners: Vec<export::Winner>,
    /// What ended the trials before their time, or could not be put back.
    pub ended: Result<(), Failure>,
}

/// Tries the mitigations on a fresh server, the best forecast first; at the end everything is put
/// back, but for the winners where they are to be kept. A mitigation that is not possible here is a
/// row of the result.
pub fn run(asked: Asked, setting: &Setting<'_>) -> Tried {
    let progress = Progress::new(setting.say.quiet);
    let rig = Rig::start(setting.experiment, progress, setting.interrupt.clone());
    let mut rig = match rig {
        Ok(rig) => rig,
        Err(failure) => return Tried::nothing(failure),
    };
    let tried = on(&mut rig, asked, setting).unwrap_or_else(Tried::nothing);
    let server_failure = rig.server_failure();
    let torn_down = rig.take_down();
    let ended = server_failure.map_or(tried.ended, Err).and(torn_down);
    Tried { ended, ..tried }
}

impl Tried {
    const fn nothing(failure: Failure) -> Self {
        Self {
            fixes: Vec::new(),
            winners: Vec::new(),
            ended: Err(failure),
        }
    }
}

fn on(rig: &mut Rig, asked: Asked, setting: &Setting<'_>) -> Result<Tried, Failure> {
    rig.step_aside()?;
    let client = rig.connect(setting.experiment)?;
    let server = rig.placement().server.clone();
    let _background = BackgroundLoad::start(setting.experiment, &server)?;
    let blocks = Blocks::new(rig, client, setting.experiment, setting.rate_per_s);
    let mut session = Session::new(blocks, asked, setting)?;
    let tried = session.try_all();
    // what was changed is put back before anything is said of what went wrong
    let put_back = session.end(asked.keep);
    let (fixes, winners) = session.into_results();
    Ok(Tried {
        fixes,
        winners,
        ended: put_back.and(tried),
    })
}
