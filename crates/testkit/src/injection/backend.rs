//! Another server, which a server asks in the middle of its requests.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use taillab_host::clock::now;
use taillab_host::process::set_fifo;
use taillab_host::testbed::Testbed;
use taillab_load::ground_truth::{GroundTruth, InjectedInterval};
use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use super::disturber::{Disturber, Running, sleep_until};
use super::{InjectionError, system};

const NAME: &str = "tl-backend";
/// Its port in the server's namespace, which is ours alone.
pub const BACKEND_PORT: u16 = 7_998;
/// The longest wait before it checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A thread on `cpu` that listens in the server's namespace, and answers each byte with one byte, `takes` later. It
/// serves one connection at a time.
///
/// It sleeps meanwhile, so that it takes no CPU time from anybody. The truth is from when it had read a question to when it
/// had answered. What the questions cost is the server's own truth, of when it waited.
///
/// # Errors
/// [`InjectionError`] if it cannot listen there.
pub fn backend(testbed: &Testbed, cpu: u32, takes: Nanos) -> Result<Disturber, InjectionError> {
    let listener = testbed
        .run_at_server(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, BACKEND_PORT))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?
        .map_err(|error: io::Error| {
            system("listen in the server's namespace", "end what listens there")(error)
        })?;
    answering(listener, cpu, takes)
}

/// The thread that answers those who connect to this, which does not block.
fn answering(listener: TcpListener, cpu: u32, takes: Nanos) -> Result<Disturber, InjectionError> {
    Disturber::start(
        NAME,
        cpu,
        move || {
            // without this privilege, it answers a little late
            let _ = set_fifo(0, 1);
            Ok(listener)
        },
        move |listener, running| {
            let mut answers = Vec::with_capacity(4096);
            while !running.is_over() {
                match listener.accept() {
                    // a connection that fails is closed; the server opens another one
                    Ok((connection, _)) => drop(answer(connection, takes, running, &mut answers)),
                    Err(_) => sleep_until(now() + Nanos::from_millis(1)),
                }
            }
            let asked_for = format!("backend:{}", takes.to_exact_string());
            GroundTruth::of_one(asked_for, Cause::Upstream, None, answers)
        },
    )
}

/// Answers until the connection ends, or this must.
fn answer(
    mut connection: TcpStream,
    takes: Nanos,
    running: &Running,
    answers: &mut Vec<InjectedInterval>,
) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(LOOK))?;
    let mut asked = [0];
    while !running.is_over() {
        match connection.read(&mut asked) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                let read = now();
                sleep_until(read + takes);
                connection.write_all(&asked)?;
                answers.push(InjectedInterval {
                    source: 0,
                    cpu: None,
                    held: None,
                    from_ns: read,
                    to_ns: now(),
                    times: 1,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use taillab_host::cpus;

    use super::*;

    #[test]
    fn it_says_when_it_had_each_question() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let cpu = cpus::allowed().unwrap().first().unwrap();
        let takes = Nanos::from_millis(5);
        let backend = answering(listener, cpu, takes).unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        let mut waited = Vec::new();
        for _ in 0..3 {
            let asked = now();
            connection.write_all(&[1]).unwrap();
            connection.read_exact(&mut [0]).unwrap();
            waited.push(asked..now());
        }
        let truth = backend.stop();
        assert_eq!(truth.intervals.len(), 3, "{truth:?}");
        for (answer, waited) in truth.intervals.iter().zip(waited) {
            assert!(answer.length() >= takes, "{answer:?}");
            // the answer was there before this knew that it had written it
            assert!(answer.from_ns >= waited.start && answer.from_ns + takes <= waited.end);
        }
        assert_eq!(truth.sources[0].injected, "backend:5ms");
    }
}
