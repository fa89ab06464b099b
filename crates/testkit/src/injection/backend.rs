//! Another server, which a server asks in the middle of its requests.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use taillab_host::clock::now;
use taillab_host::process::set_fifo;
use taillab_host::testbed::Testbed;
use taillab_load::ground_truth::GroundTruth;
use taillab_model::Nanos;

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
/// It sleeps meanwhile, so that it takes no CPU time from anybody. The truth is the server's own, of when it waited.
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
    Disturber::start(
        NAME,
        cpu,
        move || {
            // without this privilege, it answers a little late
            let _ = set_fifo(0, 1);
            Ok(listener)
        },
        move |listener, running| {
            while !running.is_over() {
                match listener.accept() {
                    // a connection that fails is closed; the server opens another one
                    Ok((connection, _)) => drop(answer(connection, takes, running)),
                    Err(_) => sleep_until(now() + Nanos::from_millis(1)),
                }
            }
            GroundTruth::default()
        },
    )
}

/// Answers until the connection ends, or this must.
fn answer(mut connection: TcpStream, takes: Nanos, running: &Running) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(LOOK))?;
    let mut asked = [0];
    while !running.is_over() {
        match connection.read(&mut asked) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                sleep_until(now() + takes);
                connection.write_all(&asked)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
