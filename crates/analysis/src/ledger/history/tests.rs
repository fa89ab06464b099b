//! Compares sums and single delays with a plain list of nanoseconds.

use proptest::prelude::*;

use super::*;

/// A stretch of one label: the label and how long.
type Given = (Label, u64);

fn sums(given: &[Given]) -> Vec<Given> {
    let mut sums: Vec<Given> = Vec::new();
    for &(label, ns) in given {
        match sums.iter_mut().find(|sum| sum.0 == label) {
            Some(sum) => sum.1 += ns,
            None => sums.push((label, ns)),
        }
    }
    sums
}

fn joined(given: &[Given]) -> Vec<Given> {
    let mut runs: Vec<Given> = Vec::new();
    for &(label, ns) in given {
        match runs.last_mut() {
            Some(last) if last.0 == label => last.1 += ns,
            _ => runs.push((label, ns)),
        }
    }
    runs
}

#[test]
fn what_was_cut_is_not_given() {
    let mut history = CpuHistory::default();
    history.push(1, 10);
    history.clear();
    history.push(2, 5);
    let mut seen = Vec::new();
    assert_eq!(history.visit(3, 14, |label, ns| seen.push((label, ns))), 4);
    assert_eq!(seen, [(2, 4)]);
    seen.clear();
    assert_eq!(
        history.sum(3, 14, &mut Stretch::default(), |label, ns| seen
            .push((label, ns))),
        4
    );
    assert_eq!(seen, [(2, 4)]);
}

/// However long it is, a stretch is summed in a few steps.
#[test]
fn the_sums_of_a_long_stretch_take_few_steps() {
    let mut history = CpuHistory::default();
    let labels = 5;
    for run in 0..300_000_u32 {
        history.push(run * 7 % labels, 3);
    }
    let end = history.end().delay_ns;
    for from in (0..end).step_by(977) {
        for to in [end, end - from / 3] {
            let mut steps = 0;
            history.sum(from, to, &mut Stretch::default(), |_, _| steps += 1);
            // at most seven blocks of each of six sizes on either side, of five labels
            assert!(steps < 2 * 7 * 6 * labels, "{steps} from {from} to {to}");
        }
    }
}

/// What was forgotten of a long overload is not in the sums either.
#[test]
fn the_oldest_runs_are_forgotten() {
    let mut history = CpuHistory::default();
    let runs = (1 << 20) + 100_u64;
    for run in 0..runs {
        history.push((run % 3) as Label, 1);
    }
    let kept = runs - (1 << 19);
    let (mut one_by_one, mut summed) = ([0; 3], [0; 3]);
    let given = history.visit(0, u64::MAX, |label, ns| one_by_one[label as usize] += ns);
    assert_eq!(given, kept);
    let given = history.sum(0, u64::MAX, &mut Stretch::default(), |label, ns| {
        summed[label as usize] += ns;
    });
    assert_eq!((given, summed), (kept, one_by_one));
}

/// Once no worker is left on a CPU, its history begins anew.
#[test]
fn what_held_a_worker_up_before_it_moved_is_not_forgotten() {
    let mut cpus = [CpuHistory::default(), CpuHistory::default()];
    let mut worker = WorkerHistory::default();
    worker.attach(0, &cpus);
    cpus[0].push(1, 10);
    worker.attach(1, &cpus);
    cpus[0].clear();
    cpus[1].push(2, 5);
    let (mut seen, mut summed) = (Vec::new(), Vec::new());
    let given = worker.visit(&cpus, 4, 15, &mut |label, ns| seen.push((label, ns)));
    assert_eq!((given, seen), (11, vec![(1, 6), (2, 5)]));
    let stretches = &mut Stretches::default();
    let given = worker.sum(0, &cpus, 4..15, stretches, &mut |label, ns| {
        summed.push((label, ns));
    });
    assert_eq!((given, summed), (11, vec![(1, 6), (2, 5)]));
    // only of the first CPU
    let given = worker.sum(0, &cpus, 2..8, stretches, &mut |_, _| {});
    assert_eq!(given, 6);
}

/// What happens to a worker and two CPUs.
#[derive(Clone, Copy, Debug)]
enum Step {
    Delay(usize, Label, u64),
    Attach(usize),
    Detach,
    /// Only where it is not attached.
    HeldUp(Label, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (label, length) = (0_u32..6, 0_u64..9);
    prop_oneof![
        12 => (0_usize..2, label.clone(), length.clone()).prop_map(|(k, l, n)| Step::Delay(k, l, n)),
        1 => (0_usize..2).prop_map(Step::Attach),
        1 => Just(Step::Detach),
        2 => (label, length).prop_map(|(l, n)| Step::HeldUp(l, n)),
    ]
}

proptest! {
    #[test]
    fn a_stretch_is_what_was_pushed_there(
        pushes in prop::collection::vec((0_u32..3, 0_u64..20), 0..400),
        a in 0_u64..4_500,
        b in 0_u64..4_500,
    ) {
        let mut history = CpuHistory::default();
        let mut plain = Vec::new();
        for &(label, ns) in &pushes {
            history.push(label, ns);
            plain.extend(std::iter::repeat_n((label, 1), ns as usize));
        }
        prop_assert_eq!(history.end().delay_ns, plain.len() as u64);
        let to = (b as usize).min(plain.len());
        let expected = &plain[(a as usize).min(to)..to];
        let mut seen = Vec::new();
        let given = history.visit(a, b, |label, ns| seen.push((label, ns)));
        prop_assert_eq!(given, expected.len() as u64);
        prop_assert_eq!(&seen, &joined(expected));
        seen.clear();
        let stretch = &mut Stretch::default();
        let given = history.sum(a, b, stretch, |label, ns| seen.push((label, ns)));
        prop_assert_eq!(given, expected.len() as u64);
        prop_assert_eq!(sums(&seen), sums(expected));
    }

    /// A stretch that moves forwards, backwards and far away, while the history grows and is cut, has the
    /// same sums as a new stretch.
    #[test]
    fn a_stretch_can_move(
        moves in prop::collection::vec((0_u64..40, 0_u64..40, 0_u8..20), 1..200),
        labels in 2_u32..9,
        seed in any::<u64>(),
    ) {
        let mut history = CpuHistory::default();
        let mut plain: Vec<Given> = Vec::new();
        let (mut state, mut begin) = (seed, 0);
        let mut grow = |history: &mut CpuHistory, plain: &mut Vec<Given>| {
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (label, ns) = ((state >> 33) as u32 % labels, 1 + (state >> 50) % 5);
                history.push(label, ns);
                plain.extend(std::iter::repeat_n((label, 1), ns as usize));
            }
        };
        (0..30).for_each(|_| grow(&mut history, &mut plain));
        let mut stretch = Stretch::default();
        let (mut from, mut to) = (0_u64, 300_u64);
        for (a, b, what) in moves {
            (from, to) = match what {
                0 => (from + 400, to + 500),
                1 => (a, to),
                2 => {
                    history.clear();
                    begin = plain.len() as u64;
                    (from, to)
                }
                3..=6 => (from.saturating_sub(a), to.saturating_sub(b)),
                7..=9 => (from + a, to.saturating_sub(b)),
                _ => (from + a, to + b),
            };
            grow(&mut history, &mut plain);
            let end = plain.len() as u64;
            let (lo, hi) = (from.clamp(begin, end), to.clamp(begin, end));
            let expected = plain.get(lo as usize..hi as usize).unwrap_or_default();
            let mut seen = Vec::new();
            let given = history.sum(from, to, &mut stretch, |label, ns| seen.push((label, ns)));
            prop_assert_eq!(given, expected.len() as u64);
            prop_assert_eq!(sums(&seen), sums(expected));
        }
    }

    /// On two CPUs, off them, back again: the worker's history is what held it up.
    #[test]
    fn a_workers_history_is_what_it_met(
        steps in prop::collection::vec(step(), 1..600),
        ends in prop::collection::vec((0.0_f64..1.0, 0.0_f64..1.0), 8),
        cleared_at in prop::option::of(0_usize..600),
    ) {
        let mut cpus = [CpuHistory::default(), CpuHistory::default()];
        let mut worker = WorkerHistory::default();
        let mut plain: Vec<Given> = Vec::new();
        let mut begin = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Delay(k, label, ns) => {
                    cpus[k].push(label, ns);
                    if worker.attached() == Some(k) {
                        plain.extend(std::iter::repeat_n((label, 1), ns as usize));
                    }
                }
                Step::Attach(k) => worker.attach(k, &cpus),
                Step::Detach => worker.detach(&cpus),
                Step::HeldUp(label, ns) if worker.attached().is_none() => {
                    worker.held_up(label, ns, &cpus);
                    plain.extend(std::iter::repeat_n((label, 1), ns as usize));
                }
                Step::HeldUp(..) => {}
            }
            if cleared_at == Some(number) {
                worker.clear(&cpus);
                begin = plain.len();
            }
        }
        prop_assert_eq!(worker.end(&cpus).delay_ns, plain.len() as u64);
        let mut stretches = Stretches::default();
        for (a, b) in ends {
            let at = |part: f64| begin + (part * (plain.len() - begin) as f64) as usize;
            let (from, to) = (at(a.min(b)), at(a.max(b)));
            let expected = &plain[from..to];
            let (from, to) = (from as u64, to as u64);
            let mut seen = Vec::new();
            let given = worker.visit(&cpus, from, to, &mut |label, ns| seen.push((label, ns)));
            prop_assert_eq!(given, to - from);
            prop_assert_eq!(joined(&seen), joined(expected));
            seen.clear();
            let given = worker.sum(
                0, &cpus, from..to, &mut stretches, &mut |label, ns| seen.push((label, ns)),
            );
            prop_assert_eq!(given, to - from);
            prop_assert_eq!(sums(&seen), sums(expected));
        }
    }
}
