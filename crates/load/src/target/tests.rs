use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Target {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn every_scheme_is_read_and_written_back_with_its_port() {
    for (text, full) in [
        ("echo+tcp://127.0.0.1:9000", "echo+tcp://127.0.0.1:9000"),
        ("echo+udp://localhost", "echo+udp://localhost:7"),
        ("echo+unix:/run/e.sock", "echo+unix:/run/e.sock"),
        ("echo+unix:///run/e.sock", "echo+unix:/run/e.sock"),
        ("memcached://h", "memcached+tcp://h:11211"),
        (
            "memcached+udp://127.0.0.1",
            "memcached+udp://127.0.0.1:11211",
        ),
        ("memcached+unix:/m", "memcached+unix:/m"),
        ("memcached-binary+tcp://h", "memcached-binary+tcp://h:11211"),
        ("memcached-meta://h:1", "memcached-meta+tcp://h:1"),
        ("http://h", "http://h:80/"),
        ("HTTP://h:8080/a/b?c=d#e", "http://h:8080/a/b?c=d"),
        ("http://h?q", "http://h:80/?q"),
        ("http://h#x", "http://h:80/"),
        ("http://h:8080#x?y", "http://h:8080/"),
        ("http+unix:/s.sock", "http+unix:/s.sock:/"),
        ("http+unix:/s.sock:/a?b", "http+unix:/s.sock:/a?b"),
        ("redis://[::1]", "redis://[::1]:6379"),
        ("redis+tcp://[fe80::1]:7/", "redis://[fe80::1]:7"),
        ("redis://[fe80::1%eth0]", "redis://[fe80::1%eth0]:6379"),
        ("redis+unix:/r.sock", "redis+unix:/r.sock"),
    ] {
        let target = read(text);
        assert_eq!(target.to_string(), full, "{text}");
        assert_eq!(read(full), target);
        let scheme = full.split(':').next().unwrap();
        assert!(Target::schemes().contains(scheme), "{scheme}");
    }
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    for (text, part) in [
        (
            "localhost:11211",
            "write e.g. memcached+udp://localhost:11211",
        ),
        ("", "does not say what the server speaks"),
        ("ftp://h", "`ftp` is not a scheme; choose one of echo+tcp"),
        ("echo+sctp://h", "`echo+sctp` is not a scheme"),
        (
            "redis+udp://h",
            "redis does not run over UDP; use +tcp or +unix",
        ),
        ("http+udp://h", "does not run over UDP"),
        ("redis://me:pw@h", "`me:pw@` has no meaning here"),
        ("redis://h/3", "`/3` has no meaning here"),
        ("redis://h#3", "`#3` has no meaning here"),
        ("echo+tcp://:80", "names no host"),
        ("echo+tcp:/run/x", "names no host"),
        ("echo+tcp://h:0", "`0` is not a port"),
        ("echo+tcp://h:65536", "`65536` is not a port"),
        ("echo+tcp://h:+1", "`+1` is not a port"),
        ("echo+tcp://h:", "`` is not a port"),
        ("echo+tcp://::1:80", "needs brackets"),
        ("echo+tcp://[::1", "needs brackets"),
        ("echo+tcp://[::1]80", "needs brackets"),
        ("echo+tcp://[fe80::1%]:80", "needs brackets"),
        ("echo+tcp://[fe80::1%a b]:80", "needs brackets"),
        ("echo+tcp://[x%eth0]:80", "needs brackets"),
        (
            "echo+tcp://127.0.0.300",
            "neither a host name nor an address",
        ),
        ("echo+tcp://a b", "neither a host name nor an address"),
        (
            "echo+unix:run.sock",
            "is not a path for a Unix socket: write e.g. echo+unix:/run",
        ),
        ("echo+unix:/run/", "is not a path for a Unix socket"),
        ("http://h/a b", "is not a valid request path"),
        ("http://h/\u{e4}", "only visible ASCII characters"),
        ("http+unix:/s:x", "is not a valid request path"),
    ] {
        let error = text.parse::<Target>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains('\n'));
    }
    let long = format!("echo+unix:/{}", "x".repeat(107));
    assert!(long.parse::<Target>().is_err());
}

#[test]
fn a_dialect_belongs_to_memcached() {
    let tcp = read("memcached+tcp://h").with_dialect("meta").unwrap();
    assert_eq!(tcp, read("memcached-meta+tcp://h"));
    let udp = read("memcached+udp://h").with_dialect("binary");
    assert_eq!(udp, Ok(read("memcached-binary+udp://h")));
    let error = read("http://h").with_dialect("meta").unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("only memcached has dialects"), "{text}");
}

fn targets() -> impl Strategy<Value = Target> {
    let host = prop_oneof![
        any::<u32>().prop_map(|n| Host::Address(Ipv4Addr::from(n).into())),
        any::<u128>().prop_map(|n| Host::Address(Ipv6Addr::from(n).into())),
        (0..3_usize).prop_map(|n| Host::Name(["localhost", "a-b.example", "x."][n].into())),
    ];
    let at = (host, 1..=u16::MAX).prop_map(|(host, port)| HostPort { host, port });
    let place = prop_oneof![
        at.clone().prop_map(Place::Udp),
        at.prop_map(Place::Tcp),
        "/[a-z.]{1,50}(/[a-z]{1,50})?".prop_map(|path| Place::Unix(path.into())),
    ];
    let path = "/[a-z:%/]{0,9}(\\?[a-z=&@:]{0,9})?";
    (0..PROTOCOLS.len(), place, path)
        .prop_map(|(at, place, path)| Target {
            protocol: &PROTOCOLS[at],
            place,
            path: match PROTOCOLS[at].asks(Ask::Path) {
                true => path,
                false => String::new(),
            },
        })
        .prop_filter("over UDP", |target| {
            !matches!(target.place, Place::Udp(_)) || target.protocol.over_udp()
        })
}

/// Each protocol with each of its transports; a further dialect is listed with TCP only.
#[test]
fn help_lists_every_scheme() {
    let mut all = Vec::new();
    for protocol in &PROTOCOLS {
        let is_usual = Protocol::named(protocol.name) == Some(protocol);
        for place in ["+tcp://h", "+udp://h", "+unix:/s"] {
            let target = format!("{}{place}", protocol.scheme).parse::<Target>();
            let known = place != "+udp://h" || protocol.over_udp();
            assert_eq!(target.is_ok(), known, "{target:?}");
            if known && (is_usual || place == "+tcp://h") {
                let text = read(&format!("{}{place}", protocol.scheme)).to_string();
                all.push(text.split(':').next().unwrap().to_owned());
            }
        }
    }
    assert_eq!(Target::schemes(), all.join(", "));
}

proptest! {
    #[test]
    fn a_target_reads_back_as_itself(target in targets()) {
        prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<Target>();
    }

    #[test]
    fn what_is_read_can_be_read_again(
        text in "(echo|http|redis|memcached)(\\+(tcp|udp|unix))?:(//)?[\\[\\]a-z0-9.:/@?_-]{0,30}"
    ) {
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target));
        }
    }
}
