use taillab_model::Operation;

use super::*;

fn done(bytes: usize) -> Decoded {
    Decoded::Answer {
        bytes,
        outcome: Outcome::Done,
    }
}

fn partial(at_least: usize) -> Decoded {
    Decoded::Partial { at_least }
}

#[test]
fn requests_are_what_servers_expect() {
    let mut workload = Resource::at("example.com:8080", "/a?b=c");
    workload.headers = vec![("User-Agent".into(), "taillab".into())];
    let mut http = Http::new(&workload).unwrap();
    let mut out = Vec::new();
    http.encode(Planned::new(Operation::Call, 0), 0, &mut out);
    let expected = "GET /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: taillab\r\n\r\n";
    assert_eq!(out, expected.as_bytes());
}

#[test]
fn a_request_can_have_any_size_from_the_smallest_on() {
    let base = Resource::at("10.0.0.1", "/index.html");
    let smallest = Http::new(&base).unwrap().sizes().request_bytes;
    assert_eq!(
        smallest,
        "GET /index.html HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n".len()
    );
    for bytes in smallest..smallest + 60 {
        let mut http = Http::new(&Resource {
            request_bytes: Some(bytes),
            ..base.clone()
        })
        .unwrap();
        let mut out = Vec::new();
        http.encode(Planned::new(Operation::Call, 0), 0, &mut out);
        assert_eq!(out.len(), bytes);
        assert!(out.starts_with(b"GET /index.html HTTP/1.1\r\nHost: "));
        // one request, which ends with its head
        let end = memchr::memmem::find(&out, b"\r\n\r\n").unwrap();
        assert_eq!(end + 4, bytes);
    }
    for bytes in [0, smallest - 1, MAX_REQUEST_BYTES + 1] {
        let error = Http::new(&Resource {
            request_bytes: Some(bytes),
            ..base.clone()
        })
        .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&smallest.to_string()), "{text}");
    }
    // no size would do
    let long = Resource {
        headers: vec![("X-Long".into(), "v".repeat(MAX_REQUEST_BYTES))],
        ..base
    };
    let text = Http::new(&long).unwrap_err().to_string();
    assert!(text.contains("headers cannot have"), "{text}");
    assert!(text.contains("between 0 and 65536"), "{text}");
}

#[test]
fn texts_that_would_break_the_request_are_refused() {
    let with = |change: &dyn Fn(&mut Resource)| {
        let mut w = Resource::at("a", "/");
        change(&mut w);
        Http::new(&w)
    };
    assert!(with(&|_| {}).is_ok());
    assert!(with(&|w| w.host = "a\r\nX: y".into()).is_err());
    assert!(with(&|w| w.host.clear()).is_err());
    for path in ["", "index.html", "/a b", "/a\r\n", "/é"] {
        assert!(with(&|w| w.path = path.into()).is_err(), "{path}");
    }
    for (name, value) in [
        ("", "v"),
        ("a b", "v"),
        ("a:", "v"),
        ("A", "v\r\nB: w"),
        ("host", "v"),
        ("Content-length", "3"),
    ] {
        assert!(with(&|w| w.headers = vec![(name.into(), value.into())]).is_err());
    }
}

#[test]
fn a_length_says_where_an_answer_ends() {
    let answer = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH:  3 \r\n\r\nabcHTTP/1.1";
    let end = answer.len() - 8;
    assert_eq!(decode(answer), done(end));
    assert_eq!(decode(&answer[..end]), done(end));
    assert_eq!(decode(&answer[..end - 2]), partial(end));
    assert_eq!(decode(b""), partial(16));
    assert_eq!(decode(&answer[..17]), partial(19));
    let empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(decode(empty), done(empty.len()));
    let same = b"HTTP/1.1 200\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(decode(same), done(same.len()));
}

#[test]
fn some_statuses_have_no_body_and_some_are_not_the_answer() {
    for none in [
        &b"HTTP/1.1 204 No Content\r\n\r\n"[..],
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 700\r\n\r\n",
    ] {
        assert_eq!(decode(none), done(none.len()));
    }
    let hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 \r\n\r\n\
                  HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(decode(hints), done(hints.len()));
    assert_eq!(decode(&hints[..37]), partial(37 + 16));
    for (status, outcome) in [
        // not what was asked for
        (301, Outcome::ServerError),
        (404, Outcome::ServerError),
        (503, Outcome::ServerError),
    ] {
        let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        let bytes = text.len();
        assert_eq!(decode(text.as_bytes()), Decoded::Answer { bytes, outcome });
    }
}

#[test]
fn chunks_are_walked_over() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
    let whole = |body: &str| {
        let text = format!("{head}{body}");
        for n in 0..text.len() {
            let look = decode(&text.as_bytes()[..n]);
            let Decoded::Partial { at_least } = look else {
                panic!("{n} bytes of {text:?}: {look:?}");
            };
            assert!(at_least > n && at_least <= text.len());
        }
        assert_eq!(decode(format!("{text}HTTP").as_bytes()), done(text.len()));
    };
    whole("0\r\n\r\n");
    whole("3\r\nabc\r\n0\r\n\r\n");
    whole("1\r\n\n\r\n00A ;ext=\"x\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n");
    for bad in [
        "x\r\n",
        "\r\n",
        "3\r\nabcd\r\n",
        "fffffffff\r\n",
        "ffffffff\r\n",
        "-1\r\n",
        "0\r\n\n",
    ] {
        let text = format!("{head}{bad}");
        assert_eq!(decode(text.as_bytes()), Decoded::Malformed, "{bad:?}");
    }
}

#[test]
fn the_end_of_the_connection_is_told() {
    let closes = |version: &str, connection: &str| {
        let text = format!("HTTP/{version} 200 OK\r\n{connection}Content-Length: 0\r\n\r\n");
        match decode(text.as_bytes()) {
            Decoded::LastAnswer { bytes, outcome } => {
                assert_eq!((bytes, outcome), (text.len(), Outcome::Done));
                true
            }
            other => {
                assert_eq!(other, done(text.len()));
                false
            }
        }
    };
    assert!(!closes("1.1", ""));
    assert!(!closes("1.1", "Connection: keep-alive\r\n"));
    assert!(closes("1.1", "Connection: close\r\n"));
    assert!(closes("1.1", "CONNECTION: x , CLOSE\r\n"));
    assert!(closes("1.0", ""));
    assert!(!closes("1.0", "Connection: Keep-Alive\r\n"));
}

#[test]
fn an_answer_may_end_with_its_connection() {
    for (answer, outcome) in [
        ("HTTP/1.0 200 OK\r\n\r\nall that follows", Outcome::Done),
        (
            "HTTP/1.1 500 X\r\nConnection: close\r\n\r\n",
            Outcome::ServerError,
        ),
    ] {
        let end = decode(answer.as_bytes());
        assert_eq!(end, Decoded::UntilClosed { outcome }, "{answer}");
    }
}

#[test]
fn a_server_that_is_tired_of_waiting_has_not_taken_the_request() {
    let tired = b"HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\n<html>";
    assert_eq!(decode(tired), Decoded::NotTaken);
}

#[test]
fn what_is_no_answer_is_malformed() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD_BYTES));
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n",
        "X: y\r\n".repeat(MAX_HEAD_BYTES / 6)
    );
    let interim = "HTTP/1.1 100 \r\n\r\n".repeat(5000);
    for bad in [
        "hello",
        "\r\n",
        "HTTP/2.0 200 OK\r\n",
        "HTTP/1.2 200 OK\r\n",
        "HTTP/1.1 099 X\r\n",
        "HTTP/1.1 600 X\r\n",
        "HTTP/1.1 20 OK\r\n",
        "HTTP/1.1 2000 OK\r\n",
        "HTTP/1.1 200 OK\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551617\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        &long,
        &many,
        &interim,
    ] {
        assert_eq!(decode(bad.as_bytes()), Decoded::Malformed, "{bad:.60}");
    }
}
