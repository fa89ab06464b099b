//! Who sent the requests, and how many of these waited for a connection.

use taillab_model::summary::{ClientsSummary, Closing, ConnectingSummary, NOTABLE_WAITING_SHARE};

use crate::figures::{count, counted, percent};

/// Who the clients are, in a clause.
pub(crate) fn who(clients: &ClientsSummary) -> String {
    let connections = u64::from(clients.connections);
    if clients.connecting.is_some() {
        return format!(
            "a connection for each request, at most {} at once",
            count(connections)
        );
    }
    let on = counted(connections, "connection", "connections");
    let at_once = match clients.pipeline {
        None => String::new(),
        Some(1) => ", one request at a time on each".to_owned(),
        Some(most) => format!(
            ", up to {} at once on each",
            counted(u64::from(most), "request", "requests")
        ),
    };
    format!("{} clients, {on}{at_once}", clients.kind)
}

/// How many requests waited for their connections; `None` where none can.
pub(crate) fn waits(clients: &ClientsSummary) -> Option<String> {
    let Some(wait) = &clients.wait else {
        let may_wait = clients.pipeline.is_some() || clients.connecting.is_some();
        return may_wait.then(|| "no request waited for a connection".to_owned());
    };
    let longest = wait
        .max
        .map_or_else(String::new, |max| format!(", at most {max}"));
    Some(format!(
        "{} of the requests ({}) waited for their connection{longest}; that is a part of the response time",
        percent(clients.waited_share, 2),
        count(clients.waited),
    ))
}

/// What became of the connections, where each request has one of its own.
pub(crate) fn connections(clients: &ClientsSummary) -> Option<String> {
    let ConnectingSummary {
        connected,
        refused,
        timed_out,
        failed,
        closing,
        time: _,
    } = clients.connecting.as_ref()?;
    let mut parts = vec![counted(
        *connected,
        "connection came up",
        "connections came up",
    )];
    let ends = [
        (*refused, "refused"),
        (*timed_out, "not up within the time-out"),
        (*failed, "not opened, for want of a port or a route"),
    ];
    let ends = ends.into_iter().filter(|(n, _)| *n > 0);
    parts.extend(ends.map(|(n, how)| format!("{} {how}", count(n))));
    let by = match closing {
        Closing::Server => "closed by the server, as the requests ask",
        Closing::Client => "closed by the client",
        Closing::Reset => {
            "closed by the client with a reset, because so many ports would be in TIME_WAIT that none is left"
        }
    };
    parts.push(by.to_owned());
    Some(parts.join(", "))
}

/// Whether no connection failed.
pub(crate) fn all_came_up(clients: &ClientsSummary) -> bool {
    let of = clients.connecting.as_ref();
    of.is_none_or(|of| of.refused + of.timed_out + of.failed == 0)
}

/// Whether so few waited that the connections are no queue of their own.
pub(crate) fn are_enough(clients: &ClientsSummary) -> bool {
    clients.waited_share <= NOTABLE_WAITING_SHARE
}

#[cfg(test)]
mod tests {
    use taillab_model::summary::ClientKind;
    use taillab_model::{Distribution, Nanos};

    use super::*;

    #[test]
    fn who_waited_and_how_long_is_said() {
        let mut clients = ClientsSummary {
            kind: ClientKind::Independent,
            connections: 1_024,
            pipeline: Some(1),
            waited: 0,
            waited_share: 0.0,
            wait: None,
            connecting: None,
        };
        let one = "independent clients, 1,024 connections, one request at a time on each";
        assert_eq!(who(&clients), one);
        assert_eq!(
            waits(&clients).unwrap(),
            "no request waited for a connection"
        );
        assert!(are_enough(&clients));
        let times = [Nanos::ZERO, Nanos::from_micros(70)];
        clients.wait = Some(Distribution::from_sorted(&times));
        (clients.waited, clients.waited_share) = (2_500, 0.025);
        let said = waits(&clients).unwrap();
        assert!(
            said.starts_with("2.50 % of the requests (2,500) waited"),
            "{said}"
        );
        assert!(said.contains("at most 70.0 µs"), "{said}");
        assert!(!are_enough(&clients));
        (clients.pipeline, clients.wait) = (None, None);
        assert_eq!(waits(&clients), None);
        assert_eq!(who(&clients), "independent clients, 1,024 connections");
        assert_eq!(connections(&clients), None);
    }

    #[test]
    fn what_became_of_connections_for_each_request_is_said() {
        let mut clients = ClientsSummary {
            kind: ClientKind::Independent,
            connections: 1_024,
            pipeline: None,
            waited: 0,
            waited_share: 0.0,
            wait: None,
            connecting: Some(ConnectingSummary {
                connected: 5_000,
                refused: 0,
                timed_out: 0,
                failed: 0,
                closing: Closing::Client,
                time: Distribution::from_sorted(&[Nanos::from_micros(40)]),
            }),
        };
        let one = "a connection for each request, at most 1,024 at once";
        assert_eq!(who(&clients), one);
        assert_eq!(
            connections(&clients).unwrap(),
            "5,000 connections came up, closed by the client"
        );
        assert!(all_came_up(&clients));
        if let Some(of) = &mut clients.connecting {
            (of.refused, of.timed_out, of.closing) = (7, 2, Closing::Reset);
        }
        let said = connections(&clients).unwrap();
        assert!(
            said.contains("7 refused, 2 not up within the time-out"),
            "{said}"
        );
        assert!(said.contains("TIME_WAIT"), "{said}");
        assert!(!all_came_up(&clients));
    }
}
