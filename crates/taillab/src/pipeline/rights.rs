//! Before and after the part of a command that needs root.

use taillab_host::{Invoker, JournalFolder, Roots};

use crate::exit::{Exit, Failure};
use crate::fail::host;
use crate::say::Say;

/// Removes what runs that were killed have left, and says so.
pub fn recover(roots: &Roots, say: Say) -> Result<(), Failure> {
    for recovered in JournalFolder::of_this_user().recover(roots).map_err(host)? {
        say.note(&recovered);
    }
    Ok(())
}

/// Gives root up for good, before the part of a command that needs no privilege: what was recorded came from
/// outside, and files belong to whoever asked for them. Under sudo the rest runs as the user who called it; root
/// itself stays the owner of its files, without capabilities.
pub fn give_up_root(roots: &Roots) -> Result<(), Failure> {
    Invoker::find(roots).become_for_good().map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!(
                "cannot give up root: {error}; go on as an ordinary user (with a recording: taillab explain DIR)"
            ),
        )
    })
}
