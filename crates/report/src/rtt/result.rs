//! The result of `taillab rtt` and the words of its rows.

use taillab_model::rtt::{Link, RttCurves, RttResult, RttRow};

use crate::figures;

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
            let names: Vec<String> = cpus.iter().map(u32::to_string).collect();
            let plural = if names.len() == 1 { "" } else { "s" };
            format!("CPU{plural} {}", names.join(","))
        };
        let client = format!("client on {}", list(&self.result.client_cpus));
        match self.result.server_cpus.as_slice() {
            [] => client,
            server => format!("{client}, server on {}", list(server)),
        }
    }
}

/// `tcp blocking 1K ×2`: the row among others.
pub fn label(row: &RttRow) -> String {
    let conns = match row.conns {
        1 => String::new(),
        n => format!(" ×{n}"),
    };
    format!("{} {} {}{conns}", row.proto, row.mode, size(row.size_bytes))
}

/// The row in the names of its files: `tcp-blocking-1024-2`.
pub fn file_name(row: &RttRow) -> String {
    format!(
        "{}-{}-{}-{}",
        row.proto, row.mode, row.size_bytes, row.conns
    )
}

/// `64`, `1K`, `512K`, as on the command line.
pub fn size(bytes: u32) -> String {
    match bytes {
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}
