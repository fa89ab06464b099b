//! `taillab budget` as root: every row of the paper is there, and says how it came about.

use crate::support::{live, schema, taillab};

/// The paper's tables.
const ROWS: [&str; 16] = [
    "TSC, user space",
    "TSC, kernel",
    "TSC, kernel early boot",
    "TSC, VM user space",
    "user space + OS, same core",
    "user space + OS, other core",
    "host",
    "host, NIC’s time stamps",
    "kernel bypass",
    "kernel bypass, AF_XDP",
    "kernel bypass, DPDK",
    "PCIe, 64 B",
    "PCIe, NIC’s clock",
    "PCIe, 1536 B",
    "client–server, UDP",
    "client–server, memcached",
];

#[test]
fn every_row_of_the_paper_is_there_and_says_how() {
    if !live("every_row_of_the_paper_is_there_and_says_how") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.toml");
    std::fs::write(&own, "name = \"own\"\nhops = 2\nfibre_m = 20\n").unwrap();
    let output = taillab()
        .args([
            "budget",
            "--json",
            "-q",
            "-d",
            "300ms",
            "--draws",
            "10000",
            "--topology",
        ])
        .arg(&own)
        .arg("-o")
        .arg(folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let result = schema::valid("budget", &output.stdout);
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["component"].as_str())
        .collect();
    assert_eq!(names, ROWS);
    for row in rows {
        let unavailable = row["standing"] == "unavailable";
        assert_eq!(row["latency"].is_null(), unavailable, "{row:#}");
        assert!(!row["how"].as_str().unwrap().is_empty(), "{row:#}");
    }
    // what this test's machine has anyway: root, TAP, veth, two CPUs and AF_XDP
    let of = |name: &str| rows.iter().find(|row| row["component"] == name).unwrap();
    for name in [
        "user space + OS, same core",
        "host",
        "kernel bypass",
        "kernel bypass, AF_XDP",
        "client–server, UDP",
    ] {
        assert!(
            of(name)["latency"]["count"].as_u64() > Some(10),
            "{:#}",
            of(name)
        );
    }
    let networks = result["topologies"].as_array().unwrap();
    let names: Vec<&str> = networks
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["rack", "hft", "fat-tree", "large-fat-tree", "own"]);
    assert!(folder.path().join("budget.html").exists());
}
