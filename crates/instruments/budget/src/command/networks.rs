//! The networks of the paper: how many switches and how much fibre lie between two hosts.
//!
//! The paper draws them and gives no table. These are common values; each is shown with the result, and a
//! topology file can change them.

use serde::Deserialize;
use taillab_model::Nanos;
use taillab_queueing::service::Service;

/// One traversal of a cut-through switch of 2016 or later, without queueing.
pub const SWITCH: &str = "deterministic:500ns";
/// The fastest switch that can be bought, as exchanges use it.
const FAST_SWITCH: &str = "deterministic:300ns";
/// One traversal of a NIC and its bus: half of the paper's median of kernel bypass (0.94 µs),
/// which goes through a card and back.
pub const NIC: &str = "deterministic:470ns";
/// The time that light takes in glass.
const NS_PER_METRE: f64 = 5.0;

/// The largest of the paper's networks.
pub const LARGE: &str = "large-fat-tree";

/// Which rows stand for the two hosts and the program on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hosts {
    /// Client and server through their kernels.
    #[default]
    Kernel,
    /// With kernel bypass.
    Bypass,
}

/// What lies between two hosts, one way.
#[derive(Clone, Debug)]
pub struct Network {
    pub name: String,
    pub description: String,
    /// The number of switches.
    pub hops: u32,
    /// The law of one traversal of a switch, and its notation.
    pub switch: (Service, String),
    /// The time in all the fibre, one way.
    pub fibre: Nanos,
    /// The law of one traversal of a NIC, and its notation.
    pub nic: (Service, String),
    pub hosts: Hosts,
}

/// What lies between the hosts, in a line.
pub fn describe(what: &str, hops: u32, metres: f64) -> String {
    let switches = if hops == 1 { "switch" } else { "switches" };
    format!("{what}: {hops} {switches} and {metres} m of fibre, one way")
}

/// The time that light takes through this length of fibre.
pub fn fibre(metres: f64) -> Nanos {
    Nanos::new((metres * NS_PER_METRE).round() as u64)
}

/// The four networks of the paper.
pub fn of_the_paper() -> Vec<Network> {
    let all = [
        ("rack", 1, 6.0, "two servers of a rack"),
        (
            "hft",
            1,
            30.0,
            "a trader next to an exchange, both with kernel bypass",
        ),
        ("fat-tree", 5, 100.0, "a fat tree of three levels"),
        (LARGE, 5, 1_000.0, "a large data centre, across halls"),
    ];
    let network = |(name, hops, metres, what): (&str, u32, f64, &str)| {
        let (switch, hosts) = match name {
            "hft" => (FAST_SWITCH, Hosts::Bypass),
            _ => (SWITCH, Hosts::Kernel),
        };
        let law = |text: &str| Some((text.parse::<Service>().ok()?, text.to_owned()));
        Some(Network {
            name: name.to_owned(),
            description: describe(what, hops, metres),
            hops,
            switch: law(switch)?,
            fibre: fibre(metres),
            nic: law(NIC)?,
            hosts,
        })
    };
    all.into_iter().filter_map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_are_there_and_a_metre_takes_five_nanoseconds() {
        let networks = of_the_paper();
        assert_eq!(networks.len(), 4);
        assert_eq!(fibre(100.0), Nanos::new(500));
        assert!(
            networks
                .iter()
                .all(|network| network.switch.0.check().is_ok())
        );
    }
}
