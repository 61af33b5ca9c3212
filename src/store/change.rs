//! Changing a lock: from what the keys say to what it shall be, in as few
//! writes and propagated commands as it takes.

use super::holds::{Field, Stored, Whose};
use super::lock::{Seen, Stale};
use super::names::write_field;
use super::numbering::{live_ends, renumber, Slot, Step};
use super::{Error, Store, WORDS};
use crate::core::{announcement, Announcement, End, Lock, Mode};
use crate::ffi::{Access, Ctx, Key, Propagate, Str, Text};

impl Store<'_> {
    /// Makes the lock that was `seen` into `after`, as the owner who looked
    /// sees it, and removes the lapsed holds that the look met. Announces what
    /// ended. On an error nothing has changed.
    pub fn commit(&self, seen: &Seen, owner: &[u8], after: &Lock) -> Result<(), Error> {
        let lapsed = seen.hash.is_some() && seen.lock.is_free();
        let Some(mode) = after.mode() else {
            self.delete_lock(seen, owner)?;
            self.announce(announcement(seen.hash.map(|hash| hash.mode), lapsed, None));
            return Ok(());
        };
        // A hash that outlived its holders is not the one to go on with.
        let base = seen.hash.filter(|_| !lapsed);
        let (steps, reads) = renumber(&seen.own.slots, &after.own.reads)?;
        let mut fields = Fields::default();
        if base.map(|base| base.mode) != Some(mode) {
            fields.set_mode(mode);
        }
        let stored = if lapsed { (0, 0) } else { (seen.own.reads, seen.own.writes) };
        fields.count(owner, reads, stored.0);
        fields.count(&write_field(owner), after.own.writes, stored.1);
        let mut mended = Vec::new();
        for Field { owner, stored } in if lapsed { &[] } else { seen.debris.as_slice() } {
            match stored {
                Stored::Reads(slots) => {
                    let (steps, count) = renumber(slots, &live_ends(slots))?;
                    fields.count(owner, count, slots.len() as u64);
                    mended.push((owner, steps));
                }
                Stored::Writes(count) => fields.count(&write_field(owner), 0, *count),
            }
        }
        self.check_new_timeouts(&seen.own.slots, owner, &steps)?;

        if lapsed {
            self.delete(&[self.key]);
        }
        self.write_hash(base, &fields, after.end);
        self.write_timeouts(owner, &steps);
        for (owner, steps) in mended {
            self.write_timeouts(owner, &steps);
        }
        self.announce(announcement(seen.hash.map(|hash| hash.mode), lapsed, Some(mode)));
        Ok(())
    }

    /// Deletes the lock `seen`: the hash and the owner's timeout keys. Nobody
    /// else has a live one.
    fn delete_lock(&self, seen: &Seen, owner: &[u8]) -> Result<(), Error> {
        if seen.hash.is_none() {
            return Ok(());
        }
        let timeouts: Vec<Text> = renumber(&seen.own.slots, &[])?
            .0
            .iter()
            .map(|step| Text::new(&self.name.timeout(owner, step.number())))
            .collect();
        let mut names = vec![self.key];
        names.extend(timeouts.iter().map(|name| &**name));
        self.delete(&names);
        Ok(())
    }

    /// Removes the lock whoever holds it, with its timeout keys and its
    /// reservation. False when there was neither. With a mode: only a lock in
    /// that mode.
    pub fn force(&self, only: Option<Mode>) -> Result<bool, Error> {
        let found = self.everything()?;
        let mode = found.as_ref().map(|(mode, _)| *mode);
        if only.is_some() && only != mode {
            return Ok(false);
        }
        let reservation = self.reservation()?.map(|_| Text::new(&self.name.reservation()));
        if mode.is_none() && reservation.is_none() {
            return Ok(false);
        }
        let mut timeouts = Vec::new();
        for Field { owner, stored } in found.iter().flat_map(|(_, fields)| fields) {
            if let Stored::Reads(slots) = stored {
                let live = (1..).zip(slots).filter(|(_, slot)| matches!(slot, Slot::Live(_)));
                timeouts
                    .extend(live.map(|(n, _): (u64, _)| Text::new(&self.name.timeout(owner, n))));
            }
        }
        let mut names: Vec<&Str> = mode.iter().map(|_| self.key).collect();
        names.extend(timeouts.iter().chain(&reservation).map(|name| &**name));
        self.delete(&names);
        // A reservation keeps readers out as a write hold does.
        self.announce(match mode {
            Some(Mode::Read) => Some(Announcement::ReadFreed),
            Some(Mode::Write) | None => Some(Announcement::WriteEnded),
        });
        Ok(true)
    }

    /// Looks whether the timeout keys of new holds are ours to write.
    fn check_new_timeouts(
        &self,
        slots: &[Slot],
        owner: &[u8],
        steps: &[Step],
    ) -> Result<(), Error> {
        for step in steps {
            if let Step::Set(number, _) = step {
                if *number > slots.len() as u64 {
                    let name = Text::new(&self.name.timeout(owner, *number));
                    if let Some(key) = self.ctx.open(&name, Access::Write) {
                        if let Whose::Other(lock) = self.whose(&key)? {
                            return Err(Error::Clash(lock));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn write_hash(&self, base: Option<Stale>, fields: &Fields, end: End) {
        let expire = base.is_none_or(|base| base.end != end);
        if fields.is_empty() && !expire {
            return;
        }
        let Some(hash) = self.ctx.open(self.key, Access::Write) else {
            return;
        };
        fields.write(self.ctx, self.key, &hash);
        match end {
            End::At(at) if expire => {
                hash.set_expiry(Some(at));
                self.propagate(c"PEXPIREAT", &[self.key, &Text::number(at)]);
            }
            End::Never if expire && base.is_some() => {
                hash.set_expiry(None);
                self.propagate(c"PERSIST", &[self.key]);
            }
            _ => {}
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
                Step::Delete(_) => self.delete(&[&name]),
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

    /// Deletes keys.
    pub(super) fn delete(&self, names: &[&Str]) {
        for name in names {
            if let Some(mut key) = self.ctx.open(name, Access::Write) {
                key.delete();
                self.ctx.signal_modified(name);
            }
        }
        self.propagate(c"DEL", names);
    }

    fn propagate(&self, command: &std::ffi::CStr, args: &[&Str]) {
        self.ctx.replicate(command, Propagate::Everywhere, args);
    }
}

/// The fields of a hash to write and to delete.
#[derive(Default)]
struct Fields {
    set: Vec<(Text, Text)>,
    delete: Vec<Text>,
}

impl Fields {
    fn set_mode(&mut self, mode: Mode) {
        let value = match mode {
            Mode::Read => &WORDS.read,
            Mode::Write => &WORDS.write,
        };
        self.set.push((Text::new(WORDS.mode.bytes()), Text::new(value.bytes())));
    }

    /// A field that shall say `count`, and says `stored`. 0 is no field.
    fn count(&mut self, field: &[u8], count: u64, stored: u64) {
        if count == stored {
            return;
        }
        let field = Text::new(field);
        match i64::try_from(count) {
            Ok(count) if count > 0 => self.set.push((field, Text::number(count))),
            _ => self.delete.push(field),
        }
    }

    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty()
    }

    /// Sets first: a hash goes with its last field.
    fn write(&self, ctx: Ctx<'_>, name: &Str, hash: &Key<'_>) {
        if !self.set.is_empty() {
            let mut args = vec![name];
            for (field, value) in &self.set {
                hash.hash_set(field, Some(value));
                args.extend([&**field, &**value]);
            }
            ctx.replicate(c"HSET", Propagate::Everywhere, &args);
        }
        if !self.delete.is_empty() {
            let mut args = vec![name];
            for field in &self.delete {
                hash.hash_set(field, None);
                args.push(field);
            }
            ctx.replicate(c"HDEL", Propagate::Everywhere, &args);
        }
    }
}
