//! Queueing disciplines.

use std::fmt;
use std::str::FromStr;

use taillab_model::Nanos;

use crate::notation::{Notation, NotationError, SHARE, word_of};
use crate::service::Service;

/// Which worker takes which request when.
///
/// In text it is `fifo`, `power-of-d:d=2`, …: see [`Discipline::NOTATION`].
#[derive(Clone, Debug, PartialEq)]
pub enum Discipline {
    /// One queue, the oldest request first.
    Fifo,
    /// One queue, the newest request first; a request in service is not preempted.
    Lifo,
    /// One queue; each waiting request is equally likely to be next.
    RandomRequest,
    /// One queue per worker; each request goes to a worker at random.
    RandomWorker,
    /// One queue per worker; requests go to the workers in turn.
    RoundRobin,
    /// One queue per worker; each request joins a queue with the fewest requests
    /// (those in service included), at random among equals.
    JoinShortestQueue,
    /// Like [`Discipline::JoinShortestQueue`], among `d` different workers drawn at random.
    PowerOfD {
        /// The number of workers drawn, at least 1.
        d: u32,
    },
    /// Each request belongs to one of `connections` (equally likely), and each connection always to the
    /// same worker: nginx, memcached over TCP.
    Static {
        /// The number of connections.
        connections: u32,
        /// How the connections were assigned to workers.
        assignment: Assignment,
    },
    /// One queue per worker, requests go to a worker at random; a worker without
    /// requests takes the oldest one from the next worker that has any, starting at random.
    WorkStealing {
        /// Extra service time of a request that was taken from another worker.
        cost: Nanos,
    },
    /// All requests in the system share the workers equally; none gets more than one worker.
    ProcessorSharing,
    /// A fair scheduler: each request runs for at most `quantum`, then goes to the end of the queue if
    /// others wait.
    TimeSliced {
        /// The longest uninterrupted run.
        quantum: Nanos,
        /// The cost of changing to another request.
        switch: Nanos,
    },
    /// First in, first out, with a background class that has its own Poisson arrivals. The class that is
    /// served first preempts the other, which resumes later.
    Priority {
        /// The share of the workers' capacity that the background class needs, in addition to the
        /// utilisation by requests.
        background: f64,
        /// Service times of the background class.
        service: Service,
        /// The class that is served first.
        first: Class,
    },
}

/// How connections were assigned to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// In turn, so as evenly as possible (memcached).
    RoundRobin,
    /// Each at random, so unevenly (`SO_REUSEPORT`); drawn anew in each replication.
    Random,
}

/// The two classes of [`Discipline::Priority`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The requests that are measured.
    Requests,
    /// Other work on the same workers.
    Background,
}

const ASSIGNMENTS: [(&str, Assignment); 2] = [
    ("round-robin", Assignment::RoundRobin),
    ("random", Assignment::Random),
];

const CLASSES: [(&str, Class); 2] = [
    ("background", Class::Background),
    ("requests", Class::Requests),
];

impl Discipline {
    /// The notation in text, for help and error messages.
    pub const NOTATION: &str = "fifo, lifo, random-request, random-worker, round-robin, jsq, \
        power-of-d:d=2, static:connections=64,assign=round-robin, \
        static:connections=64,assign=random, work-stealing:cost=1us, ps, \
        time-sliced:quantum=1ms,switch=2us, \
        priority:background=0.1,first=background,service=exponential:1ms";

    /// Whether a worker can be idle while a request waits for another worker.
    pub fn has_own_queues(&self) -> bool {
        matches!(
            self,
            Self::RandomWorker
                | Self::RoundRobin
                | Self::JoinShortestQueue
                | Self::PowerOfD { .. }
                | Self::Static { .. }
        )
    }
}

impl FromStr for Discipline {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut n = Notation::new(text, &["service"]);
        let discipline = match n.name.as_str() {
            "fifo" | "fcfs" => Self::Fifo,
            "lifo" | "lcfs" => Self::Lifo,
            "random-request" | "ros" => Self::RandomRequest,
            "random-worker" | "rw" => Self::RandomWorker,
            "round-robin" | "rr" => Self::RoundRobin,
            "jsq" | "join-shortest-queue" => Self::JoinShortestQueue,
            "power-of-d" => Self::PowerOfD {
                d: n.like("power-of-d:d=2").whole("d", 1)?,
            },
            "po2" | "power-of-two" => Self::PowerOfD { d: 2 },
            "static" => {
                n.like("static:connections=64,assign=round-robin");
                Self::Static {
                    connections: n.whole("connections", 1)?,
                    assignment: if n.gives("assign") {
                        n.choice("assign", &ASSIGNMENTS)?
                    } else {
                        Assignment::RoundRobin
                    },
                }
            }
            "work-stealing" => Self::WorkStealing {
                cost: n.like("work-stealing:cost=1us").length_or_zero("cost")?,
            },
            "ps" | "processor-sharing" => Self::ProcessorSharing,
            "time-sliced" => {
                n.like("time-sliced:quantum=1ms,switch=2us");
                Self::TimeSliced {
                    quantum: n.length("quantum")?,
                    switch: n.length_or_zero("switch")?,
                }
            }
            "priority" => {
                n.like("priority:background=0.1,first=background,service=exponential:1ms");
                Self::Priority {
                    background: n.number("background", SHARE)?,
                    first: n.choice("first", &CLASSES)?,
                    service: n.text_of("service")?.parse()?,
                }
            }
            _ => {
                return Err(NotationError::Unknown {
                    kind: "a discipline",
                    name: n.name,
                    known: Self::NOTATION,
                });
            }
        };
        n.finish()?;
        Ok(discipline)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |t: &Nanos| t.to_exact_string();
        match self {
            Self::Fifo => f.write_str("fifo"),
            Self::Lifo => f.write_str("lifo"),
            Self::RandomRequest => f.write_str("random-request"),
            Self::RandomWorker => f.write_str("random-worker"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::JoinShortestQueue => f.write_str("jsq"),
            Self::PowerOfD { d } => write!(f, "power-of-d:d={d}"),
            Self::Static {
                connections,
                assignment,
            } => {
                let assign = word_of(&ASSIGNMENTS, assignment);
                write!(f, "static:connections={connections},assign={assign}")
            }
            Self::WorkStealing { cost } => write!(f, "work-stealing:cost={}", text(cost)),
            Self::ProcessorSharing => f.write_str("ps"),
            Self::TimeSliced { quantum, switch } => {
                write!(
                    f,
                    "time-sliced:quantum={},switch={}",
                    text(quantum),
                    text(switch)
                )
            }
            Self::Priority {
                background,
                service,
                first,
            } => {
                let first = word_of(&CLASSES, first);
                write!(
                    f,
                    "priority:background={background},first={first},service={service}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written_back() {
        for text in [
            "fifo",
            "lifo",
            "random-request",
            "random-worker",
            "round-robin",
            "jsq",
            "power-of-d:d=2",
            "static:connections=64,assign=round-robin",
            "static:connections=64,assign=random",
            "work-stealing:cost=1us",
            "ps",
            "time-sliced:quantum=1ms,switch=2us",
            "priority:background=0.1,first=background,service=exponential:1ms",
        ] {
            let discipline: Discipline = text.parse().unwrap();
            assert_eq!(discipline.to_string(), text);
            assert!(Discipline::NOTATION.contains(text), "{text}");
        }
        let nested = "priority:0.2,requests,service=lognormal:50us,cv=2";
        let nested: Discipline = nested.parse().unwrap();
        assert!(nested.to_string().ends_with("service=lognormal:50us,cv=2"));
    }

    #[test]
    fn errors_in_text_say_what_would_be_right() {
        let error = |text: &str| text.parse::<Discipline>().unwrap_err().to_string();
        assert!(error("filo").starts_with("`filo` is not a discipline; choose one of: fifo, lifo"));
        assert!(error("power-of-d:0").contains("a whole number of at least 1"));
        assert!(error("static:64,assign=even").contains("`round-robin` or `random`"));
        assert!(error("fifo:2").contains("has no parameter `2`"));
        for text in [
            "work-stealing:foo=2",
            "static:64,foo=2",
            "time-sliced:1ms,foo=2",
        ] {
            assert!(error(text).contains("has no parameter `foo`"), "{text}");
        }
    }
}
