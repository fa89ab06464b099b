//! Remarks on stderr.

/// How much is said.
#[derive(Clone, Copy, Debug)]
pub struct Say {
    pub quiet: bool,
    pub verbose: bool,
}

impl Say {
    /// A step of the work, for who wants to follow it.
    pub fn step(self, text: &str) {
        if self.verbose {
            eprintln!("taillab: {text}");
        }
    }
}
