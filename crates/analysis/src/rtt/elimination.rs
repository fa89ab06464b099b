//! The paper's argument by elimination (section 6), applied to the rows of a result: UDP lacks the work
//! of TCP, and a kernel bypass lacks the protocol stack.

use taillab_model::REPORTED_QUANTILES;
use taillab_model::rtt::{RttAdded, RttElimination, RttRow, RttSuspect};
use taillab_model::{Nanos, Quantile};

/// Protocols that bypass the kernel's stack, by the beginning of their names (`rdma-send`); the first one
/// that was measured is used.
const AROUND: [&str; 3] = ["rdma", "xdp", "shm"];

/// An elimination for each size and number of connections that has rows to compare.
pub fn elimination(rows: &[RttRow]) -> Vec<RttElimination> {
    // under a load, the queue makes the difference
    let measured = |row: &&RttRow| row.rtt.count > 0 && row.open_loop.is_none();
    let mut found: Vec<RttElimination> = Vec::new();
    for row in rows.iter().filter(measured) {
        let alike =
            |other: &RttElimination| (other.size_bytes, other.conns) == (row.size_bytes, row.conns);
        if found.iter().any(alike) {
            continue;
        }
        let of_size: Vec<&RttRow> = (rows.iter().filter(measured))
            .filter(|other| (other.size_bytes, other.conns) == (row.size_bytes, row.conns))
            .collect();
        if let Some(suspects) = suspects(&of_size) {
            found.push(RttElimination {
                size_bytes: row.size_bytes,
                conns: row.conns,
                suspects,
            });
        }
    }
    found
}

/// `None` without two rows to compare. TCP and UDP are compared in the same mode of waiting.
fn suspects(rows: &[&RttRow]) -> Option<Vec<RttSuspect>> {
    let first = |proto: &str, mode: Option<&str>| {
        let is_it = |row: &&&RttRow| row.proto == proto && mode.is_none_or(|mode| row.mode == mode);
        rows.iter().find(is_it).copied()
    };
    let around = AROUND.iter().find_map(|proto| {
        // a driver that does an adapter's work on a CPU bypasses nothing
        let goes_around =
            |row: &&&RttRow| row.proto.starts_with(*proto) && row.functional_only.is_none();
        rows.iter().find(goes_around).copied()
    });
    let udps = rows.iter().filter(|row| row.proto == "udp").copied();
    let both = udps
        .clone()
        .find_map(|udp| Some((first("tcp", Some(&udp.mode))?, udp)));
    let udp = both.map(|(_, udp)| udp).or_else(|| udps.clone().next());
    let mut suspects = Vec::new();
    if let Some((tcp, udp)) = both {
        suspects.push(suspect("TCP's own work", tcp, Some(udp)));
    }
    let stack = udp.or_else(|| first("tcp", None));
    if let (Some(stack), Some(around)) = (stack, around) {
        let name = match stack.proto.as_str() {
            "udp" => "the kernel's stack and scheduler",
            _ => "TCP, the kernel's stack and scheduler",
        };
        suspects.push(suspect(name, stack, Some(around)));
        suspects.push(suspect("the rest", around, None));
    } else if let Some((_, udp)) = both {
        suspects.push(suspect("the rest", udp, None));
    }
    (!suspects.is_empty()).then_some(suspects)
}

fn suspect(name: &str, with: &RttRow, without: Option<&RttRow>) -> RttSuspect {
    let label = |row: &RttRow| format!("{} {}", row.proto, row.mode);
    RttSuspect {
        suspect: name.to_owned(),
        with: label(with),
        without: without.map(label),
        adds: REPORTED_QUANTILES
            .into_iter()
            .filter_map(|q| added(q, with, without))
            .collect(),
    }
}

fn added(q: f64, with: &RttRow, without: Option<&RttRow>) -> Option<RttAdded> {
    let less = |a: Option<Nanos>, b: Option<Nanos>| Some(a?.get() as i64 - b?.get() as i64);
    let with = with.rtt.at(q)?;
    let zero = Some(Nanos::ZERO);
    let without = match without {
        Some(row) => *row.rtt.at(q)?,
        None => Quantile {
            q,
            value: zero,
            lo: zero,
            hi: zero,
        },
    };
    Some(RttAdded {
        q,
        ns: less(with.value, without.value)?,
        lo_ns: less(with.lo, without.hi),
        hi_ns: less(with.hi, without.lo),
    })
}

#[cfg(test)]
mod tests {
    use taillab_model::{Distribution, rtt::RttCounts};

    use super::*;

    fn row(proto: &str, mode: &str, each_ns: u64) -> RttRow {
        let lengths = vec![Nanos::new(each_ns); 3_000];
        RttRow {
            proto: proto.to_owned(),
            mode: mode.to_owned(),
            size_bytes: 64,
            conns: 1,
            counts: RttCounts::default(),
            rtt: Distribution::from_sorted(&lengths),
            runs: Vec::new(),
            trimmed: Vec::new(),
            worst_to_median: None,
            bursts: None,
            fan_out: Vec::new(),
            needs: Vec::new(),
            open_loop: None,
            explanation: None,
            unexplained_because: None,
            functional_only: None,
            xdp_attachment: None,
            ended_after_ns: None,
            partial: false,
            failure: None,
        }
    }

    #[test]
    fn each_suspect_is_what_its_row_has_beyond_the_next() {
        let rows = [
            row("tcp", "epoll", 90),
            row("tcp", "blocking", 50),
            row("udp", "blocking", 40),
            row("shm", "nonblocking", 3),
        ];
        let found = elimination(&rows);
        let [RttElimination { suspects, .. }] = found.as_slice() else {
            panic!("{found:?}")
        };
        let each: Vec<_> = (suspects.iter())
            .map(|suspect| (suspect.with.as_str(), suspect.adds[0].ns))
            .collect();
        assert_eq!(
            each,
            [
                ("tcp blocking", 10),
                ("udp blocking", 37),
                ("shm nonblocking", 3)
            ]
        );
        // what the sample does not support is not there
        assert!(suspects[0].adds.iter().all(|added| added.q < 0.9999));
        assert_eq!(suspects[0].adds[0].lo_ns, Some(10));
    }

    #[test]
    fn one_row_eliminates_nothing() {
        assert_eq!(elimination(&[row("tcp", "blocking", 50)]), []);
        assert_eq!(elimination(&[]), []);
        let two = [row("tcp", "blocking", 50), row("shm", "nonblocking", 3)];
        assert_eq!(elimination(&two)[0].suspects.len(), 2);
    }

    #[test]
    fn an_adapter_goes_around_the_kernel_unless_a_driver_does_its_work() {
        let mut rows = [
            row("udp", "blocking", 40),
            row("rdma-send", "nonblocking", 2),
            row("shm", "nonblocking", 3),
        ];
        let last = |rows: &[RttRow]| elimination(rows)[0].suspects.last().unwrap().with.clone();
        assert_eq!(last(&rows), "rdma-send nonblocking");
        rows[1].functional_only = Some("soft RoCE".to_owned());
        assert_eq!(last(&rows), "shm nonblocking");
    }
}
