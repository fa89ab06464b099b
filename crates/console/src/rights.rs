//! Recovery before the part of a command that needs root, and giving up root after it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use taillab_host::tune::{RevertSelection, Tuner};
use taillab_host::{Invoker, JournalFolder, Roots, run_unprivileged};

use crate::exit::{Exit, Failure, OrExit};
use crate::fail::host;
use crate::messages::Messages;

/// Cleans up after commands that were killed, puts back the settings that they held, and says so.
pub fn recover(roots: &Roots, messages: Messages) -> Result<(), Failure> {
    for recovered in JournalFolder::of_this_user().recover(roots).map_err(host)? {
        messages.note(&recovered);
    }
    // a user without a home has no journal of changes
    let tuner = Tuner::of_this_user().ok().filter(Tuner::may_look);
    let Some(tuner) = tuner else {
        return Ok(());
    };
    for reverted in tuner
        .revert(RevertSelection::Abandoned, &mut |_| {})
        .map_err(host)?
    {
        let what = reverted.mitigations.join(", ");
        match reverted.is_done {
            true => messages.note(&format_args!(
                "put back what a command that was killed had changed ({what})"
            )),
            false => messages.note(&format_args!(
                "could not put back everything that a command that was killed had changed ({what}): see \
                 `taillab tune status`"
            )),
        }
    }
    Ok(())
}

/// What is left to do after giving up root. It decides which user we continue as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// Write files, as the user who asked for them.
    Files,
    /// End a server that we started, and perhaps write files.
    Server,
    /// Only print.
    Nothing,
}

/// Gives up root for good, before the part of a command that needs no privilege: recordings contain
/// untrusted input, and files must belong to the user who asked for them. Under sudo we continue as the user
/// who called it. Root itself continues as root without capabilities, or as `nobody` if it writes no files.
pub fn give_up_root(roots: &Roots, remaining: Remaining) -> Result<(), Failure> {
    let mut user = Invoker::find(roots);
    if remaining == Remaining::Nothing && user.is_root() {
        user = Invoker::nobody();
    }
    // a server may have changed its user, and only we can end it
    let ends_a_server = remaining == Remaining::Server;
    user.become_for_good(ends_a_server).map_err(|error| {
        Failure::failed(format!(
                "cannot give up root: {error}; continue as an ordinary user (with a recording: taillab explain DIR)"
            ),
        )
    })
}

/// Runs `work`, which reads untrusted input, in a child process that has given up root, because this process
/// still needs root.
///
/// # Errors
/// [`Exit::Failed`]: the process could not be started, or it failed.
pub fn without_root<T: Serialize + DeserializeOwned>(
    roots: &Roots,
    work: impl FnOnce() -> T,
) -> Result<T, Failure> {
    let user = match Invoker::find(roots) {
        user if user.is_root() => Invoker::nobody(),
        user => user,
    };
    let found = run_unprivileged(&user, || serde_json::to_vec(&work()).unwrap_or_default());
    let found = found.map_err(|error| {
        Failure::failed(format!(
            "cannot analyse the recording without root privileges: {error}"
        ))
    })?;
    serde_json::from_slice(&found).or_exit(Exit::Failed)
}
