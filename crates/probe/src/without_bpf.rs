//! The probe's interface without its eBPF programs: it can never be loaded.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use taillab_model::doctor::Survey;
use taillab_model::summary::Hook;
use taillab_model::{EventSink, LostEvents, Monotonic, Nanos, Recording, ThreadName};

use crate::{KernelAccount, ProbeError, ProbeSpec, ProgramCost};

/// Methods of a type without values: they can never be called.
macro_rules! never {
    ($(
        $name:ident(& $($mutable:ident)? $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;
    )+) => {
        $(
            pub fn $name(& $($mutable)? self $(, $argument: $kind)*) $(-> $result)? {
                match *self {}
            }
        )+
    };
}

/// A probe that cannot exist, because taillab was built without the feature `bpf`.
#[derive(Debug)]
pub enum Probe {}

#[expect(missing_docs, reason = "documented in the real probe")]
impl Probe {
    /// Always fails.
    ///
    /// # Errors
    /// [`ProbeError::NotBuilt`].
    pub fn load(_spec: &ProbeSpec) -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuilt)
    }

    /// Always fails.
    ///
    /// # Errors
    /// [`ProbeError::NotBuilt`].
    pub fn load_avoiding(_spec: &ProbeSpec, _avoided: &[&str]) -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuilt)
    }

    never! {
        hooks(&) -> Vec<Hook>;
        threads(&) -> Vec<ThreadName>;
        upstreams(&) -> Vec<(u16, SocketAddr)>;
        reserve(&mut, _expected_events: u64) -> Result<(), ProbeError>;
        attach(&mut) -> Result<(), ProbeError>;
        attach_all(&mut) -> Result<(), ProbeError>;
        attach_ends(&mut) -> Result<(), ProbeError>;
        slices(&) -> Option<u32>;
        detach(&mut);
        is_attached(&) -> bool;
        drain(&mut, _max_events: usize) -> usize;
        base(&) -> Monotonic;
        drain_into(&mut, _sink: &mut (impl EventSink + ?Sized)) -> io::Result<u64>;
        relieve(&mut, _sink: &mut (impl EventSink + ?Sized)) -> io::Result<()>;
        finish_into(&mut, _sink: &mut (impl EventSink + ?Sized)) -> io::Result<()>;
        lost(&) -> Result<LostEvents, ProbeError>;
        take_lost(&mut) -> Result<LostEvents, ProbeError>;
        discard(&mut) -> Result<(), ProbeError>;
        costs(&) -> Result<Vec<ProgramCost>, ProbeError>;
        take_recording(&mut) -> Result<Recording, ProbeError>;
    }

    pub fn finish(self) -> Result<Recording, ProbeError> {
        match self {}
    }
}

/// A loop in the kernel that cannot exist, for the same reason as [`Probe`].
#[derive(Debug)]
pub enum KernelLoop {}

#[expect(missing_docs, reason = "documented in the real loop")]
impl KernelLoop {
    /// Always fails.
    ///
    /// # Errors
    /// [`ProbeError::NotBuilt`].
    pub fn load(_masked: bool) -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuilt)
    }

    never! {
        watch(&, _length: Duration, _gap: Nanos) -> Result<(), ProbeError>;
        take(&) -> Result<KernelAccount, ProbeError>;
    }
}

/// A watch of interrupts that cannot exist, for the same reason as [`Probe`].
#[derive(Debug)]
pub enum IpiWatch {}

#[expect(missing_docs, reason = "documented in the real watch")]
impl IpiWatch {
    /// Always fails.
    ///
    /// # Errors
    /// [`ProbeError::NotBuilt`].
    pub fn start() -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuilt)
    }

    never! {
        asked(&mut, _cpu: u16) -> Vec<(Monotonic, u16)>;
    }
}

/// Always fails.
///
/// # Errors
/// [`ProbeError::NotBuilt`].
pub fn survey() -> Result<Survey, ProbeError> {
    Err(ProbeError::NotBuilt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_says_what_was_left_out() {
        let spec = ProbeSpec {
            devices: crate::Devices::all_in(1),
            queues: false,
            others: Vec::new(),
            served_ports: Vec::new(),
            transport: crate::Transport::Udp,
            server_port: 1,
            addresses: crate::Addresses::All,
            server: crate::ServerProcesses::InNamespace,
            server_cpus: Vec::new(),
            generator_cpus: Vec::new(),
            stamps: taillab_model::MiddleStamps::All,
            disturbances: crate::Disturbances::ALL,
            payload_bytes: 0,
            ring_bytes_per_cpu: 0,
        };
        let error = Probe::load(&spec).unwrap_err();
        assert!(error.to_string().contains("feature `bpf`"), "{error}");
    }
}
