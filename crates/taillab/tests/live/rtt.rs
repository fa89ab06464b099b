//! `taillab rtt` between two namespaces: the protocols that need root.

use serde_json::Value;

use crate::support::{Machine, live, taillab};

/// Short, because each row makes its sockets anew.
const SHORT: [&str; 7] = ["--count", "500", "--runs", "3", "--warmup", "50", "--json"];

fn rtt(args: &[&str]) -> (Option<i32>, Value, String) {
    let output = taillab()
        .arg("rtt")
        .args(args)
        .args(SHORT)
        .output()
        .unwrap();
    let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), result, errors)
}

fn answered(result: &Value) -> Vec<u64> {
    let rows = result["rows"].as_array().unwrap();
    let of = |row: &Value| row["counts"]["answered"].as_u64().unwrap();
    rows.iter().map(of).collect()
}

#[test]
fn sockets_and_af_xdp_between_two_namespaces() {
    if !live("sockets_and_af_xdp_between_two_namespaces") {
        return;
    }
    let before = Machine::now();
    let (code, result, errors) = rtt(&[
        "--link",
        "veth",
        "--proto",
        "tcp,udp",
        "--mode",
        "blocking,busy-poll",
        "--size",
        "64,1472",
    ]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(answered(&result), [1_500; 8]);
    // the first queue is released and taken again for every run
    let (code, result, errors) = rtt(&[
        "--link",
        "veth",
        "--proto",
        "xdp",
        "--mode",
        "nonblocking,blocking",
        "--size",
        "64,1472",
        "--conns",
        "1,3",
    ]);
    assert_eq!(code, Some(0), "{errors}");
    for row in result["rows"].as_array().unwrap() {
        let count = |key: &str| row["counts"][key].as_u64().unwrap();
        assert_eq!(count("sent"), 1_500, "{row}");
        assert_eq!(count("answered") + count("lost"), 1_500, "{row}");
        assert_eq!(count("foreign"), 0, "{row}");
    }
    assert_eq!(result["rows"].as_array().unwrap().len(), 8);
    assert_eq!(Machine::now(), before);
}

#[test]
fn what_the_path_or_the_driver_cannot_is_refused_with_its_remedy() {
    if !live("what_the_path_or_the_driver_cannot_is_refused_with_its_remedy") {
        return;
    }
    for (args, code, part) in [
        (&["--proto", "udp", "--size", "1473"][..], 1, "(1472 bytes)"),
        (
            &["--proto", "xdp", "--mode", "nonblocking", "--size", "1473"],
            1,
            "(1472 bytes)",
        ),
        (
            &[
                "--proto",
                "xdp",
                "--mode",
                "nonblocking",
                "--xdp",
                "zero-copy",
            ],
            5,
            "--xdp copy",
        ),
    ] {
        let all: Vec<&str> = ["--link", "veth"].iter().chain(args).copied().collect();
        let (found, result, errors) = rtt(&all);
        assert_eq!(
            (found, &result),
            (Some(code), &Value::Null),
            "{args:?}: {errors}"
        );
        assert!(errors.contains(part), "{args:?}: {errors}");
    }
}
