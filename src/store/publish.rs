//! Announcing what ended (`docs/announcements.md`).

use super::names::Name;
use super::snapshot::Snapshot;
use super::{is_cluster, listeners, text, Listeners, Owner, Store, WORDS};
use crate::core::Announcement;
use crate::ffi::{Ctx, Db, MainThread, Propagate, Str, Text};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an end is announced on Redisson's channel.
static TO_REDISSON: AtomicBool = AtomicBool::new(true);

/// Whether it is announced on the channel that names owners.
static TO_OWNERS: AtomicBool = AtomicBool::new(false);

/// Whether all nodes of a cluster are told.
static GLOBALLY: AtomicBool = AtomicBool::new(false);

/// The channels on which ends are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// That of Redisson.
    #[default]
    Redisson,
    /// The one that names owners.
    Owner,
    /// Both.
    All,
    /// Neither.
    None,
}

impl Channels {
    /// Whether owners are named.
    pub fn names_owners(self) -> bool {
        matches!(self, Channels::Owner | Channels::All)
    }
}

/// How a cluster publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterPublish {
    /// To the nodes that have the lock's slot, as SPUBLISH.
    #[default]
    Sharded,
    /// To all nodes, as PUBLISH.
    Global,
}

/// Says how ends are announced from now on.
pub fn announce_by(channels: Channels, cluster: ClusterPublish) {
    let to_redisson = matches!(channels, Channels::Redisson | Channels::All);
    TO_REDISSON.store(to_redisson, Ordering::Relaxed);
    TO_OWNERS.store(channels.names_owners(), Ordering::Relaxed);
    GLOBALLY.store(cluster == ClusterPublish::Global, Ordering::Relaxed);
}

impl Store<'_> {
    /// Announces an end on the lock's channels. `whose` hold it was; empty when
    /// nobody knows.
    pub fn announce(&self, announcement: Option<Announcement>, whose: &[u8]) {
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
            let what: &[u8] = match announcement {
                Announcement::ReadFreed => b"_del_read",
                Announcement::WriteEnded => b"_del_write",
            };
            self.publish(&self.name.owner_channel(), &Text::new(&[whose, what].concat()));
        }
    }

    /// Publishes: in a cluster to the slot's nodes or to all; outside one also
    /// to the subscribers on replicas, which the module API alone would not
    /// reach.
    fn publish(&self, channel: &Name<'_>, message: &Str) {
        let channel = text(channel);
        if is_cluster() && !GLOBALLY.load(Ordering::Relaxed) {
            self.db.ctx().publish_to_shard(&channel, message);
            return;
        }
        self.db.ctx().publish(&channel, message);
        if !is_cluster() && listeners() == Listeners::Replicas {
            if AWAKE.load(Ordering::Relaxed) {
                let (db, message) = (self.db.number(), message.to_text());
                LATER.borrow_mut().push(ForReplicas { db, channel, message });
            } else {
                hand_on(self.db, &channel, message);
            }
        }
    }
}

/// A message for the subscribers on replicas.
struct ForReplicas {
    /// The lock's database, for the stream to stay in it.
    db: i32,
    channel: Text,
    message: Text,
}

/// Those that go out when the server has done all that it was asked. Together
/// with the change that they tell of they would make a transaction, which
/// costs the server, the AOF and the replicas twice as much.
static LATER: MainThread<RefCell<Vec<ForReplicas>>> = MainThread::new(RefCell::new(Vec::new()));

/// Whether that time will come before it sleeps.
static AWAKE: AtomicBool = AtomicBool::new(false);

/// The event loop woke up.
pub fn loop_awakes() {
    AWAKE.store(true, Ordering::Relaxed);
}

/// It has done all that it was asked: hands on what was published meanwhile.
pub fn loop_is_done(ctx: Ctx<'_>) {
    AWAKE.store(false, Ordering::Relaxed);
    if LATER.borrow().is_empty() || ctx.writes_are_paused() {
        return;
    }
    let messages = LATER.take();
    if !ctx.situation().primary {
        return;
    }
    for ForReplicas { db, channel, message } in &messages {
        hand_on(ctx.in_db(*db), channel, message);
    }
}

fn hand_on(db: Db<'_>, channel: &Str, message: &Str) {
    db.replicate(c"PUBLISH", Propagate::ReplicasOnly, &[channel, message]);
}

/// Whose hold it was that ended, as the owner who looked saw the lock: its own,
/// else that of the one who was to hold it `last`, else that of the first whose
/// hold has lapsed.
pub(super) fn whose<'a>(
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
