//! A simple model of a lock, written from the contract: a list of read holds, a writer, an
//! end. It shares no code with the rules.

use super::world::{LockInfo, Reply, Step};
use crate::core::{Millis, Mode, NotHeld};
use std::collections::BTreeMap;

/// The end of a lock or a hold that never ends.
pub const NEVER: Millis = Millis::MAX;

type Owner = u8;

/// A lock, its reservation and the time.
#[derive(Default)]
pub struct Model {
    now: Millis,
    end: Millis,
    /// The read holds, in the order in which they were taken.
    reads: Vec<(Owner, Millis)>,
    writer: Option<(Owner, u64)>,
    reserved: Option<(Owner, Millis)>,
}

impl Model {
    pub fn step(&mut self, step: Step) -> Reply {
        match step {
            Step::Read { owner, lease, once } => self.read(owner, self.now + lease, once),
            Step::Write { owner, lease, once, reserve } => {
                let reply = self.write(owner, self.now + lease, once);
                if let (Reply::Refused(_), Some(ms)) = (reply, reserve) {
                    if !self.others_reserved(owner) {
                        self.reserved = Some((owner, self.now + ms));
                    }
                }
                reply
            }
            Step::GiveRead(owner) => self.give_read(owner),
            Step::GiveWrite(owner) => self.give_write(owner),
            Step::GiveAny(owner) if self.reads(owner) == 0 && self.writes(owner) > 0 => {
                self.give_write(owner)
            }
            Step::GiveAny(owner) => self.give_read(owner),
            Step::GiveAll(owner) => self.give_all(owner),
            Step::Renew { owner, lease } => self.renew(owner, self.now + lease),
            Step::Upgrade { owner, lease } => self.upgrade(owner, self.now + lease),
            Step::Downgrade { owner, lease } => self.downgrade(owner, self.now + lease),
            Step::Persist => {
                if self.mode().is_some() {
                    self.end = NEVER;
                }
                Reply::Done
            }
            Step::Elapse(ms) => {
                self.elapse(ms);
                Reply::Done
            }
        }
    }

    pub fn info(&self) -> LockInfo {
        let mut holds: BTreeMap<Owner, (Vec<Millis>, u64)> = BTreeMap::new();
        for (owner, end) in &self.reads {
            holds.entry(*owner).or_default().0.push(*end);
        }
        if let Some((owner, count)) = self.writer {
            holds.entry(owner).or_default().1 = count;
        }
        LockInfo { end: self.mode().map(|_| self.end), holds, reserved: self.reserved }
    }

    fn read(&mut self, owner: Owner, lease: Millis, once: bool) -> Reply {
        let allowed = match self.writer {
            Some((writer, _)) => writer == owner,
            None => self.reads(owner) > 0 || !self.others_reserved(owner),
        };
        if !allowed {
            return self.refusal();
        }
        self.lengthen(lease);
        match self.reads.iter_mut().rev().find(|(reader, _)| *reader == owner) {
            Some((_, end)) if once => *end = lease.max(*end),
            _ => self.reads.push((owner, lease)),
        }
        Reply::Done
    }

    fn write(&mut self, owner: Owner, lease: Millis, once: bool) -> Reply {
        let allowed = match self.writer {
            Some((writer, _)) => writer == owner,
            None => self.reads.is_empty() && !self.others_reserved(owner),
        };
        if !allowed {
            return self.refusal();
        }
        self.lengthen(lease);
        let held = self.writes(owner);
        self.writer = Some((owner, if once && held > 0 { held } else { held + 1 }));
        if self.reserved.is_some_and(|(by, _)| by == owner) {
            self.reserved = None;
        }
        Reply::Done
    }

    fn give_read(&mut self, owner: Owner) -> Reply {
        let Some(highest) = self.reads.iter().rposition(|(reader, _)| *reader == owner) else {
            return self.not_held(owner, Mode::Write);
        };
        self.reads.remove(highest);
        if self.writer.is_none() {
            self.end_with_reads();
        }
        Reply::Freed(self.mode().is_none())
    }

    fn give_write(&mut self, owner: Owner) -> Reply {
        match self.writes(owner) {
            0 => return self.not_held(owner, Mode::Read),
            1 => {
                self.writer = None;
                self.end_with_reads();
            }
            count => self.writer = Some((owner, count - 1)),
        }
        Reply::Freed(self.mode().is_none())
    }

    fn give_all(&mut self, owner: Owner) -> Reply {
        if self.reads(owner) == 0 && self.writes(owner) == 0 {
            return self.not_held(owner, Mode::Read);
        }
        self.reads.retain(|(reader, _)| *reader != owner);
        self.writer = self.writer.filter(|(writer, _)| *writer != owner);
        self.end_with_reads();
        Reply::Freed(self.mode().is_none())
    }

    fn renew(&mut self, owner: Owner, lease: Millis) -> Reply {
        if self.reads(owner) == 0 && self.writes(owner) == 0 {
            return self.not_held(owner, Mode::Read);
        }
        for (reader, end) in &mut self.reads {
            if *reader == owner {
                *end = lease.max(*end);
            }
        }
        self.end = lease.max(self.end);
        Reply::Done
    }

    fn upgrade(&mut self, owner: Owner, lease: Millis) -> Reply {
        if self.reads(owner) == 0 {
            return self.not_held(owner, Mode::Write);
        }
        if self.reads.iter().any(|(reader, _)| *reader != owner) {
            return self.refusal();
        }
        self.end = lease.max(self.end);
        self.writer = Some((owner, self.writes(owner) + 1));
        Reply::Done
    }

    fn downgrade(&mut self, owner: Owner, lease: Millis) -> Reply {
        if self.writes(owner) == 0 {
            return self.not_held(owner, Mode::Read);
        }
        self.writer = None;
        match self.reads.last_mut() {
            Some((_, end)) => *end = lease.max(*end),
            None => self.reads.push((owner, lease)),
        }
        self.end_with_reads();
        Reply::Done
    }

    fn elapse(&mut self, ms: Millis) {
        self.now += ms;
        let now = self.now;
        self.reads.retain(|(_, end)| now <= *end);
        self.writer = self.writer.filter(|_| now <= self.end);
        self.reserved = self.reserved.filter(|(_, end)| now <= *end);
    }

    fn mode(&self) -> Option<Mode> {
        match self.writer {
            Some(_) => Some(Mode::Write),
            None => (!self.reads.is_empty()).then_some(Mode::Read),
        }
    }

    fn reads(&self, owner: Owner) -> usize {
        self.reads.iter().filter(|(reader, _)| *reader == owner).count()
    }

    fn writes(&self, owner: Owner) -> u64 {
        self.writer.map_or(0, |(writer, count)| if writer == owner { count } else { 0 })
    }

    fn others_reserved(&self, owner: Owner) -> bool {
        self.reserved.is_some_and(|(by, _)| by != owner)
    }

    /// Makes the lock live at least until `lease`. The old end of a free lock does not count.
    fn lengthen(&mut self, lease: Millis) {
        self.end = if self.mode().is_some() { lease.max(self.end) } else { lease };
    }

    fn end_with_reads(&mut self) {
        if self.end != NEVER {
            self.end = self.reads.iter().map(|(_, end)| *end).max().unwrap_or_default();
        }
    }

    fn refusal(&self) -> Reply {
        match (self.mode(), self.reserved) {
            (None, Some((_, end))) => Reply::Refused(end),
            _ => Reply::Refused(self.end),
        }
    }

    /// Why the owner lacks a hold. `other`: the mode in which it can hold the lock all the
    /// same.
    fn not_held(&self, owner: Owner, other: Mode) -> Reply {
        Reply::NotHeld(match self.mode() {
            None => NotHeld::Free,
            Some(_) if self.reads(owner) > 0 || self.writes(owner) > 0 => NotHeld::OtherMode(other),
            Some(mode) => NotHeld::Others(mode),
        })
    }
}
