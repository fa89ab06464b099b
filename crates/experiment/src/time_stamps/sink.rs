//! Takes values one by one and hands them over in parts.

use std::path::Path;

use taillab_console::exit::Failure;
use taillab_model::Nanos;

use super::options::usage;

/// Time stamps handed over at a time.
pub(super) const PART: usize = 65_536;

/// What is done with each part and the bytes of the file that it took.
pub(super) type PartHandler<'a> = dyn FnMut(&[Nanos], u64) -> Result<(), Failure> + 'a;

/// Takes values one by one and hands them over in parts.
pub(super) struct Sink<'a> {
    path: &'a Path,
    /// Values must rise: they are instants, not lengths.
    rising: bool,
    /// The last value.
    last: Option<Nanos>,
    count: u64,
    part: Vec<Nanos>,
    bytes: u64,
    each: &'a mut PartHandler<'a>,
}

impl<'a> Sink<'a> {
    /// Hands the values of the file at `path` to `each`.
    pub(super) fn new(path: &'a Path, rising: bool, each: &'a mut PartHandler<'a>) -> Self {
        Self {
            path,
            rising,
            last: None,
            count: 0,
            part: Vec::with_capacity(PART),
            bytes: 0,
            each,
        }
    }

    /// Whether no value has come.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value at `place` (`line 17`), whose text took `bytes`.
    pub(super) fn push(
        &mut self,
        value: Nanos,
        bytes: u64,
        place: impl Fn() -> String,
    ) -> Result<(), Failure> {
        if self.rising
            && let Some(last) = self.last
            && value < last
        {
            let back = last.saturating_sub(value);
            return Err(usage(
                self.path,
                format!(
                    "is not in order: {} is {back} before the time stamp above it; sort the file by \
                     time",
                    place()
                ),
            ));
        }
        self.last = Some(value);
        self.count += 1;
        self.bytes += bytes;
        self.part.push(value);
        if self.part.len() == PART {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands over what there is.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        (self.each)(&self.part, self.bytes)?;
        self.part.clear();
        self.bytes = 0;
        Ok(())
    }
}
