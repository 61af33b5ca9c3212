//! What is announced on the lock's channel (`docs/announcements.md`).

use super::Mode;

/// A message on the lock's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// The last read hold went.
    ReadFreed,
    /// A write hold ended, or a writer's reservation was forced away.
    WriteEnded,
}

/// What a change from `before` (the mode that the hash told) announces.
/// `lapsed` says that the lock was found to be free in spite of its hash, so
/// that whatever it is now, its last holder went.
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
