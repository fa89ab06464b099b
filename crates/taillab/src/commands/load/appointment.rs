//! The start that several clients have in common, by a clock that all can read.

use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use serde::Deserialize;
use taillab_console::exit::{Exit, Failure};
use taillab_host::{Interrupt, clock};
use taillab_model::load_result::CommonStart;
use taillab_model::{Monotonic, Nanos};

/// A start that is further ahead is an error in the plan or in a clock.
const FURTHEST: Nanos = Nanos::from_secs(24 * 3600);
/// Readings of two clocks at once; the closest pair counts.
const READINGS: u32 = 32;
/// A nap of the wait ends at least this often, to look for Ctrl-C.
const NAP: Duration = Duration::from_secs(1);

/// The clock that a plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedClock {
    /// CLOCK_REALTIME, kept together by NTP or PTP.
    Realtime,
    /// CLOCK_TAI: the same without leap seconds.
    Tai,
    /// CLOCK_MONOTONIC, which nothing sets; `offset_ns` says how far two of them are apart.
    Monotonic,
}

impl SharedClock {
    fn read(self) -> Timespec {
        match self {
            Self::Realtime => clock_gettime(ClockId::Realtime),
            // a kernel without it is treated as one that never set it
            Self::Tai => clock_gettime_dynamic(DynamicClockId::Tai)
                .unwrap_or_else(|_| clock_gettime(ClockId::Realtime)),
            Self::Monotonic => clock_gettime(ClockId::Monotonic),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Realtime => "CLOCK_REALTIME",
            Self::Tai => "CLOCK_TAI",
            Self::Monotonic => "CLOCK_MONOTONIC",
        }
    }
}

/// When a plan wants the load to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStart {
    /// The clock of the next two.
    pub clock: SharedClock,
    /// The start by that clock of whoever made the plan, nanoseconds.
    pub at_ns: u64,
    /// That clock on this host minus that clock on the planner's, nanoseconds.
    #[serde(default)]
    pub offset_ns: i64,
    /// The offset is known to within this, nanoseconds.
    #[serde(default)]
    pub error_ns: u64,
}

/// An instant at which this client begins to send, as the others do.
#[derive(Clone, Copy, Debug)]
pub struct Appointment {
    start: CommonStart,
}

impl Appointment {
    /// Finds the planned instant on this host's CLOCK_MONOTONIC: whatever happens to the other clock later, the
    /// start stays where it is.
    pub fn keep(planned: PlannedStart, client: u32, clients: u32) -> Result<Self, Failure> {
        let pair = closest(|| TwoReadings::read(planned.clock));
        if planned.clock == SharedClock::Tai
            && is_unset(pair, closest(|| TwoReadings::read(SharedClock::Realtime)))
        {
            return Err(Failure::new(
                Exit::Unsupported,
                "this host's CLOCK_TAI was never set, it equals CLOCK_REALTIME: let ptp4l or chronyd (leapsectz) set \
                 it, or plan the start by `realtime`",
            ));
        }
        let monotonic_ns = on_monotonic(planned, pair)?;
        let error_ns = Nanos::new(planned.error_ns.saturating_add(pair.apart_ns));
        Ok(Self {
            start: CommonStart {
                client,
                clients,
                monotonic_ns,
                error_ns,
                first_send_late_ns: None,
            },
        })
    }

    /// The instant, by CLOCK_MONOTONIC.
    pub const fn at(&self) -> Monotonic {
        Monotonic::from_nanos_since_boot(self.start.monotonic_ns)
    }

    /// What the result says of it.
    pub const fn start(&self) -> CommonStart {
        self.start
    }

    /// Sleeps until it is `lead` away.
    pub fn wait(&self, lead: Nanos, interrupt: &Interrupt) -> Result<(), Failure> {
        let at = self.at();
        let until =
            Monotonic::from_nanos_since_boot(at.nanos_since_boot().saturating_sub(lead.get()));
        loop {
            if interrupt.is_raised() {
                return Err(Failure::new(
                    Exit::Interrupted,
                    "interrupted before the start",
                ));
            }
            let now = clock::now();
            if now >= until {
                break;
            }
            let nap = until
                .saturating_since(now)
                .min(Nanos::new(NAP.as_nanos() as u64));
            // a signal ends the nap early, and is seen above
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(now + nap));
        }
        match clock::now().checked_since(at) {
            Some(late) if lead > Nanos::ZERO => Err(too_late(late)),
            _ => Ok(()),
        }
    }
}

fn too_late(by: Nanos) -> Failure {
    Failure::failed(format!(
        "the start had passed {by} before this client was ready: plan it later, or see what held up this host"
    ))
}

fn timespec(at: Monotonic) -> Timespec {
    let ns = at.nanos_since_boot();
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// A clock and CLOCK_MONOTONIC, read at nearly the same instant.
#[derive(Clone, Copy, Debug)]
struct TwoReadings {
    monotonic_ns: u64,
    other_ns: u64,
    /// The other clock was read within this of `monotonic_ns`.
    apart_ns: u64,
}

impl TwoReadings {
    fn read(clock: SharedClock) -> Self {
        let before = clock::now().nanos_since_boot();
        let other = clock.read();
        let after = clock::now().nanos_since_boot();
        let apart_ns = after.saturating_sub(before).div_ceil(2);
        Self {
            monotonic_ns: before + apart_ns,
            other_ns: other.tv_sec as u64 * 1_000_000_000 + other.tv_nsec as u64,
            apart_ns,
        }
    }
}

/// The pair that was read in the shortest time.
fn closest(mut read: impl FnMut() -> TwoReadings) -> TwoReadings {
    let mut best = read();
    for _ in 1..READINGS {
        let next = read();
        if next.apart_ns < best.apart_ns {
            best = next;
        }
    }
    best
}

/// Whether TAI is UTC, from which it has been at least 10 s ahead since 1972.
fn is_unset(tai: TwoReadings, utc: TwoReadings) -> bool {
    let since_boot = |pair: TwoReadings| i128::from(pair.other_ns) - i128::from(pair.monotonic_ns);
    since_boot(tai) - since_boot(utc) < 1_000_000_000
}

/// The planned start by CLOCK_MONOTONIC, of which `pair` is a reading beside the plan's clock.
fn on_monotonic(planned: PlannedStart, pair: TwoReadings) -> Result<u64, Failure> {
    let here = i128::from(planned.at_ns) + i128::from(planned.offset_ns);
    let ahead = here - i128::from(pair.other_ns);
    let name = planned.clock.name();
    if ahead <= 0 {
        let passed = Nanos::new(u64::try_from(-ahead).unwrap_or(u64::MAX));
        return Err(Failure::failed(format!(
            "the planned start passed {passed} ago by {name} of this host, whose offset the plan states as {} ns: plan \
             it later, or measure the offset again",
            planned.offset_ns
        )));
    }
    match u64::try_from(ahead) {
        Ok(ahead) if ahead <= FURTHEST.get() => Ok(pair.monotonic_ns.saturating_add(ahead)),
        _ => Err(Failure::usage(format!(
            "the planned start is {} h ahead by {name} of this host: plan it within 24 h, in nanoseconds of that clock",
            ahead / 3_600_000_000_000
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn planned(at_ns: u64, offset_ns: i64) -> PlannedStart {
        PlannedStart {
            clock: SharedClock::Realtime,
            at_ns,
            offset_ns,
            error_ns: 300,
        }
    }

    const READ: TwoReadings = TwoReadings {
        monotonic_ns: 50 * S,
        other_ns: 1_000 * S,
        apart_ns: 20,
    };

    #[test]
    fn the_offset_moves_the_start_to_this_hosts_clock() {
        assert_eq!(on_monotonic(planned(1_010 * S, 0), READ).unwrap(), 60 * S);
        assert_eq!(
            on_monotonic(planned(1_010 * S, 7), READ).unwrap(),
            60 * S + 7
        );
        let early = planned(990 * S, 20 * S as i64);
        assert_eq!(on_monotonic(early, READ).unwrap(), 60 * S);
    }

    #[test]
    fn a_start_that_has_passed_or_never_comes_is_refused_with_the_clock_and_the_offset() {
        let passed = on_monotonic(planned(1_010 * S, -20 * S as i64), READ).unwrap_err();
        assert_eq!(passed.exit, Exit::Failed);
        for part in [
            "10.0 s ago",
            "CLOCK_REALTIME",
            "-20000000000 ns",
            "plan it later",
        ] {
            assert!(passed.message.contains(part), "{}", passed.message);
        }
        for at in [u64::MAX, 1_000 * S + 25 * 3600 * S] {
            let far = on_monotonic(planned(at, 0), READ).unwrap_err();
            assert_eq!(far.exit, Exit::Usage);
            assert!(far.message.contains("within 24 h"), "{}", far.message);
        }
    }

    #[test]
    fn the_pair_that_was_read_in_the_shortest_time_counts() {
        let mut apart = [90, 40, 70].into_iter().chain(std::iter::repeat(50));
        let read = || TwoReadings {
            apart_ns: apart.next().unwrap(),
            ..READ
        };
        assert_eq!(closest(read).apart_ns, 40);
    }

    #[test]
    fn a_tai_that_equals_utc_was_never_set() {
        let tai = |ahead: u64| TwoReadings {
            monotonic_ns: READ.monotonic_ns + 5_000,
            other_ns: READ.other_ns + 5_000 + ahead,
            ..READ
        };
        assert!(is_unset(tai(0), READ) && !is_unset(tai(37 * S), READ));
    }

    /// The stated error is that of the plan and of our own reading.
    #[test]
    fn an_appointment_is_where_the_clock_says() {
        let now = TwoReadings::read(SharedClock::Monotonic);
        let planned = PlannedStart {
            clock: SharedClock::Monotonic,
            at_ns: now.other_ns + 30 * S,
            offset_ns: 0,
            error_ns: 300,
        };
        let kept = Appointment::keep(planned, 2, 3).unwrap().start();
        assert!(kept.monotonic_ns.abs_diff(planned.at_ns) <= kept.error_ns.get());
        assert!(kept.error_ns.get() >= 300 && (kept.client, kept.clients) == (2, 3));
    }
}
