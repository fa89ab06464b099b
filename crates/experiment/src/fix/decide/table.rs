//! How often simulated trials end in which way: the tables of docs/fix.md.

use super::tests::{Noise, any_of_eight, claims, tried};
use super::*;

/// How trials of the same kind ended.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    kept: usize,
    worse: usize,
    reverted: usize,
    pairs: usize,
    of: usize,
}

fn ends(trials: u64, level: f64, factor: f64, most: usize, noise: Noise) -> Outcomes {
    let mut ends = Outcomes::default();
    for seed in 0..trials {
        let (judgement, trial) = tried(seed, level, factor, most, noise);
        ends.of += 1;
        ends.pairs += trial.pairs.count();
        match judgement.outcome {
            FixOutcome::Kept => ends.kept += 1,
            _ if claims(&judgement) => ends.worse += 1,
            FixOutcome::Reverted => ends.reverted += 1,
            _ => {}
        }
    }
    ends
}

/// The levels of one candidate, and of one of eight.
const LEVELS: [f64; 2] = [0.05, 0.05 / 8.0];

#[test]
#[ignore = "prints the table of docs/fix.md in some minutes"]
fn how_simulated_trials_end() {
    for (noise, most, trials) in [
        (Noise::Stalls, 21, 300),
        (Noise::Bursts, 21, 100),
        (Noise::Stalls, 60, 100),
    ] {
        for (factor, level) in [1.0, 0.9, 0.8, 0.5, 1.25]
            .into_iter()
            .flat_map(|factor| LEVELS.map(|level| (factor, level)))
            .filter(|(factor, level)| *factor != 1.0 || *level == LEVELS[0])
        {
            let trials = if factor == 1.0 { trials } else { trials / 5 };
            let ends = ends(trials, level, factor, most, noise);
            println!("{noise:?}, at most {most} pairs, level {level:.4}, {factor}: {ends:?}");
        }
    }
}

#[test]
#[ignore = "prints a line of docs/fix.md in some minutes"]
fn how_often_one_of_eight_useless_changes_is_a_false_winner() {
    let wrong = (0..60).filter(|session| any_of_eight(*session, 21)).count();
    println!("{wrong} of 60");
    assert!(wrong <= 8, "{wrong} of 60");
}
