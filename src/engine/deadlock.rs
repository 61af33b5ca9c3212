//! Circles of owners that wait for each other (SPEC section 4).

use super::memory::LockId;
use super::pass::Pass;
use super::wait::Answer;
use super::{Engine, Error, Scene};
use crate::core::{find_cycle, Blockers, Circle, Lineup, Lock, Mode, OwnerId};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{self, Store};
use hashbrown::HashMap;
use std::collections::{BTreeSet, HashSet};

impl Engine {
    /// A circle of waiting through this owner. The store is of the lock that
    /// is at hand, so that it is not opened twice.
    pub(super) fn circle_through(
        &self,
        scene: Scene<'_>,
        store: &Store<'_>,
        owner: &OwnerId,
    ) -> Option<Circle> {
        // One owner alone waits for nobody who waits. And when all are to be
        // searched they are served first: some may not have to wait any more.
        let nobody = self.waits_of.len() < 2 || !self.waits_of.contains_key(owner);
        if !self.settings.deadlock_detection || self.unsearched || nobody {
            return None;
        }
        let mut search = Search { engine: self, scene, store, start: owner, met: HashMap::new() };
        find_cycle(owner, |of| search.blockers(of))
    }

    /// The same for an owner that has just begun to wait for a lock. Where this is
    /// the only one that is waited for, those who wait do so one way: nobody waits
    /// for one who came last and holds nothing here.
    pub(super) fn circle_closed_by(
        &self,
        scene: Scene<'_>,
        store: &Store<'_>,
        owner: &OwnerId,
        lock: &Lock,
    ) -> Option<Circle> {
        if self.queues == 1 && self.several.is_empty() && lock.own.is_empty() {
            return None;
        }
        self.circle_through(scene, store, owner)
    }

    /// After a grant: as long as the new holder is part of a circle, the
    /// youngest waiter of the circle gets an error.
    pub(super) fn break_circles(&mut self, scene: Scene<'_>, store: &Store<'_>, owner: &OwnerId) {
        while let Some(circle) = self.circle_through(scene, store, owner) {
            if !self.break_circle(circle) {
                return;
            }
        }
    }

    /// Breaks the circles among those who wait already: it was not looked for
    /// them, or they wait for others now.
    pub(super) fn break_all_circles(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        for owner in self.suspects(ctx) {
            while let Some(circle) = self.circle_from(ctx, &owner) {
                if !self.break_circle(circle) {
                    break;
                }
                // Those behind it may get in.
                self.do_alarms(ctx, pass);
            }
        }
    }

    /// Owners without whom there is no circle: inside one queue the waits lead
    /// one way only. Where a circle leads back, somebody who waits holds a lock
    /// that others wait for, or waits in several places.
    fn suspects(&self, ctx: Ctx<'_>) -> BTreeSet<OwnerId> {
        let mut suspects: BTreeSet<OwnerId> = self.several.iter().cloned().collect();
        let locks: HashSet<&LockId> = self.waiters.values().map(|waiter| &waiter.lock).collect();
        for lock in locks {
            let key = Text::new(&lock.name);
            let holders = Store::open(ctx.in_db(lock.db), &key, Access::Read)
                .and_then(|store| self.waiting_among(&store))
                .unwrap_or_default();
            suspects.extend(holders);
        }
        suspects
    }

    fn circle_from(&self, ctx: Ctx<'_>, owner: &OwnerId) -> Option<Circle> {
        let (_, waiter) = self.waiters_of(owner).next()?;
        let LockId { db, name } = &waiter.lock;
        let key = Text::new(name);
        let store = Store::open(ctx.in_db(*db), &key, Access::Read).ok()?;
        self.circle_through(Scene { ctx, by_alarm: true }, &store, owner)
    }

    /// The youngest waiter of a circle gets an error. False when it is not
    /// there.
    pub(super) fn break_circle(&mut self, Circle { owners, youngest }: Circle) -> bool {
        let Some(waiter) = self.waiters.get(&youngest).cloned() else {
            return false;
        };
        self.answer(youngest, Answer::Failed(Error::Deadlock(turned(owners, &waiter.owner))));
        self.leave_queue(youngest, &waiter);
        true
    }

    /// The holders of a lock who wait. If it is not the one who is remembered to
    /// write, whichever are fewer are looked through: those who wait anywhere, or
    /// those who hold this.
    pub(super) fn waiting_among(&self, store: &Store<'_>) -> Result<Vec<OwnerId>, store::Error> {
        let queue = self.memory.get(store.lock()).and_then(|known| known.queue.as_ref());
        if let Some(writer) = queue.and_then(|queue| queue.writer.as_ref()) {
            if store.has_sole_writer(writer)? {
                let waits = self.waits_of.contains_key(writer);
                return Ok(waits.then(|| writer.clone()).into_iter().collect());
            }
        }
        if self.waits_of.len() > store.field_count() {
            let waits = |owner: &[u8]| self.waits_of.get_key_value(owner).map(|(id, _)| id.clone());
            return store.live_owners(waits);
        }
        let mut holders = Vec::new();
        for owner in self.waits_of.keys() {
            if store.is_held_by(owner)? {
                holders.push(owner.clone());
            }
        }
        Ok(holders)
    }
}

/// A search for a circle through one owner. It looks at each lock once.
struct Search<'s, 'c, 'k> {
    engine: &'s Engine,
    scene: Scene<'c>,
    /// The lock that is at hand.
    store: &'s Store<'k>,
    start: &'s OwnerId,
    /// The locks that it has come to.
    met: HashMap<&'s LockId, Lineup>,
}

impl Search<'_, '_, '_> {
    /// The owners that one waits for, as far as they wait themselves: a circle
    /// has no others. Those that were given before are left out.
    fn blockers(&mut self, owner: &OwnerId) -> Blockers {
        let engine = self.engine;
        let policy = engine.settings.policy;
        let mut blockers = Blockers::default();
        // The first waiter for a kind of hold on a lock speaks for the others.
        let mut places = BTreeSet::new();
        for (id, waiter) in engine.waiters_of(owner) {
            let (lock, want) = (&waiter.lock, waiter.terms.want);
            let known = engine.memory.get(lock.get());
            let Some(queue) = known.and_then(|known| known.queue.as_ref()) else {
                continue;
            };
            if !places.insert((lock, want)) {
                continue;
            }
            if !self.met.contains_key(lock) {
                let (mode, holders) = self.waiting_holders(lock);
                let lineup = queue.line_up(mode, holders, &engine.several, policy);
                self.met.insert(lock, lineup);
            }
            if let Some(lineup) = self.met.get_mut(lock) {
                queue.add_blockers((id, want), owner, self.start, lineup, policy, &mut blockers);
            }
        }
        blockers
    }

    /// A lock's mode, and those of its holders who wait. Of one that cannot be read
    /// nothing is known.
    fn waiting_holders(&self, lock: &LockId) -> (Option<Mode>, Vec<OwnerId>) {
        let read = |store: &Store<'_>| Ok((store.mode()?, self.engine.waiting_among(store)?));
        if lock.get() == self.store.lock() {
            return read(self.store).unwrap_or_default();
        }
        let key = Text::new(&lock.name);
        let store = Store::open(self.scene.ctx.in_db(lock.db), &key, Access::Read);
        store.and_then(|store| read(&store)).unwrap_or_default()
    }
}

/// The circle as the one who is told of it sees it.
fn turned(mut circle: Vec<OwnerId>, owner: &OwnerId) -> Vec<OwnerId> {
    if let Some(at) = circle.iter().position(|one| one == owner) {
        circle.rotate_left(at);
    }
    circle
}
