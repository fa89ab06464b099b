//! What requests ask for; each protocol reads its own part.

use super::MessageSizes;
use super::keys::KeyDistribution;

/// What requests ask for.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Gets and sets of a key-value store.
    pub store: StoreWorkload,
    /// Something that is asked for by its path, as with HTTP's GET.
    pub resource: Resource,
    /// Sizes of an echo.
    pub echo: EchoWorkload,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            store: StoreWorkload::default(),
            resource: Resource::at("localhost", "/"),
            echo: EchoWorkload::default(),
        }
    }
}

/// Gets and sets of a key-value store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreWorkload {
    /// How many keys there are.
    pub keys: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of gets; the others are sets.
    pub get_share: f64,
    /// How popular each key is.
    pub distribution: KeyDistribution,
}

impl Default for StoreWorkload {
    /// The memcached workload of Tales of the Tail, section 3.1.
    fn default() -> Self {
        Self {
            keys: 10_000,
            key_bytes: 64,
            value_bytes: 1024,
            get_share: 0.9,
            distribution: KeyDistribution::Uniform,
        }
    }
}

/// Something that is asked for by its path, e.g. with the GET of HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The `Host` header: name or address, with the port unless it is 80.
    pub host: String,
    /// The path with its query, beginning with `/`.
    pub path: String,
    /// More headers, name and value.
    pub headers: Vec<(String, String)>,
    /// Pads the request to this size with one more header.
    pub request_bytes: Option<usize>,
    /// Asks the server to close the connection after its answer: `Connection: close` (RFC 9112, 9.6).
    pub closes: bool,
    /// About how long the answers are; the null responder imitates it. The default is
    /// the nginx workload of Tales of the Tail, section 3.1.
    pub response_bytes: usize,
}

impl Resource {
    /// The resource with this path, without further headers.
    pub fn at(host: &str, path: &str) -> Self {
        Self {
            host: host.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            request_bytes: None,
            closes: false,
            response_bytes: 849,
        }
    }
}

/// Sizes of an echo's messages.
pub type EchoWorkload = MessageSizes;
