//! For how long the interrupts of a network device's receive context stay off while a server polls it
//! (generic netlink, since Linux 6.13).

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::{Knob, SettingError, within, write_namespace};
use crate::netdev;
use crate::roots::Roots;

/// The irq-suspend-timeout of a receive context, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NapiSuspension {
    /// The device.
    pub device: String,
    /// The inode of its network namespace; `None` for ours.
    pub namespace: Option<u64>,
    /// The number of the receive context.
    pub napi: u32,
}

/// Asks the kernel in a device's network namespace. A recorded tree has no kernel to ask.
fn ask<T: Send>(
    roots: &Roots,
    namespace: Option<u64>,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    match *roots == Roots::default() {
        true => within(roots, namespace, act),
        false => Err(rustix::io::Errno::NODEV.into()),
    }
}

/// The settings of all receive contexts of a device that have such a time.
pub(crate) fn suspensions(
    roots: &Roots,
    device: &str,
    namespace: Option<u64>,
) -> Vec<NapiSuspension> {
    let found = ask(roots, namespace, || netdev::napis(device));
    let found = found.unwrap_or_default().into_iter();
    found
        .filter(|napi| napi.suspend_timeout_ns.is_some())
        .map(|napi| NapiSuspension {
            device: device.to_owned(),
            namespace,
            napi: napi.id,
        })
        .collect()
}

impl Knob for NapiSuspension {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let found = ask(roots, self.namespace, || netdev::napis(&self.device));
        let found = found.map_err(|error| self.unreadable(error))?;
        let own = found.into_iter().find(|napi| napi.id == self.napi);
        let timeout = own.and_then(|napi| napi.suspend_timeout_ns);
        Ok(timeout.ok_or_else(|| self.missing())?.to_string())
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let timeout_ns: u64 =
            (value.parse()).map_err(|_| self.refused(value, rustix::io::Errno::INVAL))?;
        let set = || netdev::set_suspend_timeout(self.napi, timeout_ns);
        ask(roots, self.namespace, set).map_err(|error| self.refused(value, error))
    }
}

impl fmt::Display for NapiSuspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "irq-suspend-timeout({} napi {})", self.device, self.napi)?;
        write_namespace(f, self.namespace)
    }
}
