//! Keeping the bindings of session holds true.

use super::acquire::Terms;
use super::alarms::Alarm;
use super::memory::LockId;
use super::notices::What;
use super::sessions::{Binding, BindingId, Bound, Grant};
use super::wait::Waiter;
use super::{Engine, Error, Scene};
use crate::core::{self, Kind, Lock, Millis, Which};
use crate::ffi::{Access, Text};
use crate::store::{Owner, Seen, Store, Survey};

impl Engine {
    /// Names the hold that was just granted, and binds it if it shall be.
    pub(super) fn bind(
        &mut self,
        scene: Scene<'_>,
        store: &Store<'_>,
        seen: &Seen,
        owner: &Owner<'_>,
        after: &Lock,
        terms: Terms,
    ) -> Grant {
        let hold = match terms.want {
            core::Want::Read => {
                let number = seen.numbers(after.own.reads.len()).last().unwrap_or(0);
                Bound { kind: Kind::Read, number }
            }
            core::Want::Write | core::Want::Upgrade => Bound { kind: Kind::Write, number: 0 },
        };
        let is_new = match hold.kind {
            Kind::Read => after.own.reads.len() > seen.lock.own.reads.len(),
            Kind::Write => after.own.writes > seen.lock.own.writes,
        };
        if !is_new {
            self.keep_undelivered(scene, store, owner, hold);
        }
        let Some(client) = terms.session else {
            return Grant { hold, is_new, token: None, binding: None };
        };
        let lock = self.memory.entry(scene.db, store.name()).1.id();
        if terms.once {
            // The binding moves to this connection.
            if let Some(id) = self.binding_of(&lock, owner.bytes(), |binding| binding.hold == hold)
            {
                self.unbind(id);
            }
        }
        let due = store.now() + renewal(terms.lease);
        let owner = owner.bytes().into();
        let lease = terms.lease;
        let binding = Binding { client, lock, owner, hold, lease, due, told: true };
        let id = self.sessions.add(binding);
        self.alarms.add(due, Alarm::Session(id));
        Grant { hold, is_new, token: None, binding: Some(id) }
    }

    /// Somebody relies on a hold, with ONCE: if its own client never learns of
    /// it, it stays all the same.
    fn keep_undelivered(
        &mut self,
        scene: Scene<'_>,
        store: &Store<'_>,
        owner: &Owner<'_>,
        hold: Bound,
    ) {
        let lock = (scene.db, store.name());
        for grant in self.grants_underway(lock, owner.bytes()).filter(|grant| grant.hold == hold) {
            grant.is_new = false;
        }
    }

    /// The grants of an owner on a lock of whose answers it is not known yet
    /// whether they arrive, or that are to be taken back.
    fn grants_underway<'e>(
        &'e mut self,
        (db, name): (i32, &'e [u8]),
        owner: &'e [u8],
    ) -> impl Iterator<Item = &'e mut Grant> {
        let waiters = self.underway.values_mut().chain(&mut self.undelivered);
        let same = move |waiter: &&mut Waiter| {
            waiter.lock.db == db && *waiter.lock.name == *name && *waiter.owner == *owner
        };
        waiters.filter(same).filter_map(|waiter| waiter.grant.as_mut())
    }

    /// After a change: bindings whose hold has lapsed end, those of holds that
    /// moved to another number follow, and so do grants that may be taken back.
    pub(super) fn bindings_follow(
        &mut self,
        scene: Scene<'_>,
        store: &Store<'_>,
        owner: &Owner<'_>,
        seen: &Seen,
    ) {
        if seen.lapsed() > 0 {
            let lock = (scene.db, store.name());
            self.grants_follow(lock, owner.bytes(), |number| seen.number_after(number));
            for (owner, number_after) in seen.mended() {
                self.grants_follow(lock, owner, number_after);
            }
        }
        if self.sessions.is_empty() {
            return;
        }
        let lock = LockId { db: scene.db, name: store.name().into() };
        let writes = seen.lock.own.writes;
        self.follow(&lock, owner.bytes(), writes, |number| seen.number_after(number));
        for (owner, number_after) in seen.mended() {
            self.follow(&lock, owner, u64::MAX, number_after);
        }
    }

    fn grants_follow(
        &mut self,
        lock: (i32, &[u8]),
        owner: &[u8],
        number_after: impl Fn(u64) -> Option<u64>,
    ) {
        for grant in self.grants_underway(lock, owner) {
            if grant.hold.kind == Kind::Read {
                match number_after(grant.hold.number) {
                    Some(number) => grant.hold.number = number,
                    // There is nothing to take back any more.
                    None => grant.is_new = false,
                }
            }
        }
    }

    fn follow(
        &mut self,
        lock: &LockId,
        owner: &[u8],
        mut writes: u64,
        number_after: impl Fn(u64) -> Option<u64>,
    ) {
        for id in self.sessions.of_owner(lock, owner).to_vec() {
            let Some(binding) = self.sessions.get_mut(id) else {
                continue;
            };
            let lives = match binding.hold.kind {
                Kind::Write if writes == 0 => false,
                Kind::Write => {
                    writes -= 1;
                    true
                }
                Kind::Read => match number_after(binding.hold.number) {
                    Some(number) => {
                        binding.hold.number = number;
                        true
                    }
                    None => false,
                },
            };
            if !lives {
                self.unbind(id);
            }
        }
    }

    /// Which hold an UNLOCK gives back: first this connection's own session
    /// hold, then a plain hold, then another connection's; among equals the
    /// highest number. Its rank among the read holds, and its binding.
    pub(super) fn choose(
        &self,
        scene: Scene<'_>,
        lock: &LockId,
        owner: &[u8],
        seen: &Seen,
        which: Which,
    ) -> (Option<usize>, Option<BindingId>) {
        let Some(kind) = core::kind_to_release(&seen.lock, which) else {
            return (None, None);
        };
        let client = scene.ctx.client_id();
        let bound = |number: u64| {
            self.binding_of(lock, owner, |b| b.hold.kind == kind && b.hold.number == number)
        };
        let is_own =
            |id: BindingId| self.sessions.get(id).is_some_and(|b| Some(b.client) == client);
        match kind {
            Kind::Write => {
                let ids = self.sessions.of_owner(lock, owner).iter().copied();
                let ids: Vec<BindingId> = ids
                    .filter(|id| self.sessions.get(*id).is_some_and(|b| b.hold.kind == kind))
                    .collect();
                let own = ids.iter().copied().find(|id| is_own(*id));
                let plain = seen.lock.own.writes > ids.len() as u64;
                (None, own.or(if plain { None } else { ids.last().copied() }))
            }
            Kind::Read => {
                let holds = seen.lock.own.reads.len();
                let numbered: Vec<(usize, Option<BindingId>)> = (0..holds)
                    .filter_map(|rank| Some((rank, bound(seen.number_of(rank)?))))
                    .collect();
                let best = numbered.into_iter().max_by_key(|(rank, binding)| {
                    let class = match binding {
                        Some(id) if is_own(*id) => 2,
                        None => 1,
                        Some(_) => 0,
                    };
                    (class, *rank)
                });
                best.map_or((None, None), |(rank, binding)| (Some(rank), binding))
            }
        }
    }

    /// After the read hold of this rank went: those above it moved down.
    pub(super) fn bindings_close_gap(&mut self, lock: &LockId, owner: &[u8], gone: u64) {
        for id in self.sessions.of_owner(lock, owner).to_vec() {
            if let Some(binding) = self.sessions.get_mut(id) {
                binding.hold.close_gap(gone);
            }
        }
        for grant in self.grants_underway((lock.db, &lock.name), owner) {
            grant.hold.close_gap(gone);
        }
    }

    /// DOWNGRADE: a bound write hold becomes the bound read hold that is left.
    pub(super) fn bindings_follow_downgrade(
        &mut self,
        scene: Scene<'_>,
        store: &Store<'_>,
        seen: &Seen,
        owner: &Owner<'_>,
        after: &Lock,
    ) {
        if self.sessions.is_empty() {
            return;
        }
        let lock = LockId { db: scene.db, name: store.name().into() };
        let highest = seen.numbers(after.own.reads.len()).last().unwrap_or(0);
        let hold = Bound { kind: Kind::Read, number: highest };
        let mut taken = self.binding_of(&lock, owner.bytes(), |b| b.hold == hold).is_some();
        for id in self.sessions.of_owner(&lock, owner.bytes()).to_vec() {
            match self.sessions.get_mut(id) {
                Some(binding) if binding.hold.kind == Kind::Write && !taken => {
                    binding.hold = hold;
                    taken = true;
                }
                Some(binding) if binding.hold.kind == Kind::Write => {
                    self.unbind(id);
                }
                _ => {}
            }
        }
    }

    fn binding_of(
        &self,
        lock: &LockId,
        owner: &[u8],
        is: impl Fn(&Binding) -> bool,
    ) -> Option<BindingId> {
        let ids = self.sessions.of_owner(lock, owner).iter().copied();
        let mut ids = ids.filter(|id| self.sessions.get(*id).is_some_and(&is));
        ids.next()
    }

    /// The client that one of these holds is bound to; 0: none is.
    pub(super) fn session_of(&self, lock: &LockId, owner: &[u8], kind: Kind) -> u64 {
        let binding = self.binding_of(lock, owner, |binding| binding.hold.kind == kind);
        binding.and_then(|id| self.sessions.get(id)).map_or(0, |binding| binding.client)
    }

    /// Ends a binding.
    pub(super) fn unbind(&mut self, id: BindingId) {
        if let Some(binding) = self.sessions.remove(id) {
            self.alarms.remove(binding.due, Alarm::Session(id));
        }
    }

    /// Ends the bindings of all holds on a lock.
    pub(super) fn unbind_lock(&mut self, db: i32, name: &[u8]) {
        if self.sessions.is_empty() {
            return;
        }
        for (id, binding) in self.sessions.drop_lock(&LockId { db, name: name.into() }) {
            self.alarms.remove(binding.due, Alarm::Session(id));
        }
    }

    /// Ends the bindings of an owner's holds on a lock.
    pub(super) fn unbind_owner(&mut self, lock: &LockId, owner: &[u8]) {
        for id in self.sessions.of_owner(lock, owner).to_vec() {
            self.unbind(id);
        }
    }

    /// Renews a session hold while its connection is open.
    pub(super) fn renew_session(&mut self, scene: Scene<'_>, id: BindingId) -> Result<(), Error> {
        let Some(binding) = self.sessions.get(id).cloned() else {
            return Ok(());
        };
        let (key, name) = (Text::new(&binding.lock.name), Text::new(&binding.owner));
        let owner = Owner::new(&name)?;
        // Whatever comes of it now, it will be tried again.
        let due = scene.ctx.now() + renewal(binding.lease);
        if let Some(binding) = self.sessions.get_mut(id) {
            binding.due = due;
        }
        self.alarms.add(due, Alarm::Session(id));
        let mut store = Store::open(scene.ctx, &key, Access::Write)?;
        let lease = super::end_of(&store, binding.lease)?;
        self.catch_up(scene, &mut store);
        let seen = self.look(scene, &store, &owner, Survey::Mode)?;
        self.commit(scene, &mut store, &seen, &owner, &seen.lock)?;
        // It may have lapsed, and its binding with it.
        let Some(binding) = self.sessions.get(id) else {
            return Ok(());
        };
        let hold = binding.hold;
        let seen = self.look(scene, &store, &owner, Survey::Mode)?;
        let mut after = seen.lock.clone();
        if let (Kind::Read, Some(rank)) = (hold.kind, seen.rank_of(hold.number)) {
            after.own.reads[rank] = after.own.reads[rank].max(lease);
        }
        after.lengthen(lease);
        self.commit(scene, &mut store, &seen, &owner, &after)
    }

    /// Gives back a session hold whose connection is gone.
    pub(super) fn release_session(&mut self, scene: Scene<'_>, id: BindingId) -> Result<(), Error> {
        let Some(binding) = self.sessions.get(id).cloned() else {
            return Ok(());
        };
        scene.ctx.select(binding.lock.db);
        let key = Text::new(&binding.lock.name);
        let mut store = Store::open(scene.ctx, &key, Access::Write)?;
        self.catch_up(scene, &mut store);
        let name = Text::new(&binding.owner);
        let owner = Owner::new(&name)?;
        let seen = self.look(scene, &store, &owner, Survey::Ends)?;
        self.commit(scene, &mut store, &seen, &owner, &seen.lock)?;
        if let Some(Binding { hold, told, .. }) = self.sessions.get(id).cloned() {
            self.unbind(id);
            let taken = self.take_back(scene, &mut store, &owner, hold)?;
            if taken && told {
                self.figures.disconnect_releases += 1;
            }
        }
        Ok(())
    }

    /// Gives back one hold that is known by its name. False when it is gone.
    pub(super) fn take_back(
        &mut self,
        scene: Scene<'_>,
        store: &mut Store<'_>,
        owner: &Owner<'_>,
        hold: Bound,
    ) -> Result<bool, Error> {
        let seen = self.look(scene, store, owner, Survey::Ends)?;
        let rank = seen.rank_of(hold.number);
        if hold.kind == Kind::Read && rank.is_none() {
            return Ok(false);
        }
        let after = core::release(&seen.lock, Which::One(hold.kind), rank)?;
        self.commit(scene, store, &seen, owner, &after)?;
        self.notice(scene, store, What::Released);
        if hold.kind == Kind::Read {
            let lock = LockId { db: scene.db, name: store.name().into() };
            // Those above it have followed the lapses of others already.
            let gone = seen.number_after(hold.number).unwrap_or(hold.number);
            self.bindings_close_gap(&lock, owner.bytes(), gone);
        }
        self.serve(scene, store);
        Ok(true)
    }
}

/// A session hold is renewed every third of its lease.
fn renewal(lease: Millis) -> Millis {
    (lease / 3).max(1)
}
