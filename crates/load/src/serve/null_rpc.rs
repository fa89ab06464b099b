//! The null RPC server of *Tales of the Tail*, section 3.1.1.
//!
//! "The server has a main accept thread that spawns new worker threads to handle each
//! arriving client connection. The worker threads enter a blocking loop, reading requests
//! using `read` and immediately writing a response back using `write`. Worker threads do
//! not access any shared data structures or locks, and they do not use any other system
//! calls."

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::io::{Errno, read, write};
use rustix::net::{Shutdown, shutdown};

use super::ServeError;
use super::connection::{End, buffer};
use super::service::{BeforeRequest, Work};
use super::spec::Spec;
use super::tally::{Answered, Rare};
use crate::protocol::MessageSizes;

/// A worker needs little, and there may be ten thousand.
const STACK_BYTES: usize = 128 << 10;

/// The worker threads, one for each connection.
pub(super) struct NullRpc {
    spec: Spec,
    before: Option<BeforeRequest>,
    rare: Arc<Rare>,
    workers: Mutex<Workers>,
}

#[derive(Default)]
struct Workers {
    /// By the number of the connection.
    serving: HashMap<usize, Serving>,
    /// Requests of each connection that has ended; 0 for one that has not.
    ended: Vec<u64>,
    stopped: bool,
}

struct Serving {
    /// Shared with the worker, so that stopping can end its `read`.
    socket: Arc<OwnedFd>,
    answered: Arc<Answered>,
    thread: Option<JoinHandle<()>>,
}

impl NullRpc {
    pub(super) fn new(
        spec: &Spec,
        before: Option<BeforeRequest>,
        rare: Arc<Rare>,
    ) -> Result<Self, ServeError> {
        // reports bad parameters now, not at the first connection
        spec.service.worker(spec.seed, 0, None)?;
        Ok(Self {
            spec: spec.clone(),
            before,
            rare,
            workers: Mutex::default(),
        })
    }

    /// Starts the worker of a new connection; called by the accept thread.
    pub(super) fn connected(self: &Arc<Self>, socket: OwnedFd) -> io::Result<()> {
        let mut workers = self.workers();
        if workers.stopped {
            return Ok(());
        }
        let number = workers.ended.len();
        let socket = Arc::new(socket);
        let answered = Arc::new(Answered::default());
        let spec = &self.spec;
        let work = (spec.service)
            .worker(spec.seed, number as u64, self.before.clone())
            .map_err(io::Error::other)?;
        let worker = RpcWorker {
            socket: Arc::clone(&socket),
            answered: Arc::clone(&answered),
            sizes: spec.sizes,
            work,
        };
        let server = Arc::clone(self);
        let thread = Builder::new()
            .name(format!("null-rpc-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let end = worker.run();
                server.disconnected(number, end);
            })?;
        // even if the worker has ended by now: `disconnected` waits for the lock held here
        workers.ended.push(0);
        workers.serving.insert(
            number,
            Serving {
                socket,
                answered,
                thread: Some(thread),
            },
        );
        Ok(())
    }

    /// The last thing that a worker does: drops its `Serving`, and with it the socket and the
    /// handle of its thread.
    fn disconnected(&self, number: usize, end: End) {
        self.rare.ended(end);
        let mut workers = self.workers();
        if let Some(serving) = workers.serving.remove(&number) {
            workers.ended[number] = serving.answered.get();
        }
    }

    /// Requests answered on each connection.
    pub(super) fn by_worker(&self) -> Vec<u64> {
        let workers = self.workers();
        let mut all = workers.ended.clone();
        for (number, serving) in &workers.serving {
            all[*number] = serving.answered.get();
        }
        all
    }

    /// Ends every connection and waits for its worker.
    pub(super) fn stop(&self) {
        let mut ending = {
            let mut workers = self.workers();
            workers.stopped = true;
            for serving in workers.serving.values() {
                // ends a blocked read; fails if the client has closed the connection
                let _ = shutdown(&*serving.socket, Shutdown::Both);
            }
            workers
                .serving
                .values_mut()
                .filter_map(|serving| serving.thread.take())
                .collect::<Vec<_>>()
        };
        for thread in ending.drain(..) {
            // a panic has been reported on stderr
            let _ = thread.join();
        }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct RpcWorker {
    socket: Arc<OwnedFd>,
    answered: Arc<Answered>,
    sizes: MessageSizes,
    work: Work,
}

impl RpcWorker {
    fn run(mut self) -> End {
        let mut buffer = buffer(self.sizes);
        self.work.prepare();
        self.serve(&mut buffer)
    }

    /// Reads and writes until the client, or [`NullRpc::stop`], ends the connection.
    ///
    /// A request that comes in one piece takes one `read`, one `write` and no other system
    /// call (a service time that waits adds its sleep).
    fn serve(&mut self, buffer: &mut [u8]) -> End {
        let socket = &*self.socket;
        loop {
            let mut have = 0;
            while have < self.sizes.request_bytes {
                match read(socket, &mut buffer[have..self.sizes.request_bytes]) {
                    Ok(0) if have == 0 => return End::Closed,
                    Ok(0) => return End::MidRequest,
                    Ok(n) => have += n,
                    Err(Errno::INTR) => {}
                    Err(_) if have == 0 => return End::Closed,
                    Err(_) => return End::MidRequest,
                }
            }
            self.work.serve();
            let mut sent = 0;
            while sent < self.sizes.response_bytes {
                match write(socket, &buffer[sent..self.sizes.response_bytes]) {
                    Ok(n) => sent += n,
                    Err(Errno::INTR) => {}
                    Err(_) => return End::MidResponse,
                }
            }
            self.answered.one_more();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::thread::{SecureComputingMode, set_secure_computing_mode};

    use super::*;
    use crate::serve::ServiceTime;

    /// The paper: "they do not use any other system calls". The kernel ends a thread in
    /// strict seccomp mode at the first call that is not `read`, `write`, or its own end.
    #[test]
    fn a_worker_makes_no_system_call_but_read_and_write() {
        const REQUESTS: u64 = 1000;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let answered = Arc::new(Answered::default());
        let mut worker = RpcWorker {
            socket: Arc::new(listener.accept().unwrap().0.into()),
            answered: Arc::clone(&answered),
            sizes: MessageSizes::default(),
            work: ServiceTime::None.worker(1, 0, None).unwrap(),
        };
        let mut buffer = buffer(worker.sizes);
        // The end of a Rust thread makes other calls: it reads here for ever instead.
        let (nothing, kept_open) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
            worker.serve(&mut buffer);
            let _ = read(&nothing, &mut buffer[..]);
        });
        for k in 0..REQUESTS {
            let request = [k as u8; 128];
            let mut answer = [0; 128];
            if k % 10 == 0 {
                // in two pieces
                client.write_all(&request[..50]).unwrap();
                client.write_all(&request[50..]).unwrap();
            } else {
                client.write_all(&request).unwrap();
            }
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, request);
        }
        // counted just after the answer
        assert!(answered.get() >= REQUESTS - 1);
        // the thread lasts as long as the process
        std::mem::forget(kept_open);
    }
}
