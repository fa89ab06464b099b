//! What every kind of load has at hand.

use taillab_console::exit::{Exit, Failure};
use taillab_console::messages::Messages;
use taillab_experiment::pipeline::limits;
use taillab_host::Interrupt;
use taillab_load::target::{Host, Place};
use taillab_load::{Endpoint, FleetRun};
use taillab_model::load_result::{Capacity, CommonStart, Generator, LoadReport, Mode};
use taillab_report::rate;

use super::appointment::Appointment;
use super::outcome::Ending;
use super::plan::LoadPlan;
use super::resolve;
use super::session::Session;

/// What every kind of load has at hand.
pub struct Context<'a> {
    pub plan: &'a LoadPlan,
    pub session: Session<'a>,
    pub interrupt: &'a Interrupt,
    pub messages: Messages,
    /// Measured where the load is a share of it.
    pub capacity: Option<Capacity>,
    /// When this client of several begins.
    pub appointment: Option<&'a Appointment>,
}

impl<'a> Context<'a> {
    /// Connects the client, and stores the keys that the protocol asks for.
    pub fn connect(
        plan: &'a LoadPlan,
        interrupt: &'a Interrupt,
        messages: Messages,
    ) -> Result<Self, Failure> {
        messages.step(&format!("connecting to {}", plan.target));
        let endpoint = resolve::endpoint(&plan.target.place)?;
        let mut session =
            Session::connect(endpoint, &plan.requests, &plan.client, interrupt, messages)?;
        if plan.prefill {
            session.prefill()?;
        }
        Ok(Self {
            plan,
            session,
            interrupt,
            messages,
            capacity: None,
            appointment: None,
        })
    }

    /// Finds the capacity, where the load is a share of it.
    pub fn calibrate(&mut self) -> Result<(), Failure> {
        let Some(outstanding) = self.plan.work.calibration() else {
            return Ok(());
        };
        self.messages.step("finding the capacity");
        let capacity = self.session.calibrate(outstanding, self.plan.seed)?;
        self.messages.step(&format!(
            "the capacity is {} per second",
            rate(capacity.peak_per_s)
        ));
        self.capacity = Some(capacity);
        Ok(())
    }

    /// How the command ends, once its result is out.
    pub fn end(&self, ending: Ending, report: &LoadReport) -> Result<Exit, Failure> {
        // also when only the floor was cut short
        if self.session.interrupted() {
            return Ok(Exit::Interrupted);
        }
        if let Some(failure) = ending.failure {
            return Err(failure);
        }
        if ending.stopped.is_some() {
            let when = "during the load; what came before is in the result";
            return Err(self.session.gone(when));
        }
        if !report.verdict.valid {
            return Ok(Exit::Invalid);
        }
        let found_none = report.generator().found.is_some_and(|found| !found.held);
        Ok(match limits::exit(&report.assertions) {
            Exit::Ok if found_none => Exit::Missed,
            exit => exit,
        })
    }

    /// The target as it was given, with the address that a name stands for.
    pub fn target(&self) -> String {
        let target = &self.plan.target;
        let named = match &target.place {
            Place::Tcp(at) | Place::Udp(at) => matches!(at.host, Host::Name(_)),
            Place::Unix(_) => false,
        };
        match self.session.endpoint() {
            Endpoint::Tcp(address) | Endpoint::Udp(address) if named => {
                format!("{target} ({address})")
            }
            _ => target.to_string(),
        }
    }

    /// The first wrong answer; with it the protocol that the server speaks, if that is another one than
    /// the load's.
    fn wrong_answer(&self) -> Option<String> {
        let first = self.session.wrong_answer()?;
        let label = self.plan.requests.label();
        let asked = label.split('-').next().unwrap_or(label);
        let other = first
            .speaks()
            .filter(|name| !name.to_lowercase().contains(asked));
        Some(match other {
            Some(protocol) => format!("{first} (this port speaks {protocol})"),
            None => first.to_string(),
        })
    }

    /// When this client of several began, and how late it sent its first request.
    pub fn started(&self, run: &FleetRun) -> Option<CommonStart> {
        let first = run.iter().next();
        let late = first.map(|first| first.times.sent.saturating_since(first.times.intended));
        self.appointment.map(|appointment| CommonStart {
            first_send_late_ns: late,
            ..appointment.start()
        })
    }

    /// The generator as it was set up; the caller adds what it measured.
    pub fn generator(&self, mode: Mode) -> Generator {
        let client = &self.plan.client;
        Generator {
            mode,
            protocol: self.plan.requests.label().to_owned(),
            transport: match self.session.endpoint() {
                Endpoint::Udp(_) => "udp",
                Endpoint::Tcp(_) => "tcp",
                Endpoint::Unix(_) => "unix",
            }
            .to_owned(),
            connections: u32::try_from(client.connections).unwrap_or(u32::MAX),
            threads: u32::try_from(client.threads()).unwrap_or(u32::MAX),
            kept_awake: client.keep_awake,
            capacity: self.capacity,
            start: self.appointment.map(Appointment::start),
            wrong_answer: self.wrong_answer(),
            ..Generator::default()
        }
    }
}
