//! Memory whose pages are new each time they are touched.

use std::io;

use rustix::mm::Advice;

use super::mapping::{Mapping, PAGE};

/// Memory that is given back to the kernel before each touch (MADV_DONTNEED), so that the
/// touch makes a page fault for each page. Each worker has its own.
pub(super) struct FreshPages(Mapping);

impl FreshPages {
    pub(super) fn new(pages: usize) -> io::Result<Self> {
        let memory = Mapping::anonymous(pages * PAGE)?;
        // one large page would be one fault; a kernel without them refuses this
        let _ = memory.advise(Advice::LinuxNoHugepage);
        Ok(Self(memory))
    }

    /// Gives the pages back and touches each.
    pub(super) fn touch(&mut self) {
        // a private anonymous mapping that is not locked: cannot be refused
        let _ = self.0.advise(Advice::LinuxDontNeed);
        for page in (0..self.0.bytes()).step_by(PAGE) {
            self.0.dirty(page);
        }
    }
}
