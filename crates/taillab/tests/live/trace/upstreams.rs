//! A server that asks two others in the middle of its requests: the one that was waited for is named, with its answers.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rig::{Running, load, result, trace};
use crate::support::{free_port, live};

/// Another server on loopback, which serves one connection and answers each byte with one.
struct Backend {
    port: u16,
    /// How long each answer took, by its own clock.
    took: Arc<Mutex<Vec<Duration>>>,
}

impl Backend {
    fn start(takes: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let took = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&took);
        thread::spawn(move || {
            let (connection, _) = listener.accept().unwrap();
            // it ends with the server that asks
            let _ = answer(connection, takes, &log);
        });
        Self { port, took }
    }
}

fn answer(
    mut connection: TcpStream,
    takes: Duration,
    log: &Mutex<Vec<Duration>>,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut byte = [0];
    loop {
        connection.read_exact(&mut byte)?;
        let began = Instant::now();
        thread::sleep(takes);
        log.lock().unwrap().push(began.elapsed());
        connection.write_all(&byte)?;
    }
}

#[test]
fn of_two_upstreams_each_is_named_with_its_answers() {
    if !live("of_two_upstreams_each_is_named_with_its_answers") {
        return;
    }
    let backends = [3, 12].map(|ms| Backend::start(Duration::from_millis(ms)));
    let address = format!("127.0.0.1:{}", free_port());
    let faults = [(20, backends[0].port), (30, backends[1].port)];
    let faults = faults.map(|(every, port)| format!("--fault upstream:{every},{port}"));
    let line = format!("serve epoll-shared --listen {address} {}", faults.join(" "));
    let server = Running::taillab(&line).listening(&address);
    let _clients = load(&format!("echo+tcp://{address}"), 300);
    let place = tempfile::tempdir().unwrap();
    let pid = server.pid().to_string();
    let output = trace(&["-p", &pid, "-d", "4s"], &place.path().join("trace"));
    let result = result(&output);

    let upstreams = result["explanation"]["upstreams"].as_array().unwrap();
    assert_eq!(upstreams.len(), 2, "{upstreams:#?}");
    let causes = result["causes"].as_array().unwrap().iter();
    let waits: Vec<&Value> = causes
        .filter(|it| it["cause"] == "upstream" && !it["culprit"].is_null())
        .collect();
    for backend in &backends {
        let is_it = |name: &Value| {
            let name = name.as_str().unwrap();
            name.starts_with(&format!("127.0.0.1:{} (", backend.port))
        };
        let took = backend.took.lock().unwrap();
        let answers = upstreams.iter().find(|it| is_it(&it["server"])).unwrap();
        let answers = &answers["answers"];
        let count = answers["count"].as_u64().unwrap();
        assert!(count >= 10 && count <= took.len() as u64, "{answers}");
        let least = took.iter().min().unwrap().as_nanos() as u64;
        assert!(answers["min"].as_u64().unwrap() >= least, "{answers}");

        let names = |it: &&&Value| it["culprit"]["servers"].as_array().unwrap().len() == 1;
        let mut named = waits.iter().filter(names);
        let wait = named.find(|it| is_it(&it["culprit"]["servers"][0]));
        let wait = wait.unwrap_or_else(|| panic!("{waits:#?}"));
        let events = wait["events"].as_u64().unwrap();
        assert!(events >= 10 && events <= took.len() as u64, "{wait:#}");
    }
}
