//! The kinds of causes that can be injected.

/// What can be injected; [`CauseKind::about`] says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is described in the table below")]
pub enum CauseKind {
    Control,
    Background,
    Softirq,
    Irq,
    Order,
    Imbalance,
    Lock,
    Fault,
    MinorFault,
    Io,
    Slow,
    Quota,
    RtThrottle,
    Idle,
    Loss,
    Two,
    Generator,
}

/// Every kind in its order, with its name on the command line and what it is.
const KINDS: [(CauseKind, &str, &str); 17] = [
    (
        CauseKind::Control,
        "control",
        "Nothing: an undisturbed run, whose excess must not be charged to what is not there",
    ),
    (
        CauseKind::Background,
        "background",
        "Bursts of another thread on the server's CPU",
    ),
    (
        CauseKind::Softirq,
        "softirq",
        "Packets of others, received on the server's CPU",
    ),
    (
        CauseKind::Irq,
        "irq",
        "Timer interrupts on the server's CPU",
    ),
    (
        CauseKind::Order,
        "order",
        "Threads that yield to those of later requests",
    ),
    (
        CauseKind::Imbalance,
        "imbalance",
        "Every other connection is that of one of four workers",
    ),
    (
        CauseKind::Lock,
        "lock",
        "A thread of the server that holds the lock of all workers",
    ),
    (
        CauseKind::Fault,
        "fault",
        "Page faults that wait for the disk",
    ),
    (
        CauseKind::MinorFault,
        "minor-fault",
        "First touches of memory",
    ),
    (CauseKind::Io, "io", "Reads from disk"),
    (CauseKind::Slow, "slow", "One request in 100 burns 5 ms"),
    (
        CauseKind::Quota,
        "quota",
        "A CPU quota of the server's control group",
    ),
    (
        CauseKind::RtThrottle,
        "rt-throttle",
        "A real-time server, and a real-time thread that uses up what both may have",
    ),
    (CauseKind::Idle, "idle", "A CPU that sleeps while it waits"),
    (CauseKind::Loss, "loss", "Requests that are lost once"),
    (
        CauseKind::Two,
        "two",
        "Background bursts and slow requests at once",
    ),
    (
        CauseKind::Generator,
        "generator",
        "Bursts of another thread on the generator's CPU, for which the server is not to blame",
    ),
];

impl CauseKind {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; KINDS.len()] = {
        let mut all = [Self::Control; KINDS.len()];
        let mut number = 0;
        while number < all.len() {
            all[number] = KINDS[number].0;
            number += 1;
        }
        all
    };

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// What is injected, in one line.
    pub fn about(self) -> &'static str {
        KINDS[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (number, kind) in CauseKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
