//! What any load generator really sends: the arrivals at a port, as the kernel stamps them when
//! the device passes them on.
//!
//! `wire_watch --device lo --port 11311 --seconds 10 [--tcp | --udp] [--rate R] [--together]` prints
//! one JSON object. Without `--rate` the exponential distribution has the mean of the gaps seen.
//! `lateness_ns` is, for each connection, the time after the constant-rate schedule that fits it
//! best from below; it is null unless every connection sends at a constant rate. With `--together`
//! all connections have one schedule. Needs CAP_NET_RAW.

mod capture;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use capture::{Capture, Layer4, Packet};
use taillab_load::{SHORTEST_WINDOW, arrivals_verdict};
use taillab_model::Monotonic;

const USAGE: &str = "usage: wire_watch --device NAME --port N [--seconds S] [--tcp | --udp] [--rate R] [--together]";

/// Whether a connection's rate is constant is judged by its sends in windows of this many mean gaps:
/// their index of dispersion must be below the second number (Poisson: 1).
const CONSTANT_WINDOW_GAPS: f64 = 20.0;
const CONSTANT_DISPERSION: f64 = 0.3;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut device, mut port, mut seconds, mut rate) = (None, None, 10.0, None);
    let mut layer4 = Layer4::Tcp;
    let mut together = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--device" => device = Some(value()?),
            "--port" => port = Some(value()?.parse()?),
            "--seconds" => seconds = value()?.parse()?,
            "--rate" => rate = Some(value()?.parse()?),
            "--tcp" => layer4 = Layer4::Tcp,
            "--udp" => layer4 = Layer4::Udp,
            "--together" => together = true,
            _ => return Err(USAGE.into()),
        }
    }
    let device = device.ok_or(USAGE)?;
    let mut capture = Capture::open(&device, port.ok_or(USAGE)?, layer4).map_err(|e| {
        format!("cannot watch {device}: {e}; it needs root and a device that exists")
    })?;
    let mut packets = capture.collect(Duration::from_secs_f64(seconds));
    packets.sort_by_key(|packet| packet.at_ns);
    if layer4 == Layer4::Tcp {
        drop_repeats(&mut packets);
    }
    println!("{}", summary(&packets, rate, together, capture.dropped()?)?);
    Ok(())
}

/// A retransmitted segment is not a request.
fn drop_repeats(packets: &mut Vec<Packet>) {
    let mut last = BTreeMap::new();
    packets.retain(|p| last.insert(p.source_port, p.sequence) != Some(p.sequence));
}

fn summary(
    packets: &[Packet],
    rate: Option<f64>,
    together: bool,
    dropped: u32,
) -> Result<String, Box<dyn Error>> {
    let ports: BTreeSet<u16> = packets.iter().map(|p| p.source_port).collect();
    let mut schedules: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for packet in packets {
        schedules
            .entry(if together { 0 } else { packet.source_port })
            .or_default()
            .push(packet.at_ns);
    }
    let (Some(first), Some(last)) = (packets.first(), packets.last()) else {
        return Err("no request seen: check device, port and --udp or --tcp".into());
    };
    let seen = (packets.len() - 1) as f64 / ((last.at_ns - first.at_ns).max(1) as f64 / 1e9);
    let rate = rate.unwrap_or(seen);
    let times = packets
        .iter()
        .map(|p| Monotonic::from_nanos_since_boot(p.at_ns));
    let verdict = arrivals_verdict(times, rate, SHORTEST_WINDOW)?;
    let idc: Vec<_> = verdict
        .idc
        .iter()
        .map(|at| {
            let value = at.value.map_or("null".to_owned(), |v| format!("{v:.4}"));
            format!(r#"{{"window_ns":{},"value":{value}}}"#, at.window_ns.get())
        })
        .collect();
    let lateness = lateness(schedules.values()).map_or("null".to_owned(), |late| {
        let at = |q: f64| late[((late.len() as f64 * q) as usize).min(late.len() - 1)];
        format!(
            r#"{{"p50":{},"p99":{},"p999":{},"max":{}}}"#,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        )
    });
    Ok(format!(
        r#"{{"requests":{},"connections":{},"dropped":{dropped},"rate_per_s":{seen:.1},"wanted_rate_per_s":{rate:.1},"cv":{:.4},"ks_d":{:.5},"ks_n":{},"ks_critical":{:.5},"idc":[{}],"lateness_ns":{lateness}}}"#,
        packets.len(),
        ports.len(),
        verdict.cv,
        verdict.ks_d,
        packets.len() - 1,
        verdict.ks_critical,
        idc.join(",")
    ))
}

/// How late each send is, sorted; `None` if a connection's rate is not constant.
fn lateness<'a>(connections: impl Iterator<Item = &'a Vec<u64>>) -> Option<Vec<u64>> {
    let mut late = Vec::new();
    for sent_ns in connections.filter(|sent| sent.len() > 1) {
        if !is_constant(sent_ns) {
            return None;
        }
        late.extend(behind_best_schedule(sent_ns));
    }
    late.sort_unstable();
    (!late.is_empty()).then_some(late)
}

/// Whether the counts in windows of [`CONSTANT_WINDOW_GAPS`] mean gaps are nearly equal.
fn is_constant(sent_ns: &[u64]) -> bool {
    let (first, last) = (sent_ns[0], sent_ns[sent_ns.len() - 1]);
    let mean_gap_ns = (last - first) as f64 / (sent_ns.len() - 1) as f64;
    let windows = ((last - first) as f64 / (mean_gap_ns * CONSTANT_WINDOW_GAPS)) as usize;
    if windows < 3 {
        return false;
    }
    let mut counts = vec![0.0_f64; windows];
    for at in sent_ns {
        let window = (at - first) as f64 / (mean_gap_ns * CONSTANT_WINDOW_GAPS);
        if let Some(count) = counts.get_mut(window as usize) {
            *count += 1.0;
        }
    }
    let n = windows as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (n - 1.0);
    variance / mean < CONSTANT_DISPERSION
}

/// Each time minus the line a + b·i that lies below all times and whose summed distance
/// to them is smallest.
///
/// That line runs along the edge of the lower convex hull of the points (i, time) that
/// lies below the mean of all i (duality: at the mean the line must be as high as can be).
fn behind_best_schedule(sent_ns: &[u64]) -> Vec<u64> {
    let from = sent_ns[0];
    let time = |i: usize| (sent_ns[i] - from) as f64;
    let mut hull: Vec<usize> = Vec::new();
    for i in 0..sent_ns.len() {
        while let [.., a, b] = hull[..] {
            // b is not below the line from a to i
            let turns =
                (time(b) - time(a)) * (i - a) as f64 >= (time(i) - time(a)) * (b - a) as f64;
            if !turns {
                break;
            }
            hull.pop();
        }
        hull.push(i);
    }
    let middle = (sent_ns.len() - 1) as f64 / 2.0;
    let right = hull.partition_point(|&i| (i as f64) < middle).max(1);
    let (a, b) = (hull[right - 1], hull[right]);
    let period = (time(b) - time(a)) / (b - a) as f64;
    (0..sent_ns.len())
        .map(|i| (time(i) - time(a) - period * (i as f64 - a as f64)).max(0.0) as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_over_a_constant_schedule_are_found() {
        let delays = [300, 0, 5_000, 100, 0, 70, 0, 900, 0, 20];
        let sent: Vec<u64> = (0..1000)
            .map(|i| 7_000_000 + i * 100_000 + delays[i as usize % 10])
            .collect();
        assert!(is_constant(&sent));
        let late = behind_best_schedule(&sent);
        for (i, late) in late.iter().enumerate() {
            assert!(late.abs_diff(delays[i % 10]) <= 1, "{i}: {late}");
        }
    }

    #[test]
    fn random_gaps_are_not_constant() {
        // most gaps are 1 µs, one in eight is 900 µs, in a scrambled order: far from constant counts
        let mut at = 0;
        let sent: Vec<u64> = (0..2000_u64)
            .map(|i| {
                let scrambled = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
                at += if scrambled < 900 { 1_000 } else { 900_000 };
                at
            })
            .collect();
        assert!(!is_constant(&sent));
        assert_eq!(lateness([sent].iter()), None);
    }
}
