//! Round trips through networks, by the measured rows and stated constants.

use taillab_analysis::statistics::ccdf;
use taillab_model::Nanos;
use taillab_queueing::service::Service;

use super::networks::{Hosts, LARGE, Network, of_the_paper};
use super::row::Row;
use crate::network::{Part, round_trip};
use crate::result::{Class, EarlierRow, Topology, TopologyPart};

/// The row of both hosts, their kernels and programs.
const KERNEL: &str = "client–server, UDP";
/// The row of both hosts without their kernels.
const BYPASS: &str = "kernel bypass";

/// The parts of a round trip.
const HOSTS: &str = "both hosts";
const NICS: &str = "NICs";
const SWITCHES: &str = "switches";
const FIBRE: &str = "fibre";

/// The paper's networks and the user's, and a sentence for each that is left out.
pub fn all(rows: &[Row], own: &[Network], draws: usize, seed: u64) -> (Vec<Topology>, Vec<String>) {
    let mut topologies = Vec::new();
    let mut notes = Vec::new();
    for network in of_the_paper().iter().chain(own) {
        match one(rows, network, draws, seed) {
            Ok(topology) => topologies.push(topology),
            Err(why) => notes.push(format!("the network {} is left out: {why}", network.name)),
        }
    }
    (topologies, notes)
}

fn one(rows: &[Row], network: &Network, draws: usize, seed: u64) -> Result<Topology, String> {
    let wanted = match network.hosts {
        Hosts::Kernel => KERNEL,
        Hosts::Bypass => BYPASS,
    };
    let row = (rows.iter())
        .find(|row| row.name() == wanted && !row.samples().is_empty())
        .ok_or_else(|| format!("it needs the row “{wanted}”, which is not available"))?;
    let hosts = Service::empirical(row.samples().to_vec()).map_err(|error| error.to_string())?;
    let part = |name: &str, traversals, law: &Service| Part {
        name: name.to_owned(),
        traversals,
        law: law.clone(),
    };
    let parts = [
        part(HOSTS, 1, &hosts),
        part(NICS, 4, &network.nic.0),
        part(SWITCHES, 2 * network.hops, &network.switch.0),
        part(FIBRE, 2, &Service::deterministic(network.fibre)),
    ];
    let laws = [
        format!("the row “{wanted}”"),
        format!("{} (stated)", network.nic.1),
        format!("{} (stated)", network.switch.1),
        format!("{} one way, at 5 ns/m (stated)", network.fibre),
    ];
    let sum = round_trip(&parts, draws, seed).map_err(|error| error.to_string())?;
    let whole = |ns: f64| Nanos::new(ns.round() as u64);
    let shown = (parts.iter().zip(laws)).zip(&sum.contributions);
    Ok(Topology {
        name: network.name.clone(),
        description: network.description.clone(),
        class_of_median: sum.total.quantile(0.5).map(Class::of),
        class_of_p999: sum.total.quantile(0.999).map(Class::of),
        round_trip: sum.total.clone(),
        ccdf: (ccdf(&sum.sorted).into_iter())
            .map(|(ns, share)| (ns.get(), share))
            .collect(),
        parts: shown
            .map(|((part, law), found)| TopologyPart {
                name: part.name.clone(),
                measured: part.name == HOSTS,
                traversals: part.traversals,
                law,
                at_median_ns: whole(found.at_median_ns),
                in_tail_ns: whole(found.in_tail_ns),
            })
            .collect(),
    })
}

/// The table of the earlier study (Rumble et al., *It's Time for Low Latency*, 2011) with which the
/// paper begins, and today's figures: for one traversal, and for the median round trip through the
/// large fat tree, the network of the study.
pub fn earlier(rows: &[Row], topologies: &[Topology]) -> Vec<EarlierRow> {
    let median = |component: &str| -> Option<Nanos> {
        let row = rows.iter().find(|row| row.name() == component)?;
        row.latency()?.quantile(0.5)
    };
    // a round trip passes through an operating system four times
    let stack = median(KERNEL).map(|whole| Nanos::new(whole.get() / 4));
    let known =
        |found: Option<Nanos>| found.map_or_else(|| "not measured".into(), |ns| ns.to_string());
    let network = topologies.iter().find(|one| one.name == LARGE);
    let round_trip = |part: &str| {
        let part = network.and_then(|one| one.parts.iter().find(|other| other.name == part));
        known(part.map(|part| part.at_median_ns))
    };
    let row = |component: &str, [delay, whole]: [&str; 2], today: String, part, source: &str| {
        EarlierRow {
            component: component.to_owned(),
            delay_2011: delay.to_owned(),
            round_trip_2011: whole.to_owned(),
            today,
            round_trip_today: round_trip(part),
            source: source.to_owned(),
        }
    };
    vec![
        row(
            "network switch",
            ["10–30 µs", "100–300 µs"],
            "500 ns".into(),
            SWITCHES,
            "stated: cut-through, no queueing",
        ),
        row(
            "network interface card",
            ["2.5–32 µs", "10–128 µs"],
            "470 ns".into(),
            NICS,
            "stated: half of the paper’s kernel bypass",
        ),
        row(
            "OS network stack",
            ["15 µs", "60 µs"],
            known(stack),
            HOSTS,
            "measured: a quarter of the median round trip over UDP, programs included",
        ),
        row(
            "speed of light (fibre)",
            ["5 ns/m", "0.6–1.2 µs"],
            "5 ns/m".into(),
            FIBRE,
            "physics; 1,000 m one way",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::row::Component;

    use crate::result::Standing;

    fn hosts(component: &'static str, us: u64) -> Row {
        let row = Component::new(component, Standing::Measured, "", None);
        row.measured(Ok::<_, String>(vec![Nanos::from_micros(us); 50]))
    }

    #[test]
    fn constants_add_up_exactly() {
        let rows = [hosts(KERNEL, 20), hosts(BYPASS, 1)];
        let (topologies, notes) = all(&rows, &[], 20_000, 1);
        assert!(notes.is_empty());
        let whole: Vec<u64> = (topologies.iter())
            .map(|one| one.round_trip.max.unwrap().get())
            .collect();
        // hosts + 4 · 470 ns + 2 · hops · switch + 2 · fibre
        assert_eq!(
            whole,
            [
                20_000 + 1_880 + 1_000 + 60,
                1_000 + 1_880 + 600 + 300,
                20_000 + 1_880 + 5_000 + 1_000,
                20_000 + 1_880 + 5_000 + 10_000,
            ]
        );
        for topology in &topologies {
            let sum: Nanos = topology.parts.iter().map(|part| part.at_median_ns).sum();
            assert_eq!(Some(sum), topology.round_trip.max);
        }
        assert_eq!(topologies[1].class_of_median, Some(Class::Bad));
        // 2 · 5 switches, 4 NICs, the hosts, and 2 km of fibre
        let today = earlier(&rows, &topologies);
        let whole: Vec<&str> = today
            .iter()
            .map(|row| row.round_trip_today.as_str())
            .collect();
        assert_eq!(whole, ["5.00 µs", "1.88 µs", "20.0 µs", "10.0 µs"]);
    }

    #[test]
    fn without_a_row_its_networks_are_left_out_and_named() {
        let (topologies, notes) = all(&[hosts(BYPASS, 1)], &[], 10_000, 1);
        assert_eq!(topologies.len(), 1);
        assert_eq!(notes.len(), 3);
        assert!(notes[0].contains("rack") && notes[0].contains(KERNEL));
        let unknown = &earlier(&[], &topologies)[2];
        assert_eq!(unknown.today, "not measured");
        assert_eq!(unknown.round_trip_today, "not measured");
    }
}
