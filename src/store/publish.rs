//! Announces the ends of holds on the lock's channels (`docs/announcements.md`).

use super::names::Name;
use super::snapshot::Snapshot;
use super::{is_cluster, listeners, text, Listeners, Owner, Store, WORDS};
use crate::core::Announcement;
use crate::ffi::{Ctx, Db, MainThread, Propagate, Str, Text};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether ends are announced on Redisson's channel.
static TO_REDISSON: AtomicBool = AtomicBool::new(true);

/// Whether ends are announced on the channel that names owners.
static TO_OWNERS: AtomicBool = AtomicBool::new(false);

/// Whether a cluster publishes to all its nodes.
static GLOBALLY: AtomicBool = AtomicBool::new(false);

/// The channels on which ends are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// Redisson's channel.
    #[default]
    Redisson,
    /// The channel whose messages name owners.
    Owner,
    /// Both channels.
    All,
    /// No channel.
    None,
}

impl Channels {
    /// Whether ends are announced on the channel whose messages name owners.
    pub fn names_owners(self) -> bool {
        matches!(self, Channels::Owner | Channels::All)
    }
}

/// How a node of a cluster publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterPublish {
    /// To the nodes of the lock's slot, like SPUBLISH.
    #[default]
    Sharded,
    /// To all nodes, like PUBLISH.
    Global,
}

/// Sets how ends are announced from now on.
pub fn announce_by(channels: Channels, cluster: ClusterPublish) {
    let to_redisson = matches!(channels, Channels::Redisson | Channels::All);
    TO_REDISSON.store(to_redisson, Ordering::Relaxed);
    TO_OWNERS.store(channels.names_owners(), Ordering::Relaxed);
    GLOBALLY.store(cluster == ClusterPublish::Global, Ordering::Relaxed);
}

impl Store<'_> {
    /// Publishes an announcement on the configured channels. `owner`: the owner of the hold that
    /// ended; empty: it is not known.
    pub fn announce(&self, announcement: Option<Announcement>, owner: &[u8]) {
        let Some(announcement) = announcement else {
            return;
        };
        if TO_REDISSON.load(Ordering::Relaxed) {
            let message: &Str = match announcement {
                Announcement::ReadFreed => &WORDS.zero,
                Announcement::WriteEnded => &WORDS.one,
            };
            self.publish(&self.name.channel(), message);
        }
        if TO_OWNERS.load(Ordering::Relaxed) {
            let suffix: &[u8] = match announcement {
                Announcement::ReadFreed => b"_del_read",
                Announcement::WriteEnded => b"_del_write",
            };
            self.publish(&self.name.owner_channel(), &Text::new(&[owner, suffix].concat()));
        }
    }

    /// Publishes a message to the subscribers on this server; in a cluster also to those on the
    /// nodes of the slot or on all nodes. Outside of a cluster the module API does not reach the
    /// subscribers on replicas, so a PUBLISH is propagated.
    fn publish(&self, channel: &Name<'_>, message: &Str) {
        let channel = text(channel);
        if is_cluster() && !GLOBALLY.load(Ordering::Relaxed) {
            self.db.ctx().publish_to_shard(&channel, message);
            return;
        }
        self.db.ctx().publish(&channel, message);
        if !is_cluster() && listeners() == Listeners::Replicas {
            if LOOP_IS_AWAKE.load(Ordering::Relaxed) {
                let (db, message) = (self.db.number(), message.to_text());
                KEPT.borrow_mut().push(ForReplicas { db, channel, message });
            } else {
                propagate_message(self.db, &channel, message);
            }
        }
    }
}

/// A message for the subscribers on replicas.
struct ForReplicas {
    /// The lock's database. The stream to the replicas then needs no SELECT for the message.
    db: i32,
    channel: Text,
    message: Text,
}

/// The messages that are propagated when the event loop has run its commands. Propagated together
/// with the change, a message would make a transaction, which costs the server, the AOF and the
/// replicas twice as much.
static KEPT: MainThread<RefCell<Vec<ForReplicas>>> = MainThread::new(RefCell::new(Vec::new()));

/// Whether [`loop_is_done`] will be called before the event loop sleeps.
static LOOP_IS_AWAKE: AtomicBool = AtomicBool::new(false);

/// Keeps messages for replicas from now on. To be called when the event loop wakes up, if
/// [`loop_is_done`] will be called before it sleeps.
pub fn loop_awakes() {
    LOOP_IS_AWAKE.store(true, Ordering::Relaxed);
}

/// Propagates the messages that were kept. To be called when the event loop has run its commands.
/// While writes are paused the messages stay kept; on a replica they are dropped.
pub fn loop_is_done(ctx: Ctx<'_>) {
    LOOP_IS_AWAKE.store(false, Ordering::Relaxed);
    if KEPT.borrow().is_empty() || ctx.writes_are_paused() {
        return;
    }
    let messages = KEPT.take();
    if !ctx.situation().primary {
        return;
    }
    for ForReplicas { db, channel, message } in &messages {
        propagate_message(ctx.in_db(*db), channel, message);
    }
}

fn propagate_message(db: Db<'_>, channel: &Str, message: &Str) {
    db.replicate(c"PUBLISH", Propagate::ReplicasOnly, &[channel, message]);
}

/// The owner that an announcement names; empty: it is not known. This is `owner` if it has live
/// holds of the mode that ended in the snapshot. Else it is the last-expiring owner `last`, else
/// `owner` if it has lapsed read holds, else the first other owner that has lapsed holds.
pub(super) fn owner_of_ended<'a>(
    ended: Announcement,
    snapshot: &'a Snapshot,
    owner: &'a Owner<'_>,
    last: Option<&'a [u8]>,
) -> &'a [u8] {
    let is_own = match ended {
        Announcement::ReadFreed => !snapshot.lock.own.reads.is_empty(),
        Announcement::WriteEnded => snapshot.lock.own.writes > 0,
    };
    if is_own {
        return owner.bytes();
    }
    let own = (!snapshot.own.read_holds.is_empty()).then(|| owner.bytes());
    let first = || snapshot.stale_fields.first().map(|field| field.owner.as_slice());
    last.or(own).or_else(first).unwrap_or_default()
}
