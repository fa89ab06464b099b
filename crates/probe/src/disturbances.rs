//! The kinds of disturbances that can be recorded in addition to the stamps.

use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;

use thiserror::Error;

/// A set of kinds of disturbances. Each kind costs the server a little, so only requested ones
/// are recorded.
///
/// As text, it is a comma-separated list (`sched,irq,softirq`), `all` or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Disturbances(u16);

/// The kinds with their bit and their name, in the order in which a set is written.
macro_rules! disturbances {
    ($($(#[$doc:meta])* $kind:ident = $bit:literal, $name:literal;)+) => {
        impl Disturbances {
            $($(#[$doc])* pub const $kind: Self = Self(1 << $bit);)+
            /// All kinds of disturbances.
            pub const ALL: Self = Self($(Self::$kind.0)|+);
        }

        const NAMES: &[(Disturbances, &str)] = &[$((Disturbances::$kind, $name)),+];
    };
}

disturbances! {
    /// How the server's threads go to sleep, and their migrations between CPUs.
    SCHED = 0, "sched";
    /// Wake-ups of the server's threads.
    WAKE = 1, "wake";
    /// Interrupts on the server's CPUs.
    IRQ = 2, "irq";
    /// Softirqs on the server's CPUs.
    SOFTIRQ = 3, "softirq";
    /// Power states of the server's CPUs.
    IDLE = 4, "idle";
    /// Page faults of the server's threads.
    FAULT = 5, "fault";
    /// Waits of the server's threads for storage, in reads and writes; with interrupts and softirqs, like
    /// [`Disturbances::LOCK`].
    STORAGE = 6, "storage";
    /// Waits of the server's threads for locks of the kernel. Interrupts and softirqs are then recorded too:
    /// what they wait for must not be charged to the thread.
    LOCK = 7, "lock";
    /// Changes of the frequency of the server's CPUs.
    FREQUENCY = 8, "frequency";
    /// Retransmissions of the server's TCP.
    RETRANSMIT = 9, "retransmit";
}

impl Disturbances {
    /// Only thread changes, which the stamp T3 needs.
    pub const NONE: Self = Self(0);

    /// The names of all kinds, for help and messages: `sched, wake, irq`.
    pub fn names() -> String {
        let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
        names.join(", ")
    }

    /// Whether it contains all of these.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Disturbances {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The text is not the name of a kind of disturbance.
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a kind of disturbance: give all, none, or a comma-separated list of {names}",
    names = Disturbances::names()
)]
pub struct UnknownDisturbance(String);

impl FromStr for Disturbances {
    type Err = UnknownDisturbance;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        text.split(',').try_fold(Self::NONE, |set, name| {
            let name = name.trim();
            NAMES
                .iter()
                .find(|(_, known)| *known == name)
                .map(|&(one, _)| set | one)
                .ok_or_else(|| UnknownDisturbance(name.into()))
        })
    }
}

impl fmt::Display for Disturbances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => return f.write_str("all"),
            Self::NONE => return f.write_str("none"),
            _ => {}
        }
        let named = NAMES.iter().filter(|&&(one, _)| self.contains(one));
        for (i, (_, name)) in named.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_survives_its_text() {
        for bits in 0..=Disturbances::ALL.0 {
            let set = Disturbances(bits);
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        let spaced: Disturbances = " sched, irq ".parse().unwrap();
        assert_eq!(spaced, Disturbances::SCHED | Disturbances::IRQ);
        let all_but_lock = Disturbances(Disturbances::ALL.0 & !Disturbances::LOCK.0);
        assert_eq!(
            all_but_lock.to_string(),
            "sched,wake,irq,softirq,idle,fault,storage,frequency,retransmit"
        );
    }

    #[test]
    fn an_unknown_name_is_named_with_those_that_are_known() {
        for (text, name) in [("irq,disk", "'disk'"), ("", "''"), ("all,irq", "'all'")] {
            let error = text.parse::<Disturbances>().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("softirq"), "{error}");
        }
    }
}
