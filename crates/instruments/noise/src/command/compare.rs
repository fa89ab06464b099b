//! Compares the loops: which noise is the guest's, which the host's, and which comes with the use of all
//! CPUs.

use taillab_model::noise::{LoopKind, NoiseKind, NoiseRow, ReadStyle};

use crate::result::NoiseQuota;

/// Less growth than this with more CPUs busy may be an accident of one of them.
const GROWTH: f64 = 2.0;
/// Smaller shares are not worth a sentence.
const LEAST_SHARE: f64 = 0.001;

/// What the rows say together.
pub fn sentences(rows: &[NoiseRow], limit: Option<NoiseQuota>) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(guest_and_host(rows));
    sentences.extend(limit.map(limited));
    sentences.extend(quota(rows));
    sentences.extend(improved(rows));
    sentences.extend(styles(rows));
    sentences
}

/// What the kernel itself counts of a quota.
fn limited(limit: NoiseQuota) -> String {
    let found = match limit.throttled {
        0 => "never held the loops back".to_owned(),
        times => format!(
            "held the loops back {}, for {} in all",
            match times {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            },
            limit.throttled_ns
        ),
    };
    format!(
        "A quota of the control group allows {} of CPU time in each {}, on all CPUs together; it \
         {found}.",
        limit.quota_ns, limit.period_ns
    )
}

/// Gaps of a kind of loop for each second that it ran, the mean over its CPUs.
fn per_s(rows: &[NoiseRow], kind: LoopKind) -> Option<f64> {
    let of_kind = rows
        .iter()
        .filter(|row| row.kind == kind && row.step.is_empty());
    // a loop without its CPU cannot see gaps of the host
    let running = |row: &NoiseRow| row.above.us_1_per_s / (1.0 - row.stolen_share).max(0.01);
    let rates: Vec<f64> = of_kind.map(running).collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

fn guest_and_host(rows: &[NoiseRow]) -> Option<String> {
    let user = per_s(rows, LoopKind::User)?;
    let masked = per_s(rows, LoopKind::Masked)?;
    if user <= 0.0 {
        return None;
    }
    if masked >= user {
        return Some(format!(
            "With this kernel’s interrupts off there are no fewer gaps above 1 µs, {masked:.0} a second, than \
             in each second that the loop in user space ran, {user:.0}: such gaps come from below this \
             kernel (hypervisor, firmware, hardware)."
        ));
    }
    let share = masked / user;
    Some(format!(
        "With this kernel’s interrupts off {masked:.0} gaps above 1 µs remain of {user:.0} in each \
         second that the loop in user space ran: {:.0} % come from below this kernel (hypervisor, firmware, hardware), \
         {:.0} % are its own.",
        100.0 * share,
        100.0 * (1.0 - share)
    ))
}

/// The share of the time in which nothing of this kernel ran, because a hypervisor or a quota took it.
/// Without causes it is all stolen time.
fn outside(row: &NoiseRow) -> f64 {
    let Some(causes) = &row.causes else {
        return row.stolen_share;
    };
    let outside = (causes.iter())
        .filter(|cause| !cause.cause.is_attributed() || cause.cause == NoiseKind::Quota);
    let stolen: f64 = outside.map(|cause| cause.stolen_ns.as_secs_f64()).sum();
    stolen / row.watched_ns.as_secs_f64().max(1e-9)
}

/// Whether stalls grow with the number of busy CPUs.
fn quota(rows: &[NoiseRow]) -> Option<String> {
    let stepped = || rows.iter().filter(|row| row.step.ends_with("busy"));
    let share = |busy: u32| -> Option<f64> {
        let rows = stepped().filter(|row| row.busy_cpus == busy);
        let shares: Vec<f64> = rows.map(outside).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    // one CPU alone, or one step before Ctrl-C, says nothing about a sum
    let most = stepped()
        .map(|row| row.busy_cpus)
        .max()
        .filter(|most| *most > 1)?;
    let (one, all) = (share(1)?, share(most)?);
    let grows = all > LEAST_SHARE && all > GROWTH * one;
    let figures = format!(
        "with one CPU busy {:.2} % of the time is lost, with all {most} {:.2} % of each",
        100.0 * one,
        100.0 * all
    );
    Some(match grows {
        true => format!(
            "Stalls come with the sum of all CPUs’ use: {figures}. This is what a quota of \
             the virtual machine or container, or a neighbour on the same core, looks like."
        ),
        false => format!("No sign of a quota on the sum of all CPUs: {figures}."),
    })
}

/// The paper's improvements: from the first step to the best one.
fn improved(rows: &[NoiseRow]) -> Option<String> {
    let first = rows.iter().find(|row| row.step == "as it comes")?;
    // the double read misses time while it counts, and a masked loop is not a program
    let others = rows.iter().filter(|row| {
        row.kind == LoopKind::User && row.reads_clock == ReadStyle::Single && !row.step.is_empty()
    });
    if others.clone().count() < 2 {
        // no other step was tried
        return None;
    }
    let best = others.min_by(|a, b| a.stolen_share.total_cmp(&b.stolen_share))?;
    if best.step == first.step {
        return Some(format!(
            "No step lowered the stolen share of “{}”, {:.3} %.",
            first.step,
            100.0 * first.stolen_share
        ));
    }
    Some(format!(
        "From “{}” to “{}” the stolen share goes from {:.3} % to {:.3} %, and the longest gap from \
         {} to {}.",
        first.step,
        best.step,
        100.0 * first.stolen_share,
        100.0 * best.stolen_share,
        first.reads.max.unwrap_or_default(),
        best.reads.max.unwrap_or_default(),
    ))
}

/// The two listings of the paper, each under the same conditions.
fn styles(rows: &[NoiseRow]) -> Option<String> {
    let double = rows
        .iter()
        .find(|row| row.reads_clock == ReadStyle::Double)?;
    let single = rows.iter().find(|row| {
        row.reads_clock == ReadStyle::Single
            && row.kind == double.kind
            && row.cpu == double.cpu
            && row.policy == double.policy
    })?;
    let at = |row: &NoiseRow, q| row.reads.quantile(q).unwrap_or_default();
    Some(format!(
        "Read twice in each turn instead of once, the least time between two reads is {} instead of \
         {}, the median {} instead of {}, the longest {} instead of {}; it does not see what \
         happens between its pairs.",
        double.reads.min.unwrap_or_default(),
        single.reads.min.unwrap_or_default(),
        at(double, 0.5),
        at(single, 0.5),
        double.reads.max.unwrap_or_default(),
        single.reads.max.unwrap_or_default(),
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use taillab_model::noise::{Above, NoiseCause, OverTime};
    use taillab_model::{Histogram, Monotonic, Nanos};

    pub(in super::super) fn row(
        kind: LoopKind,
        step: &str,
        busy_cpus: u32,
        per_s: f64,
        stolen_share: f64,
    ) -> NoiseRow {
        NoiseRow {
            step: step.into(),
            kind,
            reads_clock: ReadStyle::Single,
            cpu: Some(0),
            busy_cpus,
            policy: "other".into(),
            threshold_ns: Nanos::from_micros(1),
            began_ns: Monotonic::from_nanos_since_boot(0),
            watched_ns: Nanos::from_secs(1),
            migrations: 0,
            reads: Histogram::default().distribution(|_| 1.0),
            ccdf: Vec::new(),
            above: Above {
                us_1_per_s: per_s,
                ..Above::default()
            },
            gaps: 0,
            stolen_ns: Nanos::ZERO,
            stolen_share,
            gaps_not_kept: 0,
            causes: None,
            attributed_share: None,
            below_share: None,
            longest: Vec::new(),
            over_time: OverTime {
                window_ns: Nanos::from_millis(100),
                stolen_ns: Vec::new(),
                spells: Vec::new(),
            },
        }
    }

    #[test]
    fn what_remains_without_interrupts_is_not_this_kernels() {
        let rows = [
            row(LoopKind::User, "", 2, 500.0, 0.0),
            row(LoopKind::User, "", 2, 350.0, 0.5),
            row(LoopKind::Masked, "", 2, 300.0, 0.0),
        ];
        let said = sentences(&rows, None).join(" ");
        assert!(
            said.contains("300") && said.contains("600") && said.contains("50 %"),
            "{said}"
        );
        assert!(sentences(&rows[..2], None).is_empty());
    }

    #[test]
    fn a_quota_shows_only_where_stalls_grow_with_the_cpus() {
        let step = |busy, share| row(LoopKind::User, "2 CPUs busy", busy, 1.0, share);
        let quota = sentences(&[step(1, 0.002), step(2, 0.1), step(2, 0.2)], None).join("");
        assert!(
            quota.contains("quota of the") && quota.contains("15.00 %"),
            "{quota}"
        );
        let none = sentences(&[step(1, 0.02), step(2, 0.03), step(2, 0.02)], None).join("");
        assert!(none.contains("No sign"), "{none}");
        assert!(sentences(&[step(1, 0.1)], None).is_empty());
    }

    #[test]
    fn time_in_which_a_group_was_held_back_counts_and_other_threads_do_not() {
        let step = |busy, kind, share: f64| {
            let stolen_ns = Nanos::new((share * 1e9) as u64);
            let cause = NoiseCause {
                cause: kind,
                culprit: None,
                own: false,
                gaps: 1,
                length: Histogram::default().distribution(|_| 1.0),
                stolen_ns,
                share: 1.0,
            };
            NoiseRow {
                causes: Some(vec![cause]),
                ..row(LoopKind::User, "CPUs busy", busy, 1.0, share)
            }
        };
        let said = |kind| sentences(&[step(1, kind, 0.0), step(2, kind, 0.5)], None).join("");
        let held = said(NoiseKind::Quota);
        assert!(held.contains("Stalls come with the sum"), "{held}");
        let others = said(NoiseKind::Thread);
        assert!(others.contains("No sign"), "{others}");
    }

    #[test]
    fn a_quota_is_told_with_what_the_kernel_counted() {
        let limit = |throttled, ms| NoiseQuota {
            quota_ns: Nanos::from_millis(20),
            period_ns: Nanos::from_millis(100),
            throttled,
            throttled_ns: Nanos::from_millis(ms),
        };
        let said = |limit| sentences(&[], Some(limit)).join("");
        let held = said(limit(18, 1_700));
        assert!(
            held.contains("20.0 ms of CPU time in each 100 ms")
                && held.contains("18 times, for 1.70 s"),
            "{held}"
        );
        assert!(said(limit(0, 0)).contains("never held"));
    }

    #[test]
    fn an_improvement_is_told_only_where_there_is_one() {
        let step = |name, share| row(LoopKind::User, name, 1, 1.0, share);
        let said = |share| improved(&[step("as it comes", 0.01), step("pinned", share)]).unwrap();
        assert!(said(0.002).contains("From “as it comes” to “pinned”"));
        assert!(said(0.05).contains("No step lowered"));
        assert_eq!(improved(&[step("as it comes", 0.01)]), None);
    }

    #[test]
    fn the_two_listings_are_compared_under_the_same_conditions() {
        let of = |style, policy: &str| NoiseRow {
            reads_clock: style,
            policy: policy.into(),
            ..row(LoopKind::User, "pinned", 1, 1.0, 0.0)
        };
        let rows = [
            of(ReadStyle::Single, "other"),
            of(ReadStyle::Double, "fifo:80"),
        ];
        assert_eq!(styles(&rows), None);
        let said = styles(&[rows[1].clone(), of(ReadStyle::Single, "fifo:80")]);
        assert!(said.is_some_and(|said| said.contains("twice in each turn")));
    }
}
