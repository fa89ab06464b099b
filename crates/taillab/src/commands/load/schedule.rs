//! When each thread sends what share of the load.

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_host::Roots;
use taillab_host::environment::Memory;
use taillab_load::fleet::deal;
use taillab_model::Nanos;
use taillab_queueing::arrivals::profile::RateProfile;
use taillab_queueing::arrivals::{ArrivalError, ArrivalProcess};

use super::find::mixed;

/// Bytes that a request takes in the record and while its result is made.
const BYTES_PER_REQUEST: f64 = 80.0;

/// How the load develops over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A process at one rate.
    Steady(ArrivalProcess),
    /// A process whose rate changes.
    Profile(ArrivalProcess, RateProfile),
    /// Recorded instants from 0 on, ascending, at least two of them apart.
    Recorded(Vec<Nanos>),
}

/// What is sent: warm-up and measurement as one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Due times of each thread's requests, from the start.
    pub by_thread: Vec<Vec<Nanos>>,
    /// Where the measurement begins.
    pub measure_from: Nanos,
    /// Where it ends.
    pub length: Nanos,
    /// Requests per second that are wanted in the measurement.
    pub rate_per_s: f64,
}

/// The numbers of one schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Requests per second; `None`: as the profile or the trace has it.
    pub rate_per_s: Option<f64>,
    /// Before the measurement.
    pub warmup: Nanos,
    /// Of the measurement; `None`: to the end of the profile or the trace.
    pub duration: Option<Nanos>,
    /// Seed of the first thread.
    pub seed: u64,
    /// Threads that share it.
    pub threads: usize,
}

impl Shape {
    /// The mean rate of a profile or a trace as it was given.
    pub fn own_rate_per_s(&self) -> Option<f64> {
        match self {
            Self::Steady(_) => None,
            Self::Profile(_, profile) => Some(profile.mean_rate_per_s()),
            Self::Recorded(times) => Some(mean_rate(times)),
        }
    }

    /// Its own length at this rate; a steady process has no end.
    pub fn own_length(&self, rate_per_s: Option<f64>) -> Option<Nanos> {
        match self {
            Self::Steady(_) => None,
            Self::Profile(_, profile) => Some(profile.length()),
            Self::Recorded(times) => {
                let last = times[times.len() - 1];
                // it ends a mean gap after the last one
                let stretch = rate_per_s.map_or(1.0, |rate| mean_rate(times) / rate);
                let length =
                    last.as_secs_f64() * stretch * times.len() as f64 / (times.len() - 1) as f64;
                Nanos::try_from_secs_f64(length)
            }
        }
    }

    /// What the process is called in the result.
    pub fn name(&self) -> String {
        match self {
            Self::Steady(process) => process.to_string(),
            Self::Profile(process, profile) => format!("{process} with {profile}"),
            Self::Recorded(_) => "recorded".to_owned(),
        }
    }

    /// Whether the sends are to be judged as a Poisson process of one rate.
    pub fn is_poisson(&self) -> bool {
        *self == Self::Steady(ArrivalProcess::Poisson)
    }

    /// Refuses a load whose record would not fit into memory.
    ///
    /// # Errors
    /// [`Exit::Usage`]: more memory is needed than is free.
    pub fn ensure_affordable(
        &self,
        rate_per_s: f64,
        warmup: Nanos,
        duration: Option<Nanos>,
    ) -> Result<(), Failure> {
        let own = self.own_length(Some(rate_per_s)).unwrap_or(Nanos::MAX);
        let seconds = duration.map_or(own, |d| d.min(own)).as_secs_f64() + warmup.as_secs_f64();
        let requests = rate_per_s * seconds;
        let needed = requests * BYTES_PER_REQUEST;
        let Some(free) = Memory::read(&Roots::default()).available_bytes else {
            return Ok(());
        };
        let free = free as f64;
        if needed < free {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{requests:.0} requests need about {:.0} GB of memory for their record and {:.0} GB are \
             free: use a lower rate or a shorter duration",
            needed / 1e9,
            free / 1e9
        )))
    }

    /// The schedule of every thread. There is none whose record would not fit into memory.
    ///
    /// Poisson arrivals are independent streams, one for each thread; together they are Poisson again.
    /// Other processes do not add up to the same process. So one stream is dealt out to the threads in
    /// turn, and the server sees the process that was asked for.
    ///
    /// # Errors
    /// [`Exit::Usage`]: the rate or a parameter of the process is out of range, nothing is left to measure after the
    /// warm-up, or the record would not fit.
    pub fn schedule(&self, extent: &Extent) -> Result<Schedule, Failure> {
        if let Some(rate) = extent.rate_per_s {
            self.ensure_affordable(rate, extent.warmup, extent.duration)?;
        }
        let schedule = self.drawn(extent).or_exit(Exit::Usage)?;
        if schedule.duration() == Nanos::ZERO {
            return Err(Failure::usage(format!(
                "the warm-up of {} takes the whole trace, which lasts {}: use a shorter --warmup",
                extent.warmup, schedule.length
            )));
        }
        Ok(schedule)
    }

    fn drawn(&self, extent: &Extent) -> Result<Schedule, ArrivalError> {
        let (warmup, threads) = (extent.warmup, extent.threads);
        let whole = self.own_length(extent.rate_per_s).map(|own| match self {
            // a profile is preceded by its warm-up, a trace begins with it
            Self::Profile(..) => own + warmup,
            _ => own,
        });
        let length = match (extent.duration.map(|d| d + warmup), whole) {
            (Some(wanted), Some(whole)) => wanted.min(whole),
            (Some(length), None) | (None, Some(length)) => length,
            (None, None) => warmup,
        };
        let mut by_thread = match self {
            Self::Steady(process) => {
                let rate = extent.rate_per_s.unwrap_or(f64::NAN);
                streams(*process, extent, |process, share, seed| {
                    process.schedule(rate * share, length, seed)
                })?
            }
            Self::Profile(process, profile) => {
                let factor = extent
                    .rate_per_s
                    .map_or(1.0, |r| r / profile.mean_rate_per_s());
                let profile = warmed_up(&profile.scaled(factor), warmup);
                streams(*process, extent, |process, share, seed| {
                    profile.scaled(share).schedule(process, seed)
                })?
            }
            Self::Recorded(times) => {
                let stretch = extent
                    .rate_per_s
                    .map_or(1.0, |rate| mean_rate(times) / rate);
                let at = |t: &Nanos| Nanos::new((t.get() as f64 * stretch).round() as u64);
                let times = match extent.rate_per_s {
                    None => times.clone(),
                    Some(_) => times.iter().map(at).collect(),
                };
                deal(times, threads)
            }
        };
        for due in &mut by_thread {
            due.truncate(due.partition_point(|t| *t < length));
        }
        let mut schedule = Schedule {
            by_thread,
            measure_from: warmup.min(length),
            length,
            rate_per_s: 0.0,
        };
        schedule.rate_per_s = match self {
            Self::Steady(_) => extent.rate_per_s.unwrap_or(f64::NAN),
            // the actual rate: a part of a profile or of a trace has its own
            _ => schedule.measured_requests() as f64 / schedule.duration().as_secs_f64(),
        };
        Ok(schedule)
    }
}

impl Schedule {
    /// How long before its start the client begins to prepare it: to start its threads, and to draw every request.
    pub fn preparation(&self) -> Nanos {
        const THREADS: Nanos = Nanos::from_millis(200);
        const EACH: Nanos = Nanos::new(500);
        let requests: usize = self.by_thread.iter().map(Vec::len).sum();
        THREADS + EACH * requests as u64
    }

    /// Requests of the measurement.
    pub fn measured_requests(&self) -> usize {
        self.by_thread
            .iter()
            .map(|due| due.len() - due.partition_point(|t| *t < self.measure_from))
            .sum()
    }

    /// Length of the measurement.
    pub fn duration(&self) -> Nanos {
        self.length.saturating_sub(self.measure_from)
    }
}

/// One stream for each thread, of `share` of the rate.
fn streams(
    process: ArrivalProcess,
    extent: &Extent,
    stream: impl Fn(&ArrivalProcess, f64, u64) -> Result<Vec<Nanos>, ArrivalError>,
) -> Result<Vec<Vec<Nanos>>, ArrivalError> {
    if process != ArrivalProcess::Poisson {
        let whole = stream(&process, 1.0, extent.seed)?;
        return Ok(deal(whole, extent.threads));
    }
    let share = 1.0 / extent.threads as f64;
    (0..extent.threads)
        .map(|i| stream(&process, share, mixed(extent.seed, i as u64)))
        .collect()
}

/// The profile preceded by a warm-up at its first rate above 0.
fn warmed_up(profile: &RateProfile, warmup: Nanos) -> RateProfile {
    let mut steps = profile.to_steps();
    let first = steps.iter().map(|(_, rate)| *rate).find(|rate| *rate > 0.0);
    if let (Some(rate), true) = (first, warmup > Nanos::ZERO) {
        steps.insert(0, (warmup, rate));
    }
    RateProfile::steps(&steps).unwrap_or_else(|_| profile.clone())
}

/// Requests per second of recorded instants.
fn mean_rate(times: &[Nanos]) -> f64 {
    (times.len() - 1) as f64 / times[times.len() - 1].as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = Nanos::from_secs(1);

    fn extent(rate_per_s: Option<f64>, threads: usize) -> Extent {
        Extent {
            rate_per_s,
            warmup: S,
            duration: Some(S * 4),
            seed: 5,
            threads,
        }
    }

    fn merged(schedule: &Schedule) -> Vec<Nanos> {
        let mut all: Vec<Nanos> = schedule.by_thread.concat();
        all.sort_unstable();
        all
    }

    #[test]
    fn one_thread_sends_what_the_simulator_would() {
        let shape = Shape::Steady(ArrivalProcess::Poisson);
        let schedule = shape.schedule(&extent(Some(1e4), 1)).unwrap();
        let simulated = ArrivalProcess::Poisson.schedule(1e4, S * 5, 5).unwrap();
        assert_eq!(schedule.by_thread, [simulated]);
        assert_eq!((schedule.measure_from, schedule.duration()), (S, S * 4));
    }

    #[test]
    fn there_is_no_schedule_whose_record_would_not_fit_into_memory() {
        let shape = Shape::Steady(ArrivalProcess::Poisson);
        let refused = shape.schedule(&extent(Some(1e15), 1)).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        let says = |part: &str| refused.message.contains(part);
        assert!(says("GB are free") && says("a lower rate"), "{refused}");
    }

    #[test]
    fn there_is_no_schedule_with_nothing_to_measure() {
        let times = (0..=40).map(|i| Nanos::from_millis(10) * i).collect();
        let whole = Extent {
            duration: None,
            ..extent(None, 1)
        };
        let refused = Shape::Recorded(times).schedule(&whole).unwrap_err();
        assert!(refused.message.contains("a shorter --warmup"), "{refused}");
    }

    #[test]
    fn threads_have_independent_poisson_streams_that_add_up() {
        let shape = Shape::Steady(ArrivalProcess::Poisson);
        let schedule = shape.schedule(&extent(Some(4e4), 4)).unwrap();
        for (i, due) in schedule.by_thread.iter().enumerate() {
            // five standard deviations of a count of 50,000
            assert!(
                due.len().abs_diff(50_000) < 5 * 224,
                "thread {i}: {}",
                due.len()
            );
            assert!(schedule.by_thread[..i].iter().all(|other| other != due));
        }
        assert!(merged(&schedule).len().abs_diff(200_000) < 5 * 448);
        assert_eq!(schedule.rate_per_s, 4e4);
    }

    #[test]
    fn other_processes_are_dealt_out_whole() {
        let shape = Shape::Steady(ArrivalProcess::Deterministic);
        let schedule = shape.schedule(&extent(Some(1e3), 3)).unwrap();
        let whole = ArrivalProcess::Deterministic
            .schedule(1e3, S * 5, 5)
            .unwrap();
        assert_eq!(merged(&schedule), whole);
        let sizes: Vec<usize> = schedule.by_thread.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1667, 1666, 1666]);
    }

    #[test]
    fn a_profile_follows_its_warm_up_and_is_scaled_to_the_rate() {
        let profile: RateProfile = "step:1s@1000,1s@3000".parse().unwrap();
        let shape = Shape::Profile(ArrivalProcess::Deterministic, profile);
        assert_eq!(shape.own_rate_per_s().map(f64::round), Some(2000.0));
        let whole = Extent {
            duration: None,
            ..extent(None, 1)
        };
        let schedule = shape.schedule(&whole).unwrap();
        assert_eq!((schedule.measure_from, schedule.length), (S, S * 3));
        let in_second = |schedule: &Schedule, n: u64| {
            let all = merged(schedule);
            all.iter().filter(|t| t.get() / 1_000_000_000 == n).count()
        };
        let counts = |s: &Schedule| [0, 1, 2].map(|n| in_second(s, n) as i64);
        for (counted, wanted) in counts(&schedule).into_iter().zip([1000, 1000, 3000]) {
            assert!((counted - wanted).abs() <= 1, "{counted} {wanted}");
        }
        let doubled = shape
            .schedule(&Extent {
                rate_per_s: Some(4000.0),
                ..whole
            })
            .unwrap();
        assert!((counts(&doubled)[2] - 6000).abs() <= 2);
        assert!((doubled.rate_per_s - 4000.0).abs() < 3.0);
    }

    #[test]
    fn a_trace_is_played_as_recorded_or_stretched() {
        let times: Vec<Nanos> = (0..=40).map(|i| Nanos::from_millis(100) * i).collect();
        let shape = Shape::Recorded(times.clone());
        let whole = Extent {
            warmup: Nanos::ZERO,
            duration: None,
            ..extent(None, 2)
        };
        let schedule = shape.schedule(&whole).unwrap();
        assert_eq!(merged(&schedule), times);
        assert_eq!(schedule.length, Nanos::from_millis(4_100));
        assert!((schedule.rate_per_s - 10.0).abs() < 0.01);
        let slower = Extent {
            rate_per_s: Some(5.0),
            ..whole
        };
        let schedule = shape.schedule(&slower).unwrap();
        assert_eq!(merged(&schedule)[40], S * 8);
        let cut = Extent {
            duration: Some(S),
            ..whole
        };
        let schedule = shape.schedule(&cut).unwrap();
        assert_eq!((merged(&schedule).len(), schedule.length), (10, S));
    }
}
