//! A topology of the user's own, from a TOML file.

use std::path::Path;

use serde::Deserialize;
use taillab_console::exit::Failure;
use taillab_queueing::service::Service;

use super::networks::{Hosts, Network, describe, fibre};

/// A network as it is written down.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default = "one")]
    hops: u32,
    #[serde(default = "switch")]
    switch: String,
    #[serde(default)]
    fibre_m: f64,
    #[serde(default = "nic")]
    nic: String,
    #[serde(default)]
    host: Hosts,
}

const fn one() -> u32 {
    1
}

fn switch() -> String {
    super::networks::SWITCH.to_owned()
}

fn nic() -> String {
    super::networks::NIC.to_owned()
}

/// Reads and checks a topology file.
pub fn read(path: &Path) -> Result<Network, Failure> {
    let wrong = |what: String| {
        Failure::usage(format!(
            "{}: {what}; see `taillab budget --help-all`",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<Network, String> {
    /// More hops or metres than any network has.
    const MOST_HOPS: u32 = 64;
    const MOST_METRES: f64 = 4e7;
    let written: Written =
        toml::from_str(text).map_err(|error| error.message().trim_end().replace('\n', ", "))?;
    if written.hops > MOST_HOPS {
        return Err(format!("hops must be at most {MOST_HOPS}"));
    }
    if !(0.0..=MOST_METRES).contains(&written.fibre_m) {
        return Err(format!("fibre_m must be from 0 to {MOST_METRES}"));
    }
    let law = |key: &str, text: &str| -> Result<Service, String> {
        let law: Service = text.parse().map_err(|error| format!("{key}: {error}"))?;
        law.check().map_err(|error| format!("{key}: {error}"))?;
        Ok(law)
    };
    Ok(Network {
        description: describe("from a file", written.hops, written.fibre_m),
        hops: written.hops,
        switch: (law("switch", &written.switch)?, written.switch),
        fibre: fibre(written.fibre_m),
        nic: (law("nic", &written.nic)?, written.nic),
        hosts: written.host,
        name: written.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::TOPOLOGY;
    use taillab_model::Nanos;

    #[test]
    fn the_example_of_the_help_is_a_topology() {
        // the words before it are no part of the file
        let (_, example) = TOPOLOGY.split_once(":\n").unwrap();
        let network = parse(example).unwrap();
        assert_eq!((network.name.as_str(), network.hops), ("two racks", 3));
        assert_eq!(network.fibre, Nanos::new(200));
        assert_eq!(network.hosts, Hosts::Kernel);
        let read: Written = toml::from_str(example).unwrap();
        assert_eq!(
            (read.switch.as_str(), read.nic.as_str()),
            ("lognormal:600ns,cv=0.2", "deterministic:470ns")
        );
    }

    #[test]
    fn what_is_left_out_has_a_default_and_what_is_wrong_is_named() {
        let network = parse("name = \"racks\"\nfibre_m = 40\nhops = 3\n").unwrap();
        assert_eq!((network.hops, network.hosts), (3, Hosts::Kernel));
        assert_eq!(network.fibre, Nanos::new(200));
        let own = parse("name = \"x\"\nswitch = \"lognormal:600ns,cv=0.2\"\nhost = \"bypass\"\n");
        let own = own.unwrap();
        assert_eq!(own.hosts, Hosts::Bypass);
        assert!((own.switch.0.mean_ns() - 600.0).abs() < 1.0);
        for (text, named) in [
            ("hops = 1", "name"),
            ("name = \"x\"\nfiber_m = 1", "fiber_m"),
            ("name = \"x\"\nfibre_m = -1", "fibre_m"),
            ("name = \"x\"\nhops = 65", "hops"),
            ("name = \"x\"\nswitch = \"fast\"", "switch"),
            ("name = \"x\"\nhost = \"magic\"", "magic"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
