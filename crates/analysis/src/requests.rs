//! Matched requests as compact columns: a recording may hold ten million of them.

use taillab_model::{ClientTimes, Monotonic, Nanos, Operation, Request, Stamps};

use crate::commands::Command;
use crate::id_map::IdMap;

/// This offset means: no stamp. For T6, which is always known, it means that the stamps do not fit
/// into offsets and are stored separately.
const NONE: u32 = u32::MAX;

/// Requests by their place: 28 bytes each, 25 more once the client's times are known, and 2 more where the content was
/// read.
///
/// T2 to T6 are offsets from T1 of at most 4.29 s. Stamps that do not fit, because they are further
/// away or before T1, are stored whole in a map, so nothing is lost.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// T1.
    came_in: Vec<Monotonic>,
    /// T2 to T6, as nanoseconds since T1.
    offsets_ns: Vec<[u32; 5]>,
    /// Stamps that do not fit into offsets, by place.
    unusual: IdMap<Stamps>,
    /// The client's times; empty, or as long as the others.
    clients: Vec<Option<ClientTimes>>,
    /// The operation of each; like `clients`.
    operations: Vec<Option<Operation>>,
    /// The command of each; empty, or as long as the others.
    commands: Vec<Option<Command>>,
}

/// T2 to T6 as offsets, if they fit.
fn offsets(stamps: &Stamps) -> Option<[u32; 5]> {
    let since = |at: Monotonic| {
        let offset = u32::try_from(at.checked_since(stamps.t1)?.get()).ok()?;
        (offset != NONE).then_some(offset)
    };
    let mut offsets = [NONE; 5];
    for (offset, stamp) in offsets.iter_mut().zip(stamps.middle()) {
        if let Some(at) = stamp {
            *offset = since(at)?;
        }
    }
    offsets[4] = since(stamps.t6)?;
    Some(offsets)
}

impl Requests {
    /// Number of requests.
    pub const fn len(&self) -> usize {
        self.came_in.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.came_in.is_empty()
    }

    /// T1 of the request at `place`.
    ///
    /// # Panics
    /// Past the end, like every accessor here except [`Self::client`].
    pub fn t1(&self, place: usize) -> Monotonic {
        self.came_in[place]
    }

    /// T6 of the request at `place`.
    pub fn t6(&self, place: usize) -> Monotonic {
        match self.offsets_ns[place][4] {
            NONE => self.stamps(place).t6,
            offset => self.came_in[place] + Nanos::new(offset.into()),
        }
    }

    /// T6 − T1; zero where late events put T6 before T1.
    pub fn sojourn(&self, place: usize) -> Nanos {
        match self.offsets_ns[place][4] {
            NONE => self.t6(place).saturating_since(self.came_in[place]),
            offset => Nanos::new(offset.into()),
        }
    }

    /// The server's stamps of the request at `place`.
    #[inline]
    pub fn stamps(&self, place: usize) -> Stamps {
        let t1 = self.came_in[place];
        let offsets = self.offsets_ns[place];
        if offsets[4] == NONE
            && let Some(&stamps) = self.unusual.get(&(place as u32))
        {
            return stamps;
        }
        let at = |offset: u32| t1 + Nanos::new(offset.into());
        let stamp = |offset: u32| (offset != NONE).then(|| at(offset));
        let [t2, t3, t4, t5, t6] = offsets;
        Stamps {
            t1,
            t2: stamp(t2),
            t3: stamp(t3),
            t4: stamp(t4),
            t5: stamp(t5),
            t6: at(t6),
        }
    }

    /// The client's times of the request at `place`, where they were joined.
    pub fn client(&self, place: usize) -> Option<ClientTimes> {
        self.clients.get(place).copied().flatten()
    }

    /// When the request at `place` was due: its intended send; without a client, T1.
    pub fn due(&self, place: usize) -> Monotonic {
        self.client(place)
            .map_or(self.came_in[place], |client| client.intended)
    }

    /// What the request at `place` asks for, where its content was read and that has a name.
    pub fn command(&self, place: usize) -> Option<Command> {
        self.commands.get(place).copied().flatten()
    }

    /// What is known about the stamps and the client of the request at `place`.
    pub fn get(&self, place: usize) -> Request {
        Request {
            server: self.stamps(place),
            client: self.client(place),
            operation: self.operations.get(place).copied().flatten(),
        }
    }

    /// All requests in their order, by value.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Request> + ExactSizeIterator + Clone {
        (0..self.len()).map(|place| self.get(place))
    }

    /// Appends a request.
    pub fn push(&mut self, request: Request) {
        let place = self.len();
        self.push_stamps(request.server);
        if request.client.is_some() || request.operation.is_some() {
            self.set_client(place, request.client, request.operation);
        }
    }

    /// Appends a request whose client's side is not known.
    pub(crate) fn push_stamps(&mut self, stamps: Stamps) {
        let place = self.len() as u32;
        self.came_in.push(stamps.t1);
        self.offsets_ns.push(offsets(&stamps).unwrap_or_else(|| {
            self.unusual.insert(place, stamps);
            [NONE; 5]
        }));
        if !self.operations.is_empty() {
            self.clients.push(None);
            self.operations.push(None);
        }
        if !self.commands.is_empty() {
            self.commands.push(None);
        }
    }

    /// Sets what the last request asks for.
    pub(crate) fn set_command(&mut self, command: Option<Command>) {
        self.commands.resize(self.len(), None);
        if let Some(last) = self.commands.last_mut() {
            *last = command;
        }
    }

    /// Sets what the client knows about the request at `place`.
    pub fn set_client(
        &mut self,
        place: usize,
        times: Option<ClientTimes>,
        operation: Option<Operation>,
    ) {
        self.clients.resize(self.len(), None);
        self.operations.resize(self.len(), None);
        self.clients[place] = times;
        self.operations[place] = operation;
    }

    /// The place of the first request that came in at `from` or later; all are in order of T1.
    pub(crate) fn first_from(&self, from: Monotonic) -> usize {
        self.came_in.partition_point(|t1| *t1 < from)
    }

    /// Removes the requests from `place` on and returns them.
    pub(crate) fn split_off(&mut self, place: usize) -> Self {
        let clients = place.min(self.clients.len());
        let commands = place.min(self.commands.len());
        let mut later = Self {
            came_in: self.came_in.split_off(place),
            offsets_ns: self.offsets_ns.split_off(place),
            unusual: IdMap::default(),
            clients: self.clients.split_off(clients),
            operations: self.operations.split_off(clients),
            commands: self.commands.split_off(commands),
        };
        let first = place as u32;
        let moved = self.unusual.extract_if(|at, _| *at >= first);
        later.unusual = moved.map(|(at, stamps)| (at - first, stamps)).collect();
        later
    }

    /// The places of the requests in order of T1; `None` if they are in that order.
    pub(crate) fn order(&self) -> Option<Vec<u32>> {
        if self.came_in.is_sorted() {
            return None;
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|&place| self.came_in[place as usize]);
        Some(order)
    }

    /// Puts the requests into the order that [`Requests::order`] returned.
    pub(crate) fn reorder(&mut self, order: &[u32]) {
        self.came_in = reordered(&self.came_in, order);
        self.offsets_ns = reordered(&self.offsets_ns, order);
        if !self.operations.is_empty() {
            self.clients = reordered(&self.clients, order);
            self.operations = reordered(&self.operations, order);
        }
        if !self.commands.is_empty() {
            self.commands = reordered(&self.commands, order);
        }
        if !self.unusual.is_empty() {
            let mut unusual = std::mem::take(&mut self.unusual);
            let moved = order.iter().enumerate();
            let moved = moved.filter_map(|(to, from)| Some((to as u32, unusual.remove(from)?)));
            self.unusual = moved.collect();
        }
    }
}

/// The items at the places in `order`, in that order.
pub(crate) fn reordered<T: Copy>(items: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&place| items[place as usize]).collect()
}

/// Of what the requests ask for, nothing: a [`Request`] does not say it.
impl PartialEq for Requests {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Extend<Request> for Requests {
    fn extend<I: IntoIterator<Item = Request>>(&mut self, requests: I) {
        for request in requests {
            self.push(request);
        }
    }
}

impl FromIterator<Request> for Requests {
    fn from_iter<I: IntoIterator<Item = Request>>(requests: I) -> Self {
        let mut these = Self::default();
        these.extend(requests);
        these
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::REDIS;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    fn request(t1: u64, middle: [Option<u64>; 4], t6: u64) -> Request {
        Stamps::new(at(t1), middle.map(|stamp| stamp.map(at)), at(t6)).into()
    }

    /// Usual requests, without stamps, on both sides of the longest offset, and with stamps before T1.
    fn all() -> Vec<Request> {
        let far = u64::from(u32::MAX);
        vec![
            request(100, [Some(110), Some(120), Some(130), Some(140)], 150),
            request(90, [None; 4], 90),
            request(80, [Some(80), None, None, None], 80 + far - 1),
            request(70, [None; 4], 70 + far),
            request(60, [None, None, None, Some(u64::MAX)], u64::MAX),
            request(50, [Some(40), None, None, Some(60)], 70),
            request(40, [None; 4], 30),
        ]
    }

    #[test]
    fn what_goes_in_comes_out() {
        let requests: Requests = all().into_iter().collect();
        assert_eq!(requests.iter().collect::<Vec<_>>(), all());
        for (place, request) in all().iter().enumerate() {
            let Stamps { t1, t6, .. } = request.server;
            assert_eq!((requests.t1(place), requests.t6(place)), (t1, t6));
            assert_eq!(requests.sojourn(place), t6.saturating_since(t1));
        }
    }

    #[test]
    fn the_client_is_kept_with_its_request() {
        let times = ClientTimes {
            intended: at(10),
            sent: at(20),
            received: None,
        };
        let mut requests: Requests = all().into_iter().collect();
        requests.set_client(2, Some(times), Some(Operation::Set));
        let late = Request {
            client: Some(ClientTimes {
                received: Some(at(99)),
                ..times
            }),
            operation: Some(Operation::Get),
            ..all()[0]
        };
        requests.push(late);
        requests.push(all()[1]);
        assert_eq!(requests.client(2), Some(times));
        assert_eq!(requests.get(2).operation, Some(Operation::Set));
        assert_eq!(requests.get(7), late);
        assert_eq!((requests.client(0), requests.client(8)), (None, None));
        assert_eq!((requests.due(2), requests.due(0)), (at(10), at(100)));
    }

    #[test]
    fn splitting_loses_nothing() {
        for place in 0..=all().len() {
            let mut first: Requests = all().into_iter().collect();
            first.set_client(1, None, Some(Operation::Get));
            first.set_command(Command::named(b"GET", REDIS));
            let whole: Vec<Request> = first.iter().collect();
            let later = first.split_off(place);
            assert_eq!(first.len(), place);
            let last = match later.len() {
                0 => first.command(first.len() - 1),
                left => later.command(left - 1),
            };
            assert_eq!(last.map(Command::name), Some("GET"));
            assert!(first.iter().chain(later.iter()).eq(whole));
        }
    }

    #[test]
    fn sorting_moves_every_column() {
        let mut requests: Requests = all().into_iter().collect();
        requests.set_client(0, None, Some(Operation::Call));
        // of the last one, whose T1 is the first
        requests.set_command(Command::named(b"GET", REDIS));
        let mut expected: Vec<Request> = requests.iter().collect();
        expected.sort_by_key(|request| request.server.t1);
        let order = requests.order().unwrap_or_default();
        requests.reorder(&order);
        let commands = (0..requests.len()).filter_map(|place| requests.command(place));
        assert_eq!(commands.map(Command::name).collect::<Vec<_>>(), ["GET"]);
        assert_eq!(requests.command(0).map(Command::name), Some("GET"));
        assert_eq!(requests.iter().collect::<Vec<_>>(), expected);
        assert_eq!(requests.order(), None);
    }
}
