//! The probe's interface where it was not built: it can never be loaded.

use std::io;

use taillab_model::doctor::Survey;
use taillab_model::summary::Hook;
use taillab_model::{EventSink, LostEvents, Monotonic, Nanos, Recording, ThreadName};

use crate::{KernelAccount, ProbeError, ProbeSpec, ProgramCost};

/// A probe that cannot exist, because taillab was built without the feature `bpf`.
#[derive(Debug)]
pub enum Probe {}

#[expect(missing_docs, reason = "documented on the probe that can exist")]
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

    pub fn hooks(&self) -> Vec<Hook> {
        match *self {}
    }

    pub fn threads(&self) -> Vec<ThreadName> {
        match *self {}
    }

    pub fn reserve(&mut self, _expected_events: u64) -> Result<(), ProbeError> {
        match *self {}
    }

    pub fn attach(&mut self) -> Result<(), ProbeError> {
        match *self {}
    }

    pub fn detach(&mut self) {
        match *self {}
    }

    pub fn is_attached(&self) -> bool {
        match *self {}
    }

    pub fn pending(&self) -> u64 {
        match *self {}
    }

    pub fn drain(&mut self, _max_events: usize) -> usize {
        match *self {}
    }

    pub fn base(&self) -> Monotonic {
        match *self {}
    }

    pub fn drain_into(&mut self, _sink: &mut impl EventSink) -> io::Result<u64> {
        match *self {}
    }

    pub fn finish_into(&mut self, _sink: &mut impl EventSink) -> io::Result<()> {
        match *self {}
    }

    pub fn lost(&self) -> Result<LostEvents, ProbeError> {
        match *self {}
    }

    pub fn discard(&mut self) -> Result<(), ProbeError> {
        match *self {}
    }

    pub fn costs(&self) -> Result<Vec<ProgramCost>, ProbeError> {
        match *self {}
    }

    pub fn finish(self) -> Result<Recording, ProbeError> {
        match self {}
    }

    pub fn take_recording(&mut self) -> Result<Recording, ProbeError> {
        match *self {}
    }
}

/// A loop in the kernel that cannot exist.
#[derive(Debug)]
pub enum KernelLoop {}

#[expect(missing_docs, reason = "documented on the loop that can exist")]
impl KernelLoop {
    /// Always fails.
    ///
    /// # Errors
    /// [`ProbeError::NotBuilt`].
    pub fn load(_masked: bool) -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuilt)
    }

    pub fn longest_call(&self) -> std::time::Duration {
        match *self {}
    }

    pub fn watch(&self, _length: std::time::Duration, _gap: Nanos) -> Result<(), ProbeError> {
        match *self {}
    }

    pub fn take(&self) -> Result<KernelAccount, ProbeError> {
        match *self {}
    }
}

/// A watch that cannot exist.
#[derive(Debug)]
pub enum IpiWatch {}

#[expect(missing_docs, reason = "documented on the watch that can exist")]
impl IpiWatch {
    /// Always fails.
    ///
    /// # Errors
    /// [`ProbeError::NotBuilt`].
    pub fn start() -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuilt)
    }

    pub fn asked(&mut self, _cpu: u16) -> Vec<(Monotonic, u16)> {
        match *self {}
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
            transport: crate::Transport::Udp,
            server_port: 1,
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
