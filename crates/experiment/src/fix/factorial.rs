//! All combinations of chosen mitigations, round by round: `--factorial`.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use taillab_analysis::factorial::{Combination, MOST_FACTORS, Rounds};
use taillab_analysis::paired::MIN_PAIRS;
use taillab_console::exit::{Exit, Failure};
use taillab_host::tune::{MITIGATIONS, Mitigation};
use taillab_model::Nanos;
use taillab_model::fix::{Effect, Factorial, FactorialCell, LatencyAt, RatioAt};

use super::decide::{TOLD, estimate};
use super::trial::Bench;
use crate::changes::NotApplied;

/// The most rounds; more would add little information.
const MOST_ROUNDS: usize = 40;

/// The mitigations by their names.
///
/// # Errors
/// [`Exit::Usage`]: an unknown name, one that is given twice, too few or too many.
pub fn named(names: &[String]) -> Result<Vec<&'static Mitigation>, Failure> {
    let find = |name: &String| {
        let found = MITIGATIONS.iter().copied().find(|row| row.is.name == name);
        found.ok_or_else(|| {
            Failure::usage(format!(
                "--factorial: there is no mitigation {name}; `taillab tune list` shows their names"
            ))
        })
    };
    let found: Vec<_> = names.iter().map(find).collect::<Result<_, _>>()?;
    let distinct: HashSet<&str> = found.iter().map(|row| row.is.name).collect();
    match found.len() {
        2..=MOST_FACTORS if distinct.len() == found.len() => Ok(found),
        2..=MOST_FACTORS => Err(Failure::usage("--factorial: a mitigation is given twice")),
        _ => Err(Failure::usage(format!(
            "--factorial takes 2 to {MOST_FACTORS} mitigations: all their combinations are measured"
        ))),
    }
}

/// Measures all combinations in rounds until the budget of the bench is spent. Returns what the finished rounds show
/// (`None` where there are none), and the failure that ended them early: Ctrl-C, a mitigation that is not possible here
/// or cannot be combined with another, a trial that failed.
pub fn run(
    bench: &mut Bench<'_>,
    factors: &[&'static Mitigation],
) -> (Option<Factorial>, Result<(), Failure>) {
    let mut rounds = Rounds::new(factors.len());
    let round_takes = bench.block_takes() * rounds.combinations().len() as u32;
    let left = |bench: &Bench<'_>| bench.ends.saturating_duration_since(Instant::now());
    if left(bench) < round_takes * MIN_PAIRS as u32 {
        return (None, Err(too_little_time(round_takes)));
    }
    let most = (left(bench).as_secs_f64() / round_takes.as_secs_f64()) as usize;
    let most = most.clamp(MIN_PAIRS, MOST_ROUNDS);
    let bar = bench.bar("all combinations", most, "rounds");
    let mut ended = Ok(());
    while rounds.count() < most && (rounds.count() < MIN_PAIRS || left(bench) >= round_takes) {
        match round(bench, factors, &rounds) {
            Ok(round) => rounds.push(round),
            Err(failure) => {
                ended = Err(failure);
                break;
            }
        }
        bench.tell(&bar, rounds.count(), String::new());
    }
    bar.finish_and_clear();
    let found = (rounds.count() > 0).then(|| result(&rounds, factors));
    (found, ended)
}

/// Measures each combination once, in random order and with the same arrivals.
fn round(
    bench: &mut Bench<'_>,
    factors: &[&'static Mitigation],
    rounds: &Rounds,
) -> Result<Vec<Vec<Nanos>>, Failure> {
    let seed = bench.seed ^ ((rounds.count() as u64) << 20);
    let mut blocks = vec![Vec::new(); rounds.combinations().len()];
    for combination in rounds.next_order(bench.seed) {
        let changes: Vec<_> = chosen(factors, combination).collect();
        let seen = bench
            .under(&changes, |load| load.block(seed))
            .map_err(|why| refused(why, &changes))?;
        blocks[combination] = seen.latencies;
    }
    Ok(blocks)
}

/// The mitigations of a combination.
fn chosen<'a>(
    factors: &'a [&'static Mitigation],
    combination: Combination,
) -> impl Iterator<Item = &'static Mitigation> + 'a {
    let all = factors.iter().enumerate();
    all.filter(move |(place, _)| combination >> place & 1 == 1)
        .map(|(_, mitigation)| *mitigation)
}

fn refused(why: NotApplied, changes: &[&Mitigation]) -> Failure {
    match why {
        NotApplied::Failed(failure) => failure,
        NotApplied::Unavailable(reason) => {
            let names: Vec<&str> = changes.iter().map(|change| change.is.name).collect();
            Failure::new(
                Exit::Unsupported,
                format!(
                    "--factorial: {} cannot be applied here: {reason}; everything was put back",
                    names.join(" with ")
                ),
            )
        }
    }
}

fn too_little_time(round_takes: Duration) -> Failure {
    let seconds = (round_takes * MIN_PAIRS as u32).as_secs() + 1;
    Failure::usage(format!(
        "--factorial needs {MIN_PAIRS} rounds, which take about {seconds} s: raise --fix-budget"
    ))
}

fn result(rounds: &Rounds, factors: &[&'static Mitigation]) -> Factorial {
    let names = |combination| -> Vec<String> {
        let chosen = chosen(factors, combination);
        chosen.map(|row| row.is.name.to_owned()).collect()
    };
    let effect = |of: Combination| {
        let at = TOLD.into_iter().filter_map(|q| {
            let ratio = estimate(rounds.effect(of, q)?);
            Some(RatioAt { q, ratio })
        });
        Effect {
            of: names(of),
            at: at.collect(),
        }
    };
    let cell = |combination: Combination| {
        let at = TOLD.into_iter().filter_map(|q| {
            let ns = rounds.quantile(combination, q)?;
            Some(LatencyAt { q, ns })
        });
        FactorialCell {
            with: names(combination),
            at: at.collect(),
        }
    };
    let mut effects: Vec<Combination> = rounds.combinations().filter(|of| *of != 0).collect();
    // single changes first, then pairs
    effects.sort_by_key(|of| (of.count_ones(), *of));
    Factorial {
        mitigations: names(rounds.combinations().len() - 1),
        rounds: rounds.count() as u32,
        effects: effects.into_iter().map(effect).collect(),
        cells: rounds.combinations().map(cell).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lists_are_refused() {
        let refused = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            named(&names).err().map(|failure| failure.to_string())
        };
        assert_eq!(refused(&["nice", "slice"]), None);
        assert!(refused(&["nice"]).unwrap().contains("2 to 4"));
        assert!(refused(&["nice", "nice"]).unwrap().contains("twice"));
        assert!(refused(&["nice", "nicer"]).unwrap().contains("nicer"));
    }

    #[test]
    fn fewer_rounds_than_an_interval_needs_show_latencies_and_no_effect() {
        let factors = named(&["nice".to_owned(), "slice".to_owned()]).unwrap();
        let mut rounds = Rounds::new(2);
        rounds.push(vec![vec![Nanos::new(1_000); 100]; 4]);
        let result = result(&rounds, &factors);
        assert_eq!(result.rounds, 1);
        assert!(result.effects.iter().all(|effect| effect.at.is_empty()));
        assert!(result.cells.iter().all(|cell| !cell.at.is_empty()));
    }

    #[test]
    fn single_effects_come_before_interactions() {
        let factors = named(&[
            "nice".to_owned(),
            "slice".to_owned(),
            "irq-affinity".to_owned(),
        ]);
        let factors = factors.unwrap();
        let result = result(&Rounds::new(3), &factors);
        let of: Vec<usize> = result
            .effects
            .iter()
            .map(|effect| effect.of.len())
            .collect();
        assert_eq!(of, [1, 1, 1, 2, 2, 2, 3]);
        assert_eq!(result.cells.len(), 8);
        assert!(result.cells[0].with.is_empty());
    }
}
