//! The disturbers beside the server, as long as a measurement lasts.

use taillab_host::injection::{
    Appetite, CpuGroup, Disturber, PacketFlood, PacketLoss, Quota, TimerStorm, background,
    make_real_time, rt_hog,
};
use taillab_host::{Journal, JournalFolder};
use taillab_model::truth::Truth;

use super::kind::{Asked, Disturbance};
use crate::commands::run::rig::Rig;
use crate::exit::Failure;
use crate::fail::host;

/// What disturbs now.
pub struct Disturbers {
    running: Vec<Running>,
    /// Of what would stay if we were killed.
    journal: Option<Journal>,
}

enum Running {
    Thread(Disturber),
    Flood(Box<PacketFlood>),
    Timers(TimerStorm),
    Loss(PacketLoss),
    Quota(Quota),
}

impl Disturbers {
    /// Starts them; the server is there already.
    ///
    /// # Errors
    /// Where one cannot be had on this machine ([`crate::exit::Exit::Unsupported`]).
    pub fn start(rig: &Rig, disturbances: &[Disturbance], asked: &Asked) -> Result<Self, Failure> {
        let mut started = Self {
            running: Vec::new(),
            journal: None,
        };
        for disturbance in disturbances {
            let running = started.one(rig, *disturbance, asked);
            match running {
                Ok(running) => started.running.extend(running),
                Err(failure) => {
                    // what has been started goes, and then its journal
                    started.running.clear();
                    started.finish_journal()?;
                    return Err(failure);
                }
            }
        }
        Ok(started)
    }

    fn one(
        &mut self,
        rig: &Rig,
        disturbance: Disturbance,
        asked: &Asked,
    ) -> Result<Option<Running>, Failure> {
        let (server, client) = (asked.server_cpu, asked.client_cpu);
        Ok(Some(match disturbance {
            Disturbance::Background(schedule) => {
                Running::Thread(background(server, schedule).map_err(host)?)
            }
            Disturbance::Timers(schedule) => {
                Running::Timers(TimerStorm::start(server, client, schedule).map_err(host)?)
            }
            Disturbance::Flood(schedule) => Running::Flood(Box::new(
                PacketFlood::start(server, client, schedule).map_err(host)?,
            )),
            Disturbance::Loss(one_in) => {
                Running::Loss(PacketLoss::start(rig.testbed(), one_in).map_err(host)?)
            }
            Disturbance::RtHog | Disturbance::RtHogWithPauses => {
                let appetite = match disturbance {
                    Disturbance::RtHog => Appetite::All,
                    _ => Appetite::WithPauses,
                };
                let threads = rig.server().threads();
                make_real_time(&threads).map_err(host)?;
                Running::Thread(rt_hog(server, &threads, appetite).map_err(host)?)
            }
            Disturbance::RealTime => {
                make_real_time(&rig.server().threads()).map_err(host)?;
                return Ok(None);
            }
            Disturbance::Quota(schedule) => {
                let folder = JournalFolder::of_this_user();
                let mut journal = folder.begin(rig.roots()).map_err(host)?;
                let group = CpuGroup::new(rig.roots(), &mut journal);
                self.journal = Some(journal);
                let group = group.map_err(host)?;
                for process in rig.server().processes() {
                    group.take_in(process).map_err(host)?;
                }
                Running::Quota(Quota::start(group, client, server, schedule).map_err(host)?)
            }
        }))
    }

    /// Ends them and says what they did.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn stop(mut self) -> Result<Truth, Failure> {
        let mut truth = Truth::default();
        for running in self.running.drain(..) {
            truth.extend(match running {
                Running::Thread(disturber) => disturber.stop(),
                Running::Flood(flood) => flood.stop().map_err(host)?,
                Running::Timers(timers) => timers.stop().map_err(host)?,
                Running::Loss(loss) => loss.stop().map_err(host)?,
                Running::Quota(quota) => quota.stop(),
            });
        }
        self.finish_journal()?;
        Ok(truth)
    }

    fn finish_journal(&mut self) -> Result<(), Failure> {
        match self.journal.take() {
            Some(journal) => journal.finish().map_err(host),
            None => Ok(()),
        }
    }
}
