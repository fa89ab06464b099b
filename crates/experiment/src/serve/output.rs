//! What `taillab serve` says when it is ready and when it has stopped.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::messages;
use taillab_load::Endpoint;
use taillab_load::serve::{Architecture, Responder, Served, Spec};
use taillab_model::text::escaped_json;

/// The version of the JSON's shape.
const SCHEMA_VERSION: u32 = 1;
/// More workers than this are not listed one by one.
const LISTED: usize = 64;

/// One line of `--json`; the shape is `schemas/serve.schema.json`.
#[derive(Serialize, JsonSchema)]
pub struct OutputLine<'a> {
    /// Version of this shape.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    schema_version: u32,
    /// Always `serve`.
    #[schemars(extend("const" = "serve"))]
    command: &'static str,
    #[serde(flatten)]
    event: Event<'a>,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// Requests are accepted from now on.
    Listening {
        /// The architecture of the server, as on the command line.
        architecture: &'static str,
        /// Address and port, or `unix:` and a path; the port is the real one.
        address: String,
        /// What `taillab load` calls this server.
        target: String,
        /// Its process id.
        pid: u32,
        /// Worker threads; `None` where each connection has its own.
        workers: Option<usize>,
        /// What a worker does between a request and its answer, in the notation of `--service`.
        service: String,
        /// The seed of the service times.
        seed: u64,
        /// Length of a request, bytes.
        request_bytes: usize,
        /// Length of an answer, bytes.
        response_bytes: usize,
        /// Workers never sleep.
        busy: bool,
    },
    /// The server has ended.
    Stopped {
        /// The architecture of the server, as on the command line.
        architecture: &'static str,
        /// Requests answered.
        requests: u64,
        /// The same by each worker; with `null-rpc` by each connection in the order of connecting.
        requests_by_worker: &'a [u64],
        /// Connections accepted; 0 for UDP.
        connections: u64,
        /// Connections refused for lack of files or threads.
        refused_connections: u64,
        /// Connections that ended in the middle of a request, and datagrams not as long as a request.
        malformed: u64,
        /// Answers that could not be sent.
        unsent: u64,
    },
}

/// Requests are accepted from now on.
pub fn listening(spec: &Spec, server: &Responder, output: Output) -> Result<(), Failure> {
    let target = target(&server.endpoint());
    if output.json {
        return line(Event::Listening {
            architecture: spec.architecture.name(),
            address: server.address().to_string(),
            target,
            pid: std::process::id(),
            workers: workers(spec),
            service: spec.service.to_string(),
            seed: spec.seed,
            request_bytes: spec.sizes.request_bytes,
            response_bytes: spec.sizes.response_bytes,
            busy: spec.busy,
        });
    }
    if output.quiet {
        return Ok(());
    }
    let workers = match workers(spec) {
        None => "a worker for each connection".to_owned(),
        Some(1) => "1 worker".to_owned(),
        Some(n) => format!("{n} workers"),
    };
    print(&format!(
        "listening on {} ({}, {workers}, service {}, {} bytes answered with {})\n",
        server.address(),
        spec.architecture,
        spec.service,
        spec.sizes.request_bytes,
        spec.sizes.response_bytes,
    ))?;
    if !server.address().is_local() {
        messages::line(&"note: other hosts can reach this server; it answers anyone");
    }
    messages::line(&format_args!(
        "hint: load it with `taillab load {target} -R 5000`; Ctrl-C stops it"
    ));
    Ok(())
}

/// What was served, and what was wrong.
pub fn stopped(spec: &Spec, served: &Served, output: Output) -> Result<(), Failure> {
    if output.json {
        return line(Event::Stopped {
            architecture: spec.architecture.name(),
            requests: served.total(),
            requests_by_worker: &served.by_worker,
            connections: served.connections,
            refused_connections: served.refused,
            malformed: served.malformed,
            unsent: served.unsent,
        });
    }
    if output.quiet {
        return Ok(());
    }
    for warning in warnings(spec, served) {
        messages::line(&format_args!("warning: {warning}"));
    }
    print(&summary(spec, served))
}

/// What went wrong, with a remedy.
fn warnings(spec: &Spec, served: &Served) -> Vec<String> {
    let mut all = Vec::new();
    let bytes = spec.sizes.request_bytes;
    if served.malformed > 0 {
        let what = if spec.architecture.is_datagram() {
            let datagrams = count(served.malformed, "datagram");
            format!("{datagrams} not {bytes} bytes long got no answer")
        } else {
            let connections = count(served.malformed, "connection");
            format!("{connections} ended in the middle of a request of {bytes} bytes")
        };
        all.push(format!(
            "{what}: give client and server the same --request-bytes"
        ));
    }
    if served.unsent > 0 {
        all.push(format!(
            "{} could not be sent: the client had left",
            count(served.unsent, "answer")
        ));
    }
    if served.refused > 0 {
        all.push(format!(
            "{} refused for lack of files or threads: raise `ulimit -n` and `ulimit -u`",
            count(served.refused, "connection")
        ));
    }
    all
}

fn summary(spec: &Spec, served: &Served) -> String {
    let mut text = format!("served {}", count(served.total(), "request"));
    if !spec.architecture.is_datagram() {
        text += &format!(" on {}", count(served.connections, "connection"));
    }
    text.push('\n');
    let name = if spec.architecture == Architecture::NullRpc {
        "connection"
    } else {
        "worker"
    };
    let counts = &served.by_worker;
    if counts.len() > LISTED {
        let least = counts.iter().min().copied().unwrap_or_default();
        let most = counts.iter().max().copied().unwrap_or_default();
        text += &format!("  by {name}: {least} to {most}; --json lists them all\n");
    } else if counts.len() > 1 {
        for (number, count) in counts.iter().enumerate() {
            text += &format!("  {name} {number}: {count}\n");
        }
    }
    text
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Threads that serve, where that is a fixed number.
fn workers(spec: &Spec) -> Option<usize> {
    (spec.architecture != Architecture::NullRpc).then_some(spec.workers)
}

/// What `taillab load` calls this server.
fn target(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Udp(address) => format!("echo+udp://{address}"),
        Endpoint::Tcp(address) => format!("echo+tcp://{address}"),
        Endpoint::Unix(path) => format!("echo+unix:{}", path.display()),
    }
}

fn line(event: Event<'_>) -> Result<(), Failure> {
    let line = OutputLine {
        schema_version: SCHEMA_VERSION,
        command: "serve",
        event,
    };
    let text = serde_json::to_string(&line).or_exit(Exit::Failed)?;
    print(&(escaped_json(text) + "\n"))
}

/// Prints at once, for a reader who waits for the line.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| {
            Failure::failed(format!(
                "cannot write to standard output: {error}; redirect it to a file, or use -q"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(by_worker: Vec<u64>) -> Served {
        Served {
            by_worker,
            connections: 3,
            ..Served::default()
        }
    }

    #[test]
    fn workers_are_listed_or_summed_up() {
        let spec = Spec::new(Architecture::EpollShared);
        assert_eq!(
            summary(&spec, &served(vec![5, 7])),
            "served 12 requests on 3 connections\n  worker 0: 5\n  worker 1: 7\n"
        );
        assert_eq!(
            summary(&Spec::new(Architecture::UdpShared), &served(vec![1])),
            "served 1 request\n"
        );
        let many = summary(
            &Spec::new(Architecture::NullRpc),
            &served((1..=100).collect()),
        );
        assert!(
            many.ends_with("by connection: 1 to 100; --json lists them all\n"),
            "{many}"
        );
    }

    #[test]
    fn what_went_wrong_has_a_remedy() {
        let spec = Spec::new(Architecture::UdpShared);
        assert!(warnings(&spec, &served(vec![1])).is_empty());
        let bad = Served {
            malformed: 2,
            unsent: 1,
            refused: 3,
            ..served(vec![1])
        };
        let said = warnings(&spec, &bad).join("\n");
        for part in ["2 datagrams not 128", "1 answer could", "ulimit -n"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
