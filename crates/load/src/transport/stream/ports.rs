//! How many connections a second the ports of this host allow to one server.

use std::fs;
use std::str::FromStr;

use taillab_model::Nanos;
use taillab_model::summary::Closing;

use crate::Endpoint;

/// How long the side that closes first keeps a connection's port (TCP_TIMEWAIT_LEN).
const TIME_WAIT: Nanos = Nanos::from_secs(60);

/// After this time, a port in TIME_WAIT is used again where `tcp_tw_reuse` allows that.
const REUSED_AFTER: Nanos = Nanos::from_secs(1);

/// So large a share of the ports may be in TIME_WAIT: with fewer left, the kernel searches for long.
const USABLE_SHARE: f64 = 0.75;

/// The ports of a client that opens a connection for each request.
///
/// A connection is known by its two addresses and ports (RFC 9293, 3.4), so there is one for each port of the client at
/// a time. The side that closes first keeps it in TIME_WAIT for a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ports {
    ports: u32,
    held: Nanos,
}

impl Ports {
    /// The ports for connections to this server from the calling thread's network namespace; `None` over Unix sockets,
    /// which have none.
    pub fn to(server: &Endpoint) -> Option<Self> {
        let Endpoint::Tcp(address) = server else {
            return None;
        };
        let (first, last) = setting("ip_local_port_range")
            .and_then(|text| {
                let (first, last) = text.split_once(char::is_whitespace)?;
                Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
            })
            .unwrap_or((32_768_u32, 60_999));
        // 2: on loopback
        let is_reused = number("tcp_timestamps") != Some(0)
            && match number("tcp_tw_reuse") {
                Some(1) => true,
                Some(2) => address.ip().is_loopback(),
                _ => false,
            };
        Some(Self {
            ports: u32::saturating_sub(last + 1, first),
            held: if is_reused { REUSED_AFTER } else { TIME_WAIT },
        })
    }

    /// Connections a second that this side may close first, for as long as it likes.
    pub fn rate_per_s(self) -> f64 {
        f64::from(self.ports) * USABLE_SHARE / self.held.as_secs_f64()
    }

    /// How this side closes connections if it opens so many a second; `None`: as many as the server takes.
    pub fn closing(self, rate_per_s: Option<f64>) -> Closing {
        let is_enough = match rate_per_s {
            Some(rate) => rate <= self.rate_per_s(),
            // a thread opens fewer
            None => self.held <= REUSED_AFTER,
        };
        if is_enough {
            Closing::Client
        } else {
            Closing::Reset
        }
    }
}

/// A setting of IPv4, which IPv6 uses too.
fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    Some(text.trim().to_owned())
}

fn number(name: &str) -> Option<u32> {
    u32::from_str(&setting(name)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Ports = Ports {
        ports: 28_232,
        held: TIME_WAIT,
    };

    #[test]
    fn a_port_that_is_held_for_a_minute_limits_the_rate() {
        let rate = USUAL.rate_per_s();
        assert!((350.0..360.0).contains(&rate), "{rate}");
        assert_eq!(USUAL.closing(Some(300.0)), Closing::Client);
        assert_eq!(USUAL.closing(Some(400.0)), Closing::Reset);
        assert_eq!(USUAL.closing(None), Closing::Reset);
        let reused = Ports {
            held: REUSED_AFTER,
            ..USUAL
        };
        assert_eq!(reused.closing(Some(20_000.0)), Closing::Client);
        assert_eq!(reused.closing(Some(25_000.0)), Closing::Reset);
        assert_eq!(reused.closing(None), Closing::Client);
    }

    #[test]
    fn this_host_has_ports_and_a_unix_socket_needs_none() {
        let server = Endpoint::Tcp(([127, 0, 0, 1], 9).into());
        assert!(Ports::to(&server).unwrap().ports > 0);
        assert_eq!(Ports::to(&Endpoint::Unix("/run/x".into())), None);
    }
}
