//! Who sent the requests, and how many of these waited for a connection.

use taillab_model::summary::{ClientsSummary, NOTABLE_WAITING_SHARE};

use crate::figures::{count, counted, percent};

/// Who the clients are, in a clause.
pub(crate) fn who(clients: &ClientsSummary) -> String {
    let connections = u64::from(clients.connections);
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
        let may_wait = clients.pipeline.is_some();
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
    }
}
