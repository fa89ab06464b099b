//! The times of a request at the client: each is one entry here. Tables and figures, the columns of `requests.parquet` and the
//! glossary have its names and its meaning from there.

use taillab_model::Distribution;
use taillab_model::summary::LoadSummary;

use crate::text::Ink;

/// Declares [`LoadSeries`]: of each its meaning, its label, its short label, its key, its colour, and where it is in the result.
macro_rules! series {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident($label:literal, $short:literal, $key:literal, $ink:ident, $of:expr);
    )*) => {
        /// The distributions of a load.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum LoadSeries {
            $($(#[doc = $doc])* $name,)*
        }

        impl LoadSeries {
            /// In the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name for people.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }

            /// The same where there is little room.
            pub(crate) const fn short_label(self) -> &'static str {
                match self {
                    $(Self::$name => $short,)*
                }
            }

            /// The name in machine-readable outputs.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $key,)*
                }
            }

            /// What it is, in a sentence without its full stop.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*).trim_ascii(),)*
                }
            }

            /// Its colour in tables.
            pub(crate) const fn ink(self) -> Ink {
                match self {
                    $(Self::$name => Ink::$ink,)*
                }
            }

            /// The distribution of a load; `None` where it has none.
            pub(crate) fn of(self, load: &LoadSummary) -> Option<&Distribution> {
                let of: fn(&LoadSummary) -> Option<&Distribution> = match self {
                    $(Self::$name => $of,)*
                };
                of(load)
            }
        }
    };
}

series! {
    /// from the intended send to the response: what a user waits
    ResponseTime("response time", "response", "response_time", Measured, |load| Some(&load.response_time));
    /// from the actual send to the response
    ServiceTime("service time", "service", "service_time", Client, |load| Some(&load.service_time));
    /// how long the request then waited in its client: its connection was busy with the request before, or being opened
    ConnectionWait("wait for connection", "wait", "connection_wait", Notable, |load| load.clients.as_ref()?.wait.as_ref());
    /// where each request has a connection of its own (`--connect each`): from the SYN until it is up and the request
    /// is sent; 0 where connections are kept
    Connecting("connecting", "connect", "connecting", Client, |load| {
        Some(&load.clients.as_ref()?.connecting.as_ref()?.time)
    });
    /// from the intended send until the generator came to the request: its own delay
    Lateness("lateness", "late", "lateness", Notable, |load| Some(&load.lateness));
    /// the response time of the same client at a responder that does nothing
    Floor("client’s floor", "floor", "floor", Ideal, |_| None);
}
