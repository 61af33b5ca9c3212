//! Writes a lock: from the content of its keys to its new state, with the fewest writes and
//! propagated commands.

use super::fields::{Fields, Word};
use super::holds::{Field, Stored, TimeoutOf};
use super::names::write_field;
use super::numbering::{live_ends, renumber, ReadHold, Step, Steps};
use super::propagation::{Plain, Propagation};
use super::publish::owner_of_ended;
use super::snapshot::{Snapshot, StoredHash};
use super::{text, Error, Owner, Store, WORDS};
use crate::core::{announcement, Announcement, End, Lock, Mode};
use crate::ffi::{Access, Key, KeyType, Str, Text};
use smallvec::SmallVec;

impl Drop for Store<'_> {
    /// Deletes the hash if it was kept for the next writer and no writer took it over.
    fn drop(&mut self) {
        if self.vacated.is_some() {
            self.discard_hash();
        }
    }
}

/// Timeout keys that are open for writing, each with its number and its name.
pub(super) type Opened<'c> = SmallVec<[(u64, Text, Key<'c>); 1]>;

/// What a FORCEUNLOCK removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// Nothing was removed.
    Nothing,
    /// Only a reservation. The lock was free.
    Reservation,
    /// The lock, with this number of live holds, and its reservation if there was one.
    Lock(u64),
}

impl<'c> Store<'c> {
    /// From now on, a commit that gives back the lock's only hold keeps the hash if that is a write
    /// hold. The next writer then changes two fields of the hash, which costs less than a new hash.
    /// If no writer took it over when the lock is closed, the hash is deleted.
    pub fn await_successor(&mut self) {
        self.may_hand_over = true;
    }

    /// Deletes the hash, also one that is kept for the next writer, and propagates that.
    #[cold]
    fn discard_hash(&mut self) {
        self.vacated = None;
        self.delete_hash();
        self.out.propagate_deletion(&[self.key]);
    }

    /// Writes `after` over the lock of `snapshot`, and removes the lapsed holds in the snapshot.
    /// Both show the lock as `owner` sees it. Announces the end of a mode. `last`: the
    /// last-expiring owner of the lock, if it is remembered. On an error nothing has changed.
    pub fn commit(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
        last: Option<&[u8]>,
    ) -> Result<(), Error> {
        let lapsed = snapshot.hash.is_some() && snapshot.lock.is_free();
        match after.mode() {
            // All holds in the hash have lapsed, so the new holds get a new hash.
            Some(mode) if lapsed => {
                self.write(&Snapshot::nothing(), owner, after, mode, |store| {
                    store.delete_hash();
                    store.out.propagate_deletion(&[store.key]);
                })?
            }
            Some(mode) => self.write(snapshot, owner, after, mode, |_| {})?,
            None if snapshot.hash.is_some() => self.delete_lock(snapshot, owner),
            None => {}
        }
        let ended = announcement(snapshot.hash.map(|hash| hash.mode), lapsed, after.mode());
        self.announce(
            ended,
            ended.map_or(b"", |ended| owner_of_ended(ended, snapshot, owner, last)),
        );
        Ok(())
    }

    /// Checks that [`Store::commit`] of the same values would not fail. Writes nothing.
    pub fn check_commit(
        &self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
    ) -> Result<(), Error> {
        let no_holds = Snapshot::nothing();
        let lapsed = snapshot.hash.is_some() && snapshot.lock.is_free();
        let before = if lapsed { &no_holds } else { snapshot };
        let (steps, _) = renumber(&before.own.read_holds, &after.own.reads)?;
        for Field { stored, .. } in &before.stale_fields {
            if let Stored::Reads(read_holds) = stored {
                renumber(read_holds, &live_ends(read_holds))?;
            }
        }
        self.open_new_timeouts(&before.own.read_holds, owner, &steps).map(drop)
    }

    /// Writes a lock that has holds in `after`. Calls `prepare` after the last check that can
    /// fail, before the first write. If a panic interrupts the write of a new lock, deletes its
    /// hash.
    fn write(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
        mode: Mode,
        prepare: impl FnOnce(&mut Self),
    ) -> Result<(), Error> {
        if snapshot.hash.is_some() {
            return self.write_holds(snapshot, owner, after, mode, prepare);
        }
        let undo = Undo(self);
        let written = undo.0.write_holds(snapshot, owner, after, mode, prepare);
        std::mem::forget(undo);
        written
    }

    /// Writes a lock that has holds in `after`. Calls `prepare` after the last check that can
    /// fail, before the first write.
    fn write_holds(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
        mode: Mode,
        prepare: impl FnOnce(&mut Self),
    ) -> Result<(), Error> {
        if self.vacated.is_some() && self.take_over(owner.write_field(), after, mode) {
            return Ok(());
        }
        let mut fields = Fields::default();
        if snapshot.hash.map(|hash| hash.mode) != Some(mode) {
            fields.set_mode(mode);
        }
        fields.set_count(|| Word::Lent(owner.write_field()), after.own.writes, snapshot.own.writes);
        if snapshot.own.reads == 0 && after.own.reads.is_empty() && snapshot.stale_fields.is_empty()
        {
            // There are no timeout keys to write. Most of these locks have one writer.
            prepare(self);
            self.write_hash(snapshot.hash, &fields, after.end);
            return Ok(());
        }
        let (steps, reads) = renumber(&snapshot.own.read_holds, &after.own.reads)?;
        fields.set_count(|| Word::Lent(owner.read_field()), reads, snapshot.own.reads);
        let mut repaired: Vec<(&[u8], Steps)> = Vec::new();
        for Field { owner, stored } in &snapshot.stale_fields {
            match stored {
                Stored::Reads(read_holds) => {
                    let (steps, count) = renumber(read_holds, &live_ends(read_holds))?;
                    fields.set_count(
                        || Word::Made(Text::new(owner)),
                        count,
                        read_holds.len() as u64,
                    );
                    repaired.push((owner, steps));
                }
                Stored::Writes(count) => {
                    fields.set_count(|| Word::Made(text(&write_field(owner))), 0, *count)
                }
            }
        }
        let opened = self.open_new_timeouts(&snapshot.own.read_holds, owner, &steps)?;

        prepare(self);
        self.write_hash(snapshot.hash, &fields, after.end);
        self.write_timeouts(owner.bytes(), &steps, opened);
        for (owner, steps) in repaired {
            self.write_timeouts(owner, &steps, Opened::new());
        }
        Ok(())
    }

    /// Gives the hash that is kept for the next writer to the owner of `field`. A read hold, or a
    /// write hold that never ends, cannot take it over: then the hash is deleted, and the result
    /// is false.
    fn take_over(&mut self, field: &Str, after: &Lock, mode: Mode) -> bool {
        let one = &WORDS.one;
        let writes = mode == Mode::Write && after.end != End::Never;
        let (Some(hash), Some(vacated), true) = (&mut self.hash, &self.vacated, writes) else {
            self.discard_hash();
            return false;
        };
        // In this order, for both may be the same field.
        hash.hash_set(vacated, None);
        hash.hash_set(field, Some(one));
        self.out.propagate(Plain::HDel, &[self.key, vacated]);
        self.out.propagate(Plain::HSet, &[self.key, field, one]);
        write_end(&self.out, self.key, hash, None, after.end);
        self.db.signal_modified(self.key);
        self.vacated = None;
        true
    }

    /// Deletes the hash and the owner's timeout keys. No other owner has a live hold. The hash is
    /// kept instead if it may be handed over to the next writer.
    fn delete_lock(&mut self, snapshot: &Snapshot, owner: &Owner<'_>) {
        if snapshot.is_single_write && self.may_hand_over {
            self.vacated = Some(owner.write_field().to_text());
            return;
        }
        self.delete_hash();
        let timeouts: SmallVec<[Text; 2]> =
            self.live_timeouts(owner.bytes(), &snapshot.own.read_holds).collect();
        self.delete(Some(self.key), timeouts.iter());
    }

    /// The names of an owner's live timeout keys.
    fn live_timeouts<'s>(
        &'s self,
        owner: &'s [u8],
        read_holds: &'s [ReadHold],
    ) -> impl Iterator<Item = Text> + use<'s, 'c> {
        let live = (1..).zip(read_holds).filter(|(_, hold)| matches!(hold, ReadHold::Live(_)));
        live.map(move |(number, _)| text(&self.name.timeout(owner, number)))
    }

    /// Removes the lock with the holds of all owners, their timeout keys and the reservation.
    /// `only`: remove nothing unless the lock is in this mode. `last`: the last-expiring owner of
    /// the lock, if it is remembered.
    pub fn force(&mut self, only: Option<Mode>, last: Option<&[u8]>) -> Result<Forced, Error> {
        let mut found = self.mode_and_fields()?;
        if let Some((mode, _)) =
            found.take_if(|(mode, fields)| fields.iter().all(|field| !field.stored.is_live(*mode)))
        {
            // All holds have lapsed, so FORCEUNLOCK finds no lock.
            self.delete_hash();
            self.out.propagate_deletion(&[self.key]);
            self.announce(announcement(Some(mode), true, None), last.unwrap_or_default());
        }
        let mode = found.as_ref().map(|(mode, _)| *mode);
        if only.is_some() && only != mode {
            return Ok(Forced::Nothing);
        }
        let reserved = self.reservation()?;
        let reservation = reserved.as_ref().map(|_| text(&self.name.reservation()));
        if mode.is_none() && reservation.is_none() {
            return Ok(Forced::Nothing);
        }
        let mut timeouts = Vec::new();
        let mut holds = 0_u64;
        for Field { owner, stored } in found.iter().flat_map(|(_, fields)| fields) {
            holds = holds.saturating_add(mode.map_or(0, |mode| stored.live_count(mode)));
            if let Stored::Reads(read_holds) = stored {
                timeouts.extend(self.live_timeouts(owner, read_holds));
            }
        }
        if mode.is_some() {
            self.delete_hash();
        }
        self.delete(mode.map(|_| self.key), timeouts.iter().chain(&reservation));
        self.reserved.take();
        let (_, fields) = found.unwrap_or((Mode::Read, Vec::new()));
        // A reservation keeps readers out like a write hold, so its end is announced as one.
        match mode {
            Some(Mode::Read) => {
                self.announce(Some(Announcement::ReadFreed), last_reader(&fields));
                Ok(Forced::Lock(holds))
            }
            Some(Mode::Write) => {
                self.announce(Some(Announcement::WriteEnded), writer(&fields));
                Ok(Forced::Lock(holds))
            }
            None => {
                let by = reserved.map(|reserved| reserved.owner).unwrap_or_default();
                self.announce(Some(Announcement::WriteEnded), &by);
                Ok(Forced::Reservation)
            }
        }
    }

    /// Opens the timeout keys of new read holds. [`Error::Clash`]: one of them belongs to another
    /// lock.
    fn open_new_timeouts(
        &self,
        read_holds: &[ReadHold],
        owner: &Owner<'_>,
        steps: &[Step],
    ) -> Result<Opened<'c>, Error> {
        let mut opened = Opened::new();
        for step in steps {
            match *step {
                Step::Set(number, _) if number > read_holds.len() as u64 => {
                    let name = text(&self.name.timeout(owner.bytes(), number));
                    if let Some(key) = self.open_derived(&name, Access::Write) {
                        if let TimeoutOf::OtherLock(lock) = self.lock_of_timeout(&key)? {
                            return Err(Error::Clash(lock));
                        }
                        opened.push((number, name, key));
                    }
                }
                _ => {}
            }
        }
        Ok(opened)
    }

    /// Writes the changed fields and the end of the hash. `before`: the hash before the change;
    /// None: there was none.
    fn write_hash(&mut self, before: Option<StoredHash>, fields: &Fields<'_>, end: End) {
        let same_end = before.is_some_and(|hash| hash.end == end);
        if fields.is_empty() && same_end {
            return;
        }
        let Some(hash) = &mut self.hash else {
            return;
        };
        fields.write(&self.out, self.key, hash);
        write_end(&self.out, self.key, hash, before.map(|hash| hash.end), end);
        self.db.signal_modified(self.key);
    }

    /// Changes an owner's timeout keys. `opened`: those of them that are open already.
    pub(super) fn write_timeouts(&self, owner: &[u8], steps: &[Step], mut opened: Opened<'c>) {
        for step in steps {
            if let Some(at) = opened.iter().position(|(number, ..)| *number == step.number()) {
                if let Step::Set(_, end) = *step {
                    let (_, name, key) = opened.swap_remove(at);
                    self.set_opened(&name, key, self.key, end);
                    continue;
                }
            }
            let name = text(&self.name.timeout(owner, step.number()));
            match *step {
                Step::Set(_, end) => self.set(&name, self.key, end),
                Step::Expire(_, end) => {
                    if let Some(mut key) = self.open_derived(&name, Access::Write) {
                        self.out.expire(&mut key, &name, end);
                        self.db.signal_modified(&name);
                    }
                }
                Step::Delete(_) => self.delete(None, [&name]),
            }
        }
    }

    /// Writes a string key that expires at `end`.
    pub(super) fn set(&self, name: &Str, value: &Str, end: End) {
        if let Some(key) = self.open_derived(name, Access::Write) {
            self.set_opened(name, key, value, end);
        }
    }

    fn set_opened(&self, name: &Str, mut key: Key<'_>, value: &Str, end: End) {
        match end {
            End::At(at) => {
                key.string_set(value, Some(at));
                self.out.propagate_set_until(name, value, at);
            }
            End::Never => {
                key.string_set(value, None);
                self.out.propagate(Plain::Set, &[name, value]);
            }
        }
        self.db.signal_modified(name);
    }

    /// Deletes the hash. The caller propagates that.
    fn delete_hash(&mut self) {
        if let Some(hash) = &mut self.hash {
            hash.delete();
            self.db.signal_modified(self.key);
        }
    }

    /// Deletes the keys of these names and propagates that as one command. `done`: a key that is
    /// deleted already and that the command names too.
    pub(super) fn delete<'n>(
        &self,
        done: Option<&'n Str>,
        names: impl IntoIterator<Item = &'n Text>,
    ) {
        let mut all: SmallVec<[&Str; 4]> = done.into_iter().collect();
        for name in names {
            let key = self.open_derived(name, Access::Write);
            if let Some(mut key) = key.filter(|key| key.kind() != KeyType::Empty) {
                key.delete();
                self.db.signal_modified(name);
                all.push(name);
            }
        }
        self.out.propagate_deletion(&all);
    }
}

/// Writes and propagates the end of a lock's hash. `before`: the end that it has; None: the hash
/// is new, or its end is unknown and shall be replaced by a time.
fn write_end(out: &Propagation<'_>, name: &Str, hash: &mut Key<'_>, before: Option<End>, end: End) {
    match end {
        _ if before == Some(end) => {}
        // A new hash has no expiry.
        End::Never if before.is_none() => {}
        end => out.expire(hash, name, end),
    }
}

/// Deletes a new hash when it is dropped, which happens only if a panic interrupts the write: a
/// hash without its end would be held for ever.
struct Undo<'s, 'c>(&'s mut Store<'c>);

impl Drop for Undo<'_, '_> {
    fn drop(&mut self) {
        self.0.discard_hash();
    }
}

/// The owner of the live read hold with the latest end. If that end is that of more than one
/// owner, the one that comes first in the hash.
fn last_reader(fields: &[Field]) -> &[u8] {
    let latest = |field: &Field| match &field.stored {
        Stored::Reads(read_holds) => live_ends(read_holds).into_iter().max(),
        Stored::Writes(_) => None,
    };
    let reading = fields.iter().rev().filter_map(|field| Some((latest(field)?, field)));
    reading.max_by_key(|(end, _)| *end).map_or(b"", |(_, field)| &field.owner)
}

/// The owner of the write holds, or an empty name.
fn writer(fields: &[Field]) -> &[u8] {
    let mut fields = fields.iter();
    let writer = fields.find(|field| matches!(field.stored, Stored::Writes(_)));
    writer.map_or(b"", |field| &field.owner)
}
