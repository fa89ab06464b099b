//! The modes and sizes that a protocol allows.

use super::error::RttError;
use super::kinds::{Mode, Proto};
use super::message::LEAST_BYTES;
use crate::protocol::echo::MAX_STREAM_BYTES;

/// The largest UDP payload over IPv4.
const MOST_DATAGRAM_BYTES: usize = 65_507;

impl Proto {
    /// Checks that the protocol supports the mode and the size.
    ///
    /// # Errors
    /// [`RttError::Mode`], [`RttError::Size`].
    pub fn check(self, mode: Mode, size: usize) -> Result<(), RttError> {
        if !self.modes().contains(&mode) {
            let names: Vec<&str> = self.modes().iter().map(|mode| mode.name()).collect();
            return Err(RttError::Mode {
                proto: self,
                mode,
                instead: format!("it has {}", names.join(", ")),
            });
        }
        let max = match self.is_datagram() {
            true => MOST_DATAGRAM_BYTES,
            false => MAX_STREAM_BYTES,
        };
        if !(LEAST_BYTES..=max).contains(&size) {
            return Err(RttError::Size {
                proto: self,
                size,
                min: LEAST_BYTES,
                max,
            });
        }
        Ok(())
    }

    /// Checks that messages of the protocol can be sent by a schedule.
    ///
    /// # Errors
    /// [`RttError::Unavailable`].
    pub fn check_open(self) -> Result<(), RttError> {
        match self.is_rdma() {
            false => Ok(()),
            true => Err(RttError::Unavailable {
                proto: self,
                why: "it has no open loop: remove --open, -R and -u".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused_with_what_does() {
        let error = Proto::Shm.check(Mode::Epoll, 64).unwrap_err().to_string();
        assert!(
            error.contains("shm") && error.contains("nonblocking"),
            "{error}"
        );
        let error = Proto::Udp.check(Mode::Blocking, 65_508).unwrap_err();
        assert!(error.to_string().contains("65507"), "{error}");
        assert!(Proto::Tcp.check(Mode::Blocking, 13).is_err());
        for proto in Proto::ALL {
            for &mode in proto.modes() {
                proto.check(mode, 64).unwrap();
            }
            assert_eq!(proto.check_open().is_err(), proto.is_rdma());
        }
    }
}
