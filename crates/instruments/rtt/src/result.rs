//! The result of `taillab rtt` as `--json` carries it: a row for each combination of protocol, mode, size and
//! connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taillab_model::rtt::{Link, RttCurves, RttElimination, RttRow, XdpAttachment};
use taillab_report::figures;

/// Version of the shape of [`RttResult`].
pub const SCHEMA_VERSION: u32 = 1;

/// The command that writes it.
pub const COMMAND: &str = "rtt";

/// What `taillab rtt` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttResult {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// The command that wrote this: [`COMMAND`].
    #[schemars(extend("const" = COMMAND))]
    pub command: String,
    /// Start of the first row, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// It was interrupted, or a row failed: rows are missing or short.
    pub partial: bool,
    /// What is between client and server.
    pub link: Link,
    /// Who answered: `taillab`, or the target as it was given, with the address that a name stands for.
    pub server: String,
    /// CPUs of the client's threads.
    pub client_cpus: Vec<u32>,
    /// CPUs of the server's threads; empty where the server is not ours.
    pub server_cpus: Vec<u32>,
    /// Round trips measured in each run; those of the warm-up before are not counted.
    pub count: u64,
    /// Runs planned for each row.
    pub runs: u32,
    /// One for each combination, in the order of the command line.
    pub rows: Vec<RttRow>,
    /// What TCP, the kernel's stack and the rest each add, where there are rows that differ in nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elimination: Vec<RttElimination>,
}

/// The result and the curves of its rows.
#[derive(Clone, Copy, Debug)]
pub struct RttReport<'a> {
    /// The result.
    pub result: &'a RttResult,
    /// Of each row, in the same order.
    pub curves: &'a [RttCurves],
}

impl RttReport<'_> {
    /// Where the messages went, in a few words.
    pub(crate) fn way(&self) -> String {
        let RttResult { server, link, .. } = self.result;
        match link {
            Link::Loopback => format!("{server}, on this host"),
            Link::Veth => format!("{server}, between two namespaces joined by veth"),
            Link::Target => server.clone(),
        }
    }

    /// `3 runs of 20,000 round trips`.
    pub(crate) fn sample(&self) -> String {
        let result = self.result;
        let runs = figures::counted(u64::from(result.runs), "run", "runs");
        let each = figures::counted(result.count, "round trip", "round trips");
        format!("{runs} of {each}")
    }

    /// `client on CPU 1, server on CPUs 2,3`.
    pub(crate) fn cpus(&self) -> String {
        let list = |cpus: &[u32]| {
            let plural = if cpus.len() == 1 { "" } else { "s" };
            format!("CPU{plural} {}", ranges(cpus))
        };
        let client = format!("client on {}", list(&self.result.client_cpus));
        match self.result.server_cpus.as_slice() {
            [] => client,
            server => format!("{client}, server on {}", list(server)),
        }
    }

    /// The mode of AF_XDP, if any row is of it.
    pub(crate) fn af_xdp(&self) -> Option<&'static str> {
        let rows = self.result.rows.iter();
        let attachment = rows.filter_map(|row| row.xdp_attachment).max()?;
        Some(match attachment {
            XdpAttachment::Native => "native mode: the driver itself hands over each packet",
            XdpAttachment::Generic => {
                "generic mode (SKB): the driver refused its own, as veth does with a large --mtu, \
                 so the kernel makes a socket buffer for each packet first"
            }
        })
    }
}

/// `2,3` or `0-15,20`: three or more in sequence are a range.
fn ranges(cpus: &[u32]) -> String {
    let in_sequence = cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let parts: Vec<String> = in_sequence
        .flat_map(|cpus| match cpus {
            [first, _, .., last] => vec![format!("{first}-{last}")],
            few => few.iter().map(u32::to_string).collect(),
        })
        .collect();
    parts.join(",")
}

/// The row in the names of its files: `tcp-blocking-1024-2`.
pub fn file_name(row: &RttRow) -> String {
    format!(
        "{}-{}-{}-{}",
        row.proto, row.mode, row.size_bytes, row.conns
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_cpus_are_named_in_ranges_and_few_one_by_one() {
        let all: Vec<u32> = (0..64).collect();
        assert_eq!(ranges(&all), "0-63");
        assert_eq!(ranges(&[1]), "1");
        assert_eq!(ranges(&[2, 3]), "2,3");
        assert_eq!(ranges(&[0, 2, 3, 6, 7, 8, 200]), "0,2,3,6-8,200");
    }

    #[test]
    fn the_mode_of_af_xdp_is_said_where_it_is_used() {
        let several = include_str!("screens/rtt-several.json");
        let mut result: RttResult = serde_json::from_str(several).unwrap();
        let mode = |result: &RttResult| {
            RttReport {
                result,
                curves: &[],
            }
            .af_xdp()
        };
        assert_eq!(mode(&result), None);
        result.rows[0].xdp_attachment = Some(XdpAttachment::Native);
        assert!(mode(&result).unwrap().starts_with("native mode"));
        result.rows[1].xdp_attachment = Some(XdpAttachment::Generic);
        assert!(mode(&result).unwrap().starts_with("generic mode"));
    }
}
