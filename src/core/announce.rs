//! Messages on the lock's channel (`docs/announcements.md`).

use super::Mode;

/// A message on the lock's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// The last read hold ended.
    ReadFreed,
    /// The last write hold of the writer ended, or FORCEUNLOCK removed a reservation.
    WriteEnded,
}

/// The message that announces a change of mode. `before`: the mode in the hash; None: there was
/// no hash. `after`: the mode after the change. `lapsed`: all holds in the hash had lapsed
/// before the change, so their end is announced whatever `after` is.
pub fn announcement(
    before: Option<Mode>,
    lapsed: bool,
    after: Option<Mode>,
) -> Option<Announcement> {
    match (before?, after) {
        (Mode::Write, Some(Mode::Write)) if !lapsed => None,
        (Mode::Write, _) => Some(Announcement::WriteEnded),
        (Mode::Read, None) => Some(Announcement::ReadFreed),
        (Mode::Read, Some(_)) => lapsed.then_some(Announcement::ReadFreed),
    }
}
