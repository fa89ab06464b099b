//! Mitigations that this process applies for as long as it needs them, through the journal of `taillab tune`.

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::tune::{
    Applied, Change, ChangeState, Mitigation, Plan, RevertSelection, Scope, TuneError, Tuner,
};

/// Who changes settings, and for whom.
pub struct Changes {
    tuner: Tuner,
    scope: Scope,
}

/// A mitigation that is applied.
pub struct HeldMitigation {
    mitigation: &'static Mitigation,
    applied: Applied,
}

impl HeldMitigation {
    /// The name of the mitigation that is held.
    pub const fn name(&self) -> &'static str {
        self.mitigation.is.name
    }

    /// Whether it lasts only while a process holds it.
    pub const fn needs_a_holder(&self) -> bool {
        !self.applied.holds.is_empty()
    }

    /// What it has changed.
    pub fn changes(&self) -> Vec<Change> {
        let changes = self.applied.changes.iter();
        changes
            .filter(|made| made.state == ChangeState::Changed)
            .map(|made| made.change.clone())
            .collect()
    }
}

/// Why a mitigation is not applied.
pub enum NotApplied {
    /// It is impossible here or does harm; the next mitigation may be possible.
    Unavailable(String),
    /// Something failed; no further mitigation is tried.
    Failed(Failure),
}

impl Changes {
    /// Changes within this scope.
    ///
    /// # Errors
    /// There is no place for the journal: the user has no home directory.
    pub fn of(scope: Scope) -> Result<Self, Failure> {
        Ok(Self {
            tuner: Tuner::of_this_user().map_err(host)?,
            scope,
        })
    }

    /// The server, device and CPUs that are changed.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What a mitigation would change.
    ///
    /// # Errors
    /// The server has ended.
    pub fn plan(&self, mitigation: &Mitigation) -> Result<Plan, Failure> {
        let plan = self.tuner.plan(&[mitigation.is.name], &self.scope);
        plan.map_err(host)
    }

    /// Applies it for as long as this process lives; a revert by another process leaves it alone.
    ///
    /// # Errors
    /// [`NotApplied`]; then nothing is changed, or the failure says what is.
    pub fn apply(&self, mitigation: &'static Mitigation) -> Result<HeldMitigation, NotApplied> {
        let applied = self.make(mitigation, true).map_err(|error| match &error {
            TuneError::Unavailable { reason, .. } => NotApplied::Unavailable(reason.clone()),
            TuneError::Harmful(harms) => NotApplied::Unavailable(harms.join("; ")),
            TuneError::Refused { why, .. } => NotApplied::Unavailable(why.clone()),
            _ => NotApplied::Failed(host(error)),
        })?;
        match applied.id.is_none() && applied.holds.is_empty() {
            true => Err(NotApplied::Unavailable("everything is set already".into())),
            false => Ok(HeldMitigation {
                mitigation,
                applied,
            }),
        }
    }

    fn make(&self, mitigation: &'static Mitigation, is_held: bool) -> Result<Applied, TuneError> {
        let plan = self.tuner.plan(&[mitigation.is.name], &self.scope)?;
        plan.check(false)?;
        self.tuner.apply(&plan, is_held, &mut |_| {})
    }

    /// Puts back everything that it has changed.
    ///
    /// # Errors
    /// Something could not be put back; `taillab tune revert` tries again.
    pub fn take_back(&self, held: HeldMitigation) -> Result<(), Failure> {
        let (name, id) = (held.name(), held.applied.id);
        // this ends what only a process can hold
        drop(held);
        let Some(id) = id else { return Ok(()) };
        let reverted = self
            .tuner
            .revert(RevertSelection::One(id), &mut |_| {})
            .map_err(host)?;
        if reverted.iter().all(|one| one.is_done) {
            return Ok(());
        }
        let mut changes = reverted.iter().flat_map(|one| &one.changes);
        let why = changes.find_map(|change| match &change.state {
            ChangeState::Failed(why) => Some(format!(" ({}: {why})", change.change.setting)),
            _ => None,
        });
        Err(Failure::failed(format!(
            "not all of {name} could be put back{}: `taillab tune revert` tries again",
            why.unwrap_or_default()
        )))
    }

    /// Applies it so that it outlives this process: until `taillab tune revert` or a reboot. Returns
    /// the number of the apply; `None` where everything was set already.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn leave_applied(&self, mitigation: &'static Mitigation) -> Result<Option<u32>, Failure> {
        let applied = self.make(mitigation, false).map_err(host)?;
        Ok(applied.id)
    }
}

/// Counts of the settings of one apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Settings that the apply changed.
    pub all: usize,
    /// Those that are gone with their thread, process or network.
    pub ended: usize,
}

/// How much is left of an apply. If nothing is left, it is removed from the journal.
///
/// # Errors
/// The journal cannot be read.
pub fn what_is_left(id: u32) -> Result<Settings, Failure> {
    let tuner = Tuner::of_this_user().map_err(host)?;
    let applies = tuner.status().map_err(host)?;
    let entries = applies.iter().filter(|apply| apply.id == id);
    let entries = entries.flat_map(|apply| &apply.entries);
    let settings = Settings {
        all: entries.clone().count(),
        ended: entries
            .filter(|entry| entry.state == ChangeState::Gone)
            .count(),
    };
    if settings.all > 0 && settings.ended == settings.all {
        tuner
            .revert(RevertSelection::One(id), &mut |_| {})
            .map_err(host)?;
    }
    Ok(settings)
}
