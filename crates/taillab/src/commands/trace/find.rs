//! Finds the server, or starts it.

use std::time::{Duration, Instant};

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::host;
use taillab_console::rights::Remaining;
use taillab_host::target::{Server, StartedCommand, Target, TargetError, Transport};
use taillab_host::{HeldProcess, Interrupt, Invoker, Journal, JournalError, JournalFolder, Roots};

use super::framing::Identification;
use crate::cli::TraceArgs;

/// How long a command may take until it listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// How often to check whether it listens.
const POLL: Duration = Duration::from_millis(20);
/// A server that opens several sockets opens the others soon after the first.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);
/// How long it may take to stop before it is killed.
const STOPS_WITHIN: Duration = Duration::from_secs(2);

/// The server, and the command that we started for it.
pub struct FoundServer {
    pub server: Server,
    /// How its requests are found.
    pub identification: Identification,
    /// Its processes.
    held: Vec<HeldProcess>,
    command: Option<(StartedCommand, Journal)>,
}

impl FoundServer {
    /// The server that the command line names.
    pub fn by(args: &TraceArgs, roots: &Roots, interrupt: &Interrupt) -> Result<Self, Failure> {
        let port = args.server.port.map(std::num::NonZeroU16::get);
        let transport = match (args.server.tcp, args.server.udp) {
            (true, _) => Some(Transport::Tcp),
            (_, true) => Some(Transport::Udp),
            _ => None,
        };
        if !args.server.words.is_empty() {
            return Self::start(args, port, transport, roots, interrupt);
        }
        let target = match (args.server.pid, &args.server.cgroup, port) {
            (Some(pid), ..) => Target::of_process(roots, pid.get()),
            (None, Some(path), _) => Target::of_cgroup(roots, path),
            (None, None, port) => Target::of_port(roots, port.unwrap_or_default(), transport),
        };
        let server = chosen(&target.map_err(host)?, port, transport, roots)?;
        Ok(Self::of(server, None, args))
    }

    fn of(server: Server, command: Option<(StartedCommand, Journal)>, args: &TraceArgs) -> Self {
        Self {
            held: held(&server),
            identification: Identification::of(&server, args.server.protocol),
            server,
            command,
        }
    }

    /// Starts the command, which is noted in the journal before it runs.
    fn start(
        args: &TraceArgs,
        port: Option<u16>,
        transport: Option<Transport>,
        roots: &Roots,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let mut journal = JournalFolder::of_this_user().begin(roots).map_err(host)?;
        let program = args.server.words.first().map(|word| word.to_string_lossy());
        let mark = journal
            .plan_server(&program.unwrap_or_default())
            .map_err(host)?;
        // a server that we start should not run as root only because we do
        let user = Invoker::find(roots).behind_sudo();
        let listening = StartedCommand::start(&args.server.words, user, Some(mark))
            .map_err(host)
            .and_then(|mut command| {
                journal.server_started(roots, command.pid()).map_err(host)?;
                let target = listening(&mut command, port, transport, roots, interrupt)?;
                Ok((chosen(&target, port, transport, roots)?, command))
            });
        match listening {
            Ok((server, command)) => Ok(Self::of(server, Some((command, journal)), args)),
            Err(failure) => {
                // the command was ended when it was dropped
                journal.finish().map_err(host)?;
                Err(failure)
            }
        }
    }

    /// Why the recording must end: the server that we started, or the process that was
    /// named, has ended.
    pub fn ended(&mut self) -> Option<String> {
        if let Some((command, _)) = &mut self.command {
            // if its state cannot be read, we assume that it runs
            let status = command.try_exit().ok().flatten()?;
            return Some(format!(
                "the command ended ({status}) while it was traced: start it with options that \
                 keep it in the foreground"
            ));
        }
        self.held.iter().all(HeldProcess::has_ended).then(|| {
            format!(
                "{} ended while it was traced; its recording stops there",
                self.server.name
            )
        })
    }

    /// What is left to do with it after the recording.
    pub fn remaining(&self, args: &TraceArgs) -> Remaining {
        match (
            &self.command,
            args.result.saves() || args.limits.junit.is_some(),
        ) {
            (Some(_), _) => Remaining::Server,
            (None, true) => Remaining::Files,
            (None, false) => Remaining::Nothing,
        }
    }

    /// Ends the server if we started it.
    pub fn end(self) -> Result<(), Failure> {
        let Some((command, journal)) = self.command else {
            return Ok(());
        };
        command.end(STOPS_WITHIN);
        match journal.finish() {
            // under sudo the journal is root's and we are the user by now: the next start removes it
            Err(JournalError::File { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Ok(())
            }
            finished => finished.map_err(host),
        }
    }
}

fn held(server: &Server) -> Vec<HeldProcess> {
    let of = |pid: &u32| HeldProcess::of(*pid);
    server.processes.iter().filter_map(of).collect()
}

fn chosen(
    target: &Target,
    port: Option<u16>,
    transport: Option<Transport>,
    roots: &Roots,
) -> Result<Server, Failure> {
    let endpoint = target.endpoint(port, transport).map_err(host)?;
    target.server(roots, endpoint).map_err(host)
}

/// Waits until the command listens, on the wanted port if one was given.
fn listening(
    command: &mut StartedCommand,
    port: Option<u16>,
    transport: Option<Transport>,
    roots: &Roots,
    interrupt: &Interrupt,
) -> Result<Target, Failure> {
    let began = Instant::now();
    loop {
        if interrupt.is_raised() {
            return Err(Failure::new(
                Exit::Interrupted,
                "interrupted before the command listened",
            ));
        }
        if let Some(status) = command.try_exit().map_err(host)? {
            return Err(Failure::failed(format!(
                "the command ended ({status}) before it listened on a port: start it with \
                     options that keep it in the foreground"
            )));
        }
        let wanted = |target: &Target| match target.endpoint(port, transport) {
            Err(TargetError::OtherPort { .. }) => false,
            // an ambiguous server is reported at once
            Ok(_) | Err(_) => true,
        };
        match Target::of_process(roots, command.pid()) {
            Ok(target) if wanted(&target) => {
                std::thread::sleep(SETTLES_WITHIN);
                match Target::of_process(roots, command.pid()) {
                    // it has ended: the next look says how
                    Err(TargetError::NoProcess { .. }) => {}
                    settled => return settled.map_err(host),
                }
            }
            Err(error @ (TargetError::NotPermitted { .. } | TargetError::KernelThread { .. })) => {
                return Err(host(error));
            }
            // it does not listen yet
            Ok(_) | Err(_) if began.elapsed() < LISTENS_WITHIN => std::thread::sleep(POLL),
            Ok(target) => {
                return Err(match target.endpoint(port, transport) {
                    Err(error) => host(error),
                    Ok(_) => Failure::failed("the command does not listen on a port"),
                });
            }
            Err(error) => return Err(host(error)),
        }
    }
}
