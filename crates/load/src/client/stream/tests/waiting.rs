//! Requests that wait for their connections.

use super::*;

/// A server that answers one request per read would lose the second.
#[test]
fn a_pool_of_busy_connections_lets_requests_wait_for_the_first_that_is_free() {
    let echo = |_, request: &[u8]| (answer(request), None);
    let mut client =
        Fake::client(2, vec![(1, usize::MAX)], echo).with(one_at_a_time(ClientKind::Pooled));
    client.begin(3, SCHEDULED);
    let sent: Vec<_> = (0..3).map(|_| client.send(wanted(0)).unwrap()).collect();
    assert_eq!(
        sent,
        [SendOutcome::Gone, SendOutcome::Gone, SendOutcome::Waits]
    );
    assert_eq!(client.send_waiting(|_, _| true), None);
    let second = ReceiveOutcome::Answer {
        k: 1,
        outcome: Outcome::Done,
    };
    assert_eq!(client.receive(|_| Some(wanted(0))), second);
    let released = client.send_waiting(|_, _| true).unwrap();
    assert_eq!(
        (released.k, released.sent),
        (2, Some(Ok(SendOutcome::Gone)))
    );
    assert_eq!(client.send_waiting(|_, _| true), None);
    assert_eq!(client.keys().connection_of(2), Some(1));
}

#[test]
fn a_request_that_waited_too_long_is_given_up() {
    let echo = |_, request: &[u8]| (answer(request), None);
    let habits = one_at_a_time(ClientKind::Independent);
    let mut client = Fake::client(1, WHOLE.to_vec(), echo).with(habits);
    client.begin(3, SCHEDULED);
    (0..3).for_each(|_| assert!(client.send(wanted(0)).is_ok()));
    client.receive(|_| Some(wanted(0)));
    let mut released = || {
        client
            .send_waiting(|k, _| k == 2)
            .map(|gone| (gone.k, gone.sent))
    };
    assert_eq!(released(), Some((1, None)));
    assert_eq!(released(), Some((2, Some(Ok(SendOutcome::Gone)))));
    assert_eq!(released(), None);
}

#[test]
fn a_closed_connection_keeps_the_requests_of_its_client_until_it_is_open_again() {
    let mut served = 0;
    let closes_once = move |_, request: &[u8]| {
        served += 1;
        (answer(request), (served == 1).then_some(Ending::Closed))
    };
    let habits = Habits::independent(None);
    let mut client = Fake::client(1, WHOLE.to_vec(), closes_once).with(habits);
    client.begin(3, SCHEDULED);
    let mut caller = Caller::default();
    // the second finds the end, the third that it is closed
    (0..3).for_each(|_| caller.send(&mut client, 0));
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [Some(Outcome::Done), None, None]);
    client.tend(Nanos::MAX);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [Some(Outcome::Done); 3]);
}

/// What waits at the end of a count is not sent in the next one.
#[test]
fn requests_that_wait_are_dropped_with_their_count() {
    let echo = |_, request: &[u8]| (answer(request), None);
    let habits = one_at_a_time(ClientKind::Independent);
    let mut client = Fake::client(1, WHOLE.to_vec(), echo).with(habits);
    client.begin(2, SCHEDULED);
    (0..2).for_each(|_| assert!(client.send(wanted(0)).is_ok()));
    client.begin(1, SCHEDULED);
    let mut caller = Caller::default();
    caller.send(&mut client, 3);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [Some(Outcome::Done)]);
    assert_eq!(caller.others, []);
}

/// A closed loop fills all connections before any has two requests.
#[test]
fn a_closed_loop_takes_idle_connections() {
    let echo = |_, request: &[u8]| (answer(request), None);
    let mut client = Fake::client(50, WHOLE.to_vec(), echo).with(Habits::independent(None));
    client.begin(50, Sending::Answered { seed: 1 });
    (0..50).for_each(|_| assert!(client.send(wanted(0)).is_ok()));
    assert!((0..50).all(|c| client.rotation.depth(c) == Some(1)));
}
