//! What every kind of load has at hand.

use taillab_console::exit::Failure;
use taillab_console::messages::Messages;
use taillab_host::Interrupt;
use taillab_model::load_result::Capacity;
use taillab_report::rate;

use super::appointment::Appointment;
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
}
