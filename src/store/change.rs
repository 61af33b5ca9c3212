//! Changing a lock: from what the keys say to what it shall be, in as few
//! writes and propagated commands as it takes.

use super::fields::{Fields, Word};
use super::holds::{Field, Stored, Whose};
use super::lock::{Seen, Stale};
use super::names::write_field;
use super::numbering::{live_ends, renumber, Slot, Step, Steps};
use super::{Error, Owner, Store, WORDS};
use crate::core::{announcement, Announcement, End, Lock, Mode};
use crate::ffi::{Access, Propagate, Str, Text};
use smallvec::SmallVec;

impl Store<'_> {
    /// Makes the lock that was `seen` into `after`, as the owner who looked
    /// sees it, and removes the lapsed holds that the look met. Announces what
    /// ended. On an error nothing has changed.
    pub fn commit(&mut self, seen: &Seen, owner: &Owner<'_>, after: &Lock) -> Result<(), Error> {
        let lapsed = seen.hash.is_some() && seen.lock.is_free();
        match after.mode() {
            // The hash outlived its holders; it is not the one to go on with.
            Some(mode) if lapsed => self.write(&Seen::nothing(), owner, after, mode, |store| {
                store.delete_hash();
                store.propagate(c"DEL", &[store.key]);
            })?,
            Some(mode) => self.write(seen, owner, after, mode, |_| {})?,
            None if seen.hash.is_some() => self.delete_lock(seen, owner)?,
            None => {}
        }
        self.announce(announcement(seen.hash.map(|hash| hash.mode), lapsed, after.mode()));
        Ok(())
    }

    /// Writes a lock that is held; `prepare` runs when nothing can fail any more.
    fn write(
        &mut self,
        seen: &Seen,
        owner: &Owner<'_>,
        after: &Lock,
        mode: Mode,
        prepare: impl FnOnce(&mut Self),
    ) -> Result<(), Error> {
        let mut fields = Fields::default();
        if seen.hash.map(|hash| hash.mode) != Some(mode) {
            fields.set_mode(mode);
        }
        let (steps, reads) = renumber(&seen.own.slots, &after.own.reads)?;
        fields.count(|| Word::Lent(owner.read_field()), reads, seen.own.reads);
        fields.count(|| Word::Lent(owner.write_field()), after.own.writes, seen.own.writes);
        let mut mended: Vec<(&[u8], Steps)> = Vec::new();
        for Field { owner, stored } in &seen.debris {
            let made = |name: &[u8]| Word::Made(Text::new(name));
            match stored {
                Stored::Reads(slots) => {
                    let (steps, count) = renumber(slots, &live_ends(slots))?;
                    fields.count(|| made(owner), count, slots.len() as u64);
                    mended.push((owner, steps));
                }
                Stored::Writes(count) => fields.count(|| made(&write_field(owner)), 0, *count),
            }
        }
        self.check_new_timeouts(&seen.own.slots, owner, &steps)?;

        prepare(self);
        self.write_hash(seen.hash, &fields, after.end);
        self.write_timeouts(owner.bytes(), &steps);
        for (owner, steps) in mended {
            self.write_timeouts(owner, &steps);
        }
        Ok(())
    }

    /// Deletes the hash and the owner's timeout keys. Nobody else has a live
    /// one.
    fn delete_lock(&mut self, seen: &Seen, owner: &Owner<'_>) -> Result<(), Error> {
        let (steps, _) = renumber(&seen.own.slots, &[])?;
        let timeouts: SmallVec<[Text; 2]> = steps
            .iter()
            .map(|step| Text::new(&self.name.timeout(owner.bytes(), step.number())))
            .collect();
        self.delete_hash();
        self.delete(Some(self.key), timeouts.iter());
        Ok(())
    }

    /// Removes the lock whoever holds it, with its timeout keys and its
    /// reservation. How many holds that were; None when there was neither a lock
    /// nor a reservation. With a mode: only a lock in that mode.
    pub fn force(&mut self, only: Option<Mode>) -> Result<Option<u64>, Error> {
        let mut found = self.everything()?;
        if let Some((mode, _)) =
            found.take_if(|(mode, fields)| fields.iter().all(|field| !field.stored.is_live(*mode)))
        {
            // Its holders have lapsed; it is no lock that could be forced.
            self.delete_hash();
            self.propagate(c"DEL", &[self.key]);
            self.announce(announcement(Some(mode), true, None));
        }
        let mode = found.as_ref().map(|(mode, _)| *mode);
        if only.is_some() && only != mode {
            return Ok(None);
        }
        let reservation = self.reservation()?.map(|_| Text::new(&self.name.reservation()));
        if mode.is_none() && reservation.is_none() {
            return Ok(None);
        }
        let mut timeouts = Vec::new();
        let mut holds = 0_u64;
        for Field { owner, stored } in found.iter().flat_map(|(_, fields)| fields) {
            holds = holds.saturating_add(mode.map_or(0, |mode| stored.live(mode)));
            if let Stored::Reads(slots) = stored {
                let live = (1..).zip(slots).filter(|(_, slot)| matches!(slot, Slot::Live(_)));
                timeouts.extend(live.map(|(n, _)| Text::new(&self.name.timeout(owner, n))));
            }
        }
        if mode.is_some() {
            self.delete_hash();
        }
        self.delete(mode.map(|_| self.key), timeouts.iter().chain(&reservation));
        // A reservation keeps readers out as a write hold does.
        self.announce(match mode {
            Some(Mode::Read) => Some(Announcement::ReadFreed),
            Some(Mode::Write) | None => Some(Announcement::WriteEnded),
        });
        Ok(Some(holds))
    }

    /// Looks whether the timeout keys of new holds are ours to write.
    fn check_new_timeouts(
        &self,
        slots: &[Slot],
        owner: &Owner<'_>,
        steps: &[Step],
    ) -> Result<(), Error> {
        for step in steps {
            match *step {
                Step::Set(number, _) if number > slots.len() as u64 => {
                    let name = Text::new(&self.name.timeout(owner.bytes(), number));
                    if let Some(key) = self.ctx.open(&name, Access::Write) {
                        if let Whose::Other(lock) = self.whose(&key)? {
                            return Err(Error::Clash(lock));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write_hash(&self, before: Option<Stale>, fields: &Fields<'_>, end: End) {
        let same_end = before.is_some_and(|hash| hash.end == end);
        if fields.is_empty() && same_end {
            return;
        }
        let Some(hash) = &self.hash else {
            return;
        };
        fields.write(self.ctx, self.key, hash);
        match end {
            _ if same_end => {}
            End::At(at) => {
                hash.set_expiry(Some(at));
                self.propagate(c"PEXPIREAT", &[self.key, &Text::number(at)]);
            }
            End::Never if before.is_some() => {
                hash.set_expiry(None);
                self.propagate(c"PERSIST", &[self.key]);
            }
            End::Never => {}
        }
        self.ctx.signal_modified(self.key);
    }

    fn write_timeouts(&self, owner: &[u8], steps: &[Step]) {
        for step in steps {
            let name = Text::new(&self.name.timeout(owner, step.number()));
            match *step {
                Step::Set(_, end) => self.set(&name, self.key, end),
                Step::Expire(_, End::At(at)) => {
                    if let Some(key) = self.ctx.open(&name, Access::Write) {
                        key.set_expiry(Some(at));
                        self.propagate(c"PEXPIREAT", &[&name, &Text::number(at)]);
                        self.ctx.signal_modified(&name);
                    }
                }
                // Nothing makes a read hold endless that was not.
                Step::Expire(_, End::Never) => {}
                Step::Delete(_) => self.delete(None, [&name]),
            }
        }
    }

    /// Writes a string key.
    pub(super) fn set(&self, name: &Str, value: &Str, end: End) {
        let Some(mut key) = self.ctx.open(name, Access::Write) else {
            return;
        };
        key.string_set(value);
        match end {
            End::At(at) => {
                key.set_expiry(Some(at));
                self.propagate(c"SET", &[name, value, &WORDS.pxat, &Text::number(at)]);
            }
            End::Never => self.propagate(c"SET", &[name, value]),
        }
        self.ctx.signal_modified(name);
    }

    fn delete_hash(&mut self) {
        if let Some(hash) = &mut self.hash {
            hash.delete();
            self.ctx.signal_modified(self.key);
        }
    }

    /// Deletes keys. `done` is one that is deleted already, and that the same
    /// propagated command shall name.
    pub(super) fn delete<'n>(
        &self,
        done: Option<&'n Str>,
        names: impl IntoIterator<Item = &'n Text>,
    ) {
        let mut all: SmallVec<[&Str; 4]> = done.into_iter().collect();
        for name in names {
            if let Some(mut key) = self.ctx.open(name, Access::Write) {
                key.delete();
                self.ctx.signal_modified(name);
            }
            all.push(name);
        }
        self.propagate(c"DEL", &all);
    }

    fn propagate(&self, command: &std::ffi::CStr, args: &[&Str]) {
        self.ctx.replicate(command, Propagate::Everywhere, args);
    }
}
