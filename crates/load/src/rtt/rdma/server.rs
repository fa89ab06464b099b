//! The server's end of all connections, on one thread.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::handshake::{Hello, PATIENCE, answer, has_spoken, hear, is_gone};
use super::link::{Link, LinkError, OUT};
use super::{LOOKS, SLEEP, Verb, place};
use crate::protocol::echo::MAX_STREAM_BYTES;
use crate::rtt::error::RttError;
use crate::rtt::kinds::{Mode, Proto};
use crate::rtt::message::{LEAST_BYTES, Message};

/// The most clients at the same time, with those that have not spoken yet: each has pinned memory, descriptors, and a
/// look in every turn.
const MOST_CLIENTS: usize = 256;

/// Takes connections over TCP and answers on them by verbs.
pub(in crate::rtt) struct RdmaServer {
    listener: TcpListener,
    address: SocketAddr,
    sleeps: bool,
}

/// A client that has not sent its message yet.
struct Newcomer {
    control: TcpStream,
    since: Instant,
}

/// One connection. It ends when its client closes the TCP connection.
struct Served {
    control: TcpStream,
    link: Link,
    verb: Verb,
    /// The area of the last message; its receive is posted again after the next one.
    spent: Option<usize>,
}

impl RdmaServer {
    /// Listens in the calling thread's network namespace; an RDMA device there must have the address.
    ///
    /// # Errors
    /// [`RttError::Unavailable`], [`RttError::Server`].
    pub(in crate::rtt) fn listen(
        address: SocketAddr,
        proto: Proto,
        mode: Mode,
    ) -> Result<Self, RttError> {
        let missing = |why| RttError::Unavailable { proto, why };
        let place = place::choose(Path::new("/sys"), address.ip()).map_err(missing)?;
        let sleeps = mode == Mode::Blocking;
        // a trial: better an error now than with the first client
        let verb = Verb::of(proto).unwrap_or(Verb::Send);
        Link::open(place, LEAST_BYTES, sleeps).map_err(|error| verb.error(error, "", 0))?;
        let failed = |error: io::Error| RttError::Server(format!("{address}: {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            sleeps,
        })
    }

    /// Where it listens.
    pub(in crate::rtt) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop.
    pub(in crate::rtt) fn serve(self, stop: &AtomicBool) {
        let mut newcomers: Vec<Newcomer> = Vec::new();
        let mut all: Vec<Served> = Vec::new();
        while !stop.load(Relaxed) {
            if self.sleeps {
                self.sleep(&newcomers, &mut all);
            }
            for _ in 0..LOOKS {
                let before = all.len();
                all.retain_mut(|served| served.answer().is_ok());
                if self.sleeps || all.len() < before {
                    break;
                }
                std::hint::spin_loop();
            }
            self.accept(&mut newcomers, &mut all);
            all.retain(|served| !is_gone(&served.control));
        }
    }

    /// Sleeps until a client comes, goes or sends.
    fn sleep(&self, newcomers: &[Newcomer], all: &mut Vec<Served>) {
        let mut looks_again = false;
        all.retain_mut(|served| match served.link.arm() {
            Ok(is_new) => {
                looks_again |= is_new;
                true
            }
            Err(_) => false,
        });
        if looks_again {
            return;
        }
        let mut files = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for served in all.iter() {
            let events = served.link.events();
            let events = events.unwrap_or_else(|| served.control.as_fd());
            files.push(PollFd::from_borrowed_fd(events, PollFlags::IN));
            files.push(PollFd::new(&served.control, PollFlags::IN));
        }
        // behind the others, whose places are counted below
        files.extend(
            newcomers
                .iter()
                .map(|one| PollFd::new(&one.control, PollFlags::IN)),
        );
        let longest = SLEEP.try_into().ok();
        // an interrupted sleep is a short one
        let _ = poll(&mut files, longest.as_ref());
        let mut raised = (files.iter().skip(1).step_by(2))
            .map(|file| !file.revents().is_empty())
            .collect::<Vec<_>>()
            .into_iter();
        all.retain_mut(|served| match raised.next() {
            Some(true) => served.link.take_event().is_ok(),
            _ => true,
        });
    }

    /// Accepts all waiting clients, and serves those whose message is there: one that stays silent must
    /// not hold up the others. One that cannot be served is told why.
    fn accept(&self, newcomers: &mut Vec<Newcomer>, all: &mut Vec<Served>) {
        while let Ok((control, _)) = self.listener.accept() {
            if newcomers.len() + all.len() >= MOST_CLIENTS {
                let why = format!("{MOST_CLIENTS} clients are served already: try again later");
                // not in its way if it does not listen
                drop(answer(&control, Err(&why)));
                continue;
            }
            // Linux does not inherit the flag; set in any case, since the handshake blocks
            if control.set_nonblocking(false).is_ok() {
                let since = Instant::now();
                newcomers.push(Newcomer { control, since });
            }
        }
        for newcomer in newcomers.extract_if(.., |newcomer| has_spoken(&newcomer.control)) {
            let Ok(hello) = hear(&newcomer.control) else {
                continue;
            };
            // a client that cannot be answered has gone
            match Served::open(newcomer.control, &hello) {
                Ok(served) if answer(&served.control, Ok(&served.link.address())).is_ok() => {
                    all.push(served);
                }
                Ok(_) => {}
                Err((control, why)) => drop(answer(&control, Err(&why))),
            }
        }
        newcomers.retain(|newcomer| newcomer.since.elapsed() < PATIENCE);
    }
}

impl Served {
    fn open(control: TcpStream, hello: &Hello) -> Result<Self, (TcpStream, String)> {
        match Self::link(&control, hello) {
            Ok(link) => Ok(Self {
                control,
                link,
                verb: hello.verb,
                spent: None,
            }),
            Err(why) => Err((control, why)),
        }
    }

    /// A link that is ready for the client's first message.
    fn link(control: &TcpStream, hello: &Hello) -> Result<Link, String> {
        let size = hello.size as usize;
        if !(LEAST_BYTES..=MAX_STREAM_BYTES).contains(&size) {
            return Err(format!("messages of {size} bytes are not served"));
        }
        let own = control.local_addr().map_err(|error| error.to_string())?;
        let place = place::choose(Path::new("/sys"), own.ip())?;
        let said = |error: LinkError| hello.verb.error(error, "the client", 0).to_string();
        // events cost nothing while nobody waits for them
        let mut link = Link::open(place, size, true).map_err(said)?;
        for area in 0..OUT {
            match hello.verb {
                Verb::Send => link.post_receive(area).map_err(said)?,
                Verb::Read => link.fill(area, Message::new(size, area as u64).bytes()),
                Verb::Write => {}
            }
        }
        link.join(hello.address).map_err(said)?;
        Ok(link)
    }

    /// Sends back what has come; an error if the connection is broken.
    #[inline]
    fn answer(&mut self) -> Result<(), LinkError> {
        if self.verb != Verb::Send {
            return Ok(());
        }
        while let Some(done) = self.link.poll()? {
            if !done.is_received {
                continue;
            }
            // the client has received the answer from that area
            if let Some(area) = self.spent.replace(done.area) {
                self.link.post_receive(area)?;
            }
            self.link.post(Verb::Send, done.area, done.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening() -> RdmaServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        RdmaServer {
            address: listener.local_addr().unwrap(),
            listener,
            sleeps: false,
        }
    }

    #[test]
    fn a_client_that_says_nothing_holds_up_nobody() {
        let server = listening();
        let silent = TcpStream::connect(server.address).unwrap();
        let (mut newcomers, mut all) = (Vec::new(), Vec::new());
        // the server goes on while the client is still there
        while newcomers.is_empty() {
            server.accept(&mut newcomers, &mut all);
        }
        drop(silent);
        while !newcomers.is_empty() {
            server.accept(&mut newcomers, &mut all);
        }
        assert!(all.is_empty());
    }

    #[test]
    fn clients_beyond_the_limit_are_told_so_and_cost_nothing() {
        let server = listening();
        let (mut newcomers, mut all) = (Vec::new(), Vec::new());
        let mut clients = Vec::new();
        // one by one: more than a backlog would wait for the server
        for number in 1..=MOST_CLIENTS {
            clients.push(TcpStream::connect(server.address).unwrap());
            while newcomers.len() < number {
                server.accept(&mut newcomers, &mut all);
            }
        }
        let refused = TcpStream::connect(server.address).unwrap();
        while !has_spoken(&refused) {
            server.accept(&mut newcomers, &mut all);
        }
        assert_eq!(newcomers.len(), MOST_CLIENTS);
        // places are free again once others have gone
        clients.clear();
        while !newcomers.is_empty() {
            server.accept(&mut newcomers, &mut all);
        }
        let _late = TcpStream::connect(server.address).unwrap();
        while newcomers.is_empty() {
            server.accept(&mut newcomers, &mut all);
        }
    }

    #[test]
    fn a_client_has_time_to_open_its_adapter() {
        let server = listening();
        let _clients = [0, 1].map(|_| TcpStream::connect(server.address).unwrap());
        let (mut newcomers, mut all) = (Vec::new(), Vec::new());
        while newcomers.len() < 2 {
            server.accept(&mut newcomers, &mut all);
        }
        newcomers[0].since -= PATIENCE;
        newcomers[1].since -= PATIENCE / 2;
        server.accept(&mut newcomers, &mut all);
        assert_eq!((newcomers.len(), all.len()), (1, 0));
    }
}
