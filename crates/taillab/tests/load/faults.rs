//! Servers that misbehave: everything counted by its kind, no hang, a report at the end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::support::{number, run};

/// Bytes of an echo's request and of its answer.
const SIZE: usize = 128;

/// The address of a server that runs `treat` for each connection; it lives as long as the test binary.
fn server(treat: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let treat = treat.clone();
            thread::spawn(move || treat(stream));
        }
    });
    address
}

/// Reads request after request and gives each to `answer`, until either side ends.
fn each_request(mut stream: TcpStream, mut answer: impl FnMut(&mut TcpStream, &[u8]) -> bool) {
    let mut request = [0; SIZE];
    while stream.read_exact(&mut request).is_ok() && answer(&mut stream, &request) {}
}

/// A short load of 200 requests per second with a short time-out.
fn load(target: &str) -> Value {
    let args = [
        "--json",
        "-q",
        "-R",
        "200",
        "-d",
        "500ms",
        "--warmup",
        "0",
        "-c",
        "4",
        "--timeout",
        "200ms",
        "--floor",
        "off",
    ];
    let ran = run(target, &args);
    // 4: nothing was answered well; 1: the server is gone
    assert!(matches!(ran.code, Some(0 | 1 | 4)), "{ran:?}");
    if ran.code == Some(1) {
        assert!(ran.stderr.contains("stopped answering"), "{ran:?}");
    }
    let result = ran.json();
    assert_eq!(result["verdict"]["valid"], ran.code == Some(0), "{result}");
    result
}

/// A load of which no percentile holds.
fn over_tcp(address: SocketAddr) -> Value {
    let result = measured_over_tcp(address);
    let median = &result["verdict"]["claims"][0];
    assert_eq!(
        (&median["claim"], &median["valid"]),
        (&"p50".into(), &false.into()),
        "{result}"
    );
    result
}

fn measured_over_tcp(address: SocketAddr) -> Value {
    load(&format!("echo+tcp://{address}"))
}

fn assert_counted(result: &Value, kind: &str) {
    let count = number(result, &format!("/load/errors/{kind}"));
    assert!(count > 0, "{kind}: {result}");
}

/// Requests that ended badly, and those that ended well.
fn bad_and_good(result: &Value) -> (u64, u64) {
    let kinds = ["timeouts", "send_errors", "lost_with_connection"];
    let failed = kinds
        .iter()
        .map(|kind| number(result, &format!("/load/errors/{kind}")))
        .sum();
    (failed, number(result, "/load/response_time/count"))
}

#[test]
fn a_server_that_never_answers() {
    let address = server(|stream| each_request(stream, |_, _| true));
    let result = over_tcp(address);
    assert_eq!(result["verdict"]["reasons"][0]["key"], "no_answer");
    assert_eq!(
        number(&result, "/load/errors/timeouts"),
        number(&result, "/load/requests"),
        "{result}"
    );
    assert_eq!(number(&result, "/load/response_time/count"), 0);
}

#[test]
fn a_server_that_closes_every_connection() {
    let address = server(|stream| {
        each_request(stream, |_, _| false);
    });
    let result = over_tcp(address);
    assert_counted(&result, "connections_closed");
    assert!(bad_and_good(&result).0 > 0, "{result}");
}

#[test]
fn a_server_that_closes_after_each_answer() {
    let address = server(|stream| {
        each_request(stream, |stream, request| {
            stream.write_all(request).unwrap();
            false
        });
    });
    // whether a request was on its way to a connection that closed is chance: the verdict may be either
    let result = measured_over_tcp(address);
    assert_counted(&result, "connections_closed");
    assert!(bad_and_good(&result).1 > 0, "{result}");
}

#[test]
fn a_server_that_resets_every_connection() {
    // closing with bytes unread makes the kernel send a reset
    let address = server(|stream| {
        let mut byte = [0];
        let _ = stream.peek(&mut byte);
    });
    let result = over_tcp(address);
    assert_counted(&result, "connections_reset");
    assert_eq!(number(&result, "/load/response_time/count"), 0, "{result}");
}

#[test]
fn a_server_that_answers_garbage() {
    let address = server(|stream| {
        each_request(stream, |stream, _| stream.write_all(&[0xff; SIZE]).is_ok());
    });
    let result = over_tcp(address);
    assert_counted(&result, "malformed_responses");
    assert_eq!(number(&result, "/load/response_time/count"), 0, "{result}");
}

#[test]
fn a_server_that_answers_half_and_stops() {
    let address = server(|stream| {
        each_request(stream, |stream, request| {
            stream.write_all(&request[..SIZE / 2]).is_ok()
        });
    });
    let result = over_tcp(address);
    let (bad, _) = bad_and_good(&result);
    assert!(
        bad + number(&result, "/load/errors/malformed_responses") > 0,
        "{result}"
    );
}

#[test]
fn a_server_that_answers_half_and_closes() {
    let address = server(|stream| {
        each_request(stream, |stream, request| {
            stream.write_all(&request[..SIZE / 2]).unwrap();
            false
        });
    });
    let result = over_tcp(address);
    assert_counted(&result, "lost_with_connection");
    assert_eq!(number(&result, "/load/response_time/count"), 0);
}

#[test]
fn a_server_that_answers_everything_twice() {
    let address = server(|stream| {
        each_request(stream, |stream, request| {
            stream.write_all(request).is_ok() && stream.write_all(request).is_ok()
        });
    });
    let result = over_tcp(address);
    let unasked = number(&result, "/load/errors/unexpected_responses")
        + number(&result, "/load/errors/malformed_responses");
    assert!(unasked > 0, "{result}");
}

#[test]
fn a_server_that_listens_no_more() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            // lets the client's four connections in, and goes away
            let streams: Vec<_> = listener.incoming().flatten().take(4).collect();
            thread::sleep(Duration::from_millis(100));
            drop((streams, listener));
        });
        address
    };
    let args = [
        "--json",
        "-q",
        "-R",
        "200",
        "-d",
        "30s",
        "--warmup",
        "0",
        "-c",
        "4",
        "--timeout",
        "200ms",
        "--floor",
        "off",
    ];
    let ran = run(&format!("echo+tcp://{address}"), &args);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("stopped answering"), "{ran:?}");
    assert_eq!(ran.json()["partial"], true);
}

/// An overload is a result: it fails only limits on its latency.
#[test]
fn a_server_that_does_not_keep_up_has_a_result() {
    // four connections with an answer in 5 ms each: 800 per second of the 4,000 that are due, so many that each fifth of
    // them takes longer than the one before also where the generator is held up
    let address = server(|stream| {
        each_request(stream, |stream, request| {
            thread::sleep(Duration::from_millis(5));
            stream.write_all(request).is_ok()
        });
    });
    for (limits, code) in [
        (&[][..], 0),
        (&["--assert", "errors<=1%"][..], 0),
        (&["--assert", "p50<=1h"][..], 3),
    ] {
        let args = [
            "--json",
            "-q",
            "-R",
            "4000",
            "-d",
            "500ms",
            "--warmup",
            "0",
            "-c",
            "4",
            "--timeout",
            "30s",
            "--floor",
            "off",
        ];
        let ran = run(
            &format!("echo+tcp://{address}"),
            &[&args[..], limits].concat(),
        );
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let result = ran.json();
        let first = &result["verdict"]["warnings"][0];
        assert_eq!(first["key"], "growing", "{result}");
        let median = &result["load"]["response_time"]["quantiles"][0];
        assert!(median["value"].as_u64().is_some(), "{result}");
        assert_eq!(result["verdict"]["claims"][0]["valid"], true, "{result}");
    }
}

#[test]
fn datagrams_out_of_order_are_no_error_and_doubled_ones_are() {
    let answer = |twice: bool, backwards: bool| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut held: Vec<(Vec<u8>, SocketAddr)> = Vec::new();
            let mut bytes = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut bytes) {
                held.push((bytes[..n].to_vec(), from));
                if backwards && held.len() < 2 {
                    continue;
                }
                for (answer, to) in held.drain(..).rev() {
                    for _ in 0..=usize::from(twice) {
                        socket.send_to(&answer, to).unwrap();
                    }
                }
            }
        });
        address
    };
    let backwards = answer(false, true);
    let args = [
        "--json",
        "-q",
        "-R",
        "400",
        "-d",
        "500ms",
        "--warmup",
        "0",
        "-c",
        "1",
        "--floor",
        "off",
        "--timeout",
        "3s",
    ];
    let result = run(&format!("echo+udp://{backwards}"), &args).json();
    assert_eq!(
        number(&result, "/load/errors/unexpected_responses"),
        0,
        "{result}"
    );
    // the last one may wait for a partner that never comes
    assert!(number(&result, "/load/errors/timeouts") <= 1, "{result}");
    let doubled = load(&format!("echo+udp://{}", answer(true, false)));
    assert!(
        number(&doubled, "/load/errors/unexpected_responses") > 0,
        "{doubled}"
    );
}

/// The address of a server that answers everything with these bytes.
fn says(bytes: &'static [u8]) -> SocketAddr {
    server(move |mut stream| {
        let mut some = [0; 4096];
        while stream.read(&mut some).is_ok_and(|n| n > 0) && stream.write_all(bytes).is_ok() {}
    })
}

#[test]
fn a_missing_page_is_named_with_what_the_server_said() {
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    let result = load(&format!("http://{}/nowhere", says(missing)));
    assert_eq!(result["verdict"]["reasons"][0]["key"], "no_answer");
    let warnings = result["verdict"]["warnings"].as_array().unwrap();
    let errors = warnings
        .iter()
        .find(|warning| warning["key"] == "errors")
        .unwrap();
    let text = errors["text"].as_str().unwrap();
    assert!(
        text.contains("HTTP/1.1 404 Not Found") && text.contains("check the path"),
        "{text}"
    );
    assert_eq!(
        result["generator"]["wrong_answer"],
        "HTTP/1.1 404 Not Found"
    );
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    for scheme in ["redis", "memcached+tcp"] {
        let ran = run(
            &format!("{scheme}://{}", says(http)),
            &["-R", "200", "-d", "500ms"],
        );
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("this port speaks HTTP"), "{ran:?}");
        assert!(!ran.stderr.contains("memcached: -"), "{ran:?}");
    }
}
