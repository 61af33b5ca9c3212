//! What the clients of the storm do.

use std::time::{Duration, Instant};

use super::books::{Asked, Kind, Lock, Owner, Target, Which};
use super::client::{Take, Want, What};
use super::storm::{lock_name, owner_name, Storm, CLIENTS, DATABASES, LOCKS, OWN, SHARED};

impl Storm {
    /// A client that waits for nothing does something.
    pub(super) fn act(&mut self, number: usize) {
        let held = self.any_held(number);
        match (self.random.below(100), held) {
            (0..45, Some((lock, owner, kind))) => self.give(number, lock, owner, Some(kind)),
            (45..53, Some((lock, owner, _))) => self.renew(number, lock, owner),
            (53..58, Some((lock, owner, _))) => self.downgrade(number, lock, owner),
            (58..66, Some((lock, owner, kind))) => self.take_again(number, lock, owner, kind),
            (58..60, None) => {
                let (lock, owner) = (self.any_lock(number), self.any_owner(number));
                self.give(number, lock, owner, None);
            }
            (90..100, _) => self.interfere(number),
            _ => {
                let (lock, owner) = (self.any_lock(number), self.any_owner(number));
                let want = if self.random.chance(60) { Want::Read } else { Want::Write };
                self.take(number, lock, owner, want);
            }
        }
    }

    fn any_held(&mut self, number: usize) -> Option<(Lock, Owner, Kind)> {
        let count = self.clients[number].held.len();
        let at = if count == 0 { return None } else { self.random.below_len(count) };
        Some(self.clients[number].held[at])
    }

    fn any_lock(&mut self, number: usize) -> Lock {
        (self.clients[number].db, self.random.below_len(LOCKS))
    }

    fn any_owner(&mut self, number: usize) -> Owner {
        let shared = OWN + self.random.below_len(SHARED);
        self.clients[number].own.unwrap_or(shared)
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis(match self.random.below(10) {
            0..3 => self.random.between(1, 150),
            3..7 => self.random.between(1_000, 3_000),
            _ => self.random.between(30_000, 60_000),
        })
    }

    fn asked(&mut self, lock: Lock, owner: Owner) -> Asked {
        self.asked.insert((lock, owner));
        let lease = self.lease();
        Asked { lock, owner, at: Instant::now(), lease }
    }

    fn take_again(&mut self, number: usize, lock: Lock, owner: Owner, kind: Kind) {
        let want = match kind {
            Kind::Read if self.random.chance(70) => Want::Upgrade,
            Kind::Read => Want::Read,
            Kind::Write if self.random.chance(50) => Want::Read,
            Kind::Write => Want::Write,
        };
        self.take(number, lock, owner, want);
    }

    fn take(&mut self, number: usize, lock: Lock, owner: Owner, want: Want) {
        let block = match self.random.below(100) {
            0..20 => None,
            20..32 => Some(0),
            32..85 => Some(self.random.between(1, 50)),
            _ => Some(self.random.between(100, 800)),
        };
        let block = block.map(Duration::from_millis);
        let session = self.random.chance(25);
        let once = want != Want::Upgrade && self.random.chance(20);
        let asked = self.asked(lock, owner);
        let lease = asked.lease.as_millis();
        let word = match want {
            Want::Read => "RLOCK",
            Want::Write => "WLOCK",
            Want::Upgrade => "UPGRADE",
        };
        let mut line = format!("RWLOCK.{word} {} {} {lease}", lock_name(lock), owner_name(owner));
        if let Some(block) = block {
            line += &format!(" BLOCK {}", block.as_millis());
        } else if want == Want::Write && self.random.chance(30) {
            line += &format!(" RESERVE {}", self.random.between(5, 100));
        }
        if session {
            line += " SESSION";
            self.clients[number].sessions.insert((lock, owner));
        }
        if once {
            line += " ONCE";
        }
        self.ask(number, &line, What::Take(asked, Take { want, once, session, block }));
        match self.random.below(100) {
            // It changes its mind before it knows.
            0..4 => self.give(number, lock, owner, Some(want.kind())),
            4..8 => {
                self.count("disconnect at once");
                self.cut(number);
            }
            _ => {}
        }
    }

    fn give(&mut self, number: usize, lock: Lock, owner: Owner, kind: Option<Kind>) {
        let which = match (self.random.below(100), kind) {
            (0..60, Some(kind)) => Which::One(kind),
            (60..75, _) => Which::All,
            _ => Which::Any,
        };
        let word = match which {
            Which::One(Kind::Read) => " READ",
            Which::One(Kind::Write) => " WRITE",
            Which::All => " ALL",
            Which::Any | Which::Writes => "",
        };
        let asked = self.asked(lock, owner);
        let until = self.books.give_up(lock, owner, which, asked.at);
        self.books.begin(Target::Owner(lock, owner), asked.at);
        let line = format!("RWLOCK.UNLOCK {} {}{word}", lock_name(lock), owner_name(owner));
        self.ask(number, &line, What::Give(asked, which, until));
    }

    fn renew(&mut self, number: usize, lock: Lock, owner: Owner) {
        let asked = self.asked(lock, owner);
        let lease = asked.lease.as_millis();
        let line = format!("RWLOCK.RENEW {} {} {lease}", lock_name(lock), owner_name(owner));
        self.ask(number, &line, What::Renew(asked));
    }

    fn downgrade(&mut self, number: usize, lock: Lock, owner: Owner) {
        let asked = self.asked(lock, owner);
        let lease = asked.lease.as_millis();
        self.books.give_up(lock, owner, Which::Writes, asked.at);
        self.books.begin(Target::Owner(lock, owner), asked.at);
        let line = format!("RWLOCK.DOWNGRADE {} {} {lease}", lock_name(lock), owner_name(owner));
        self.ask(number, &line, What::Downgrade(asked));
    }

    /// What is no way to treat each other.
    fn interfere(&mut self, number: usize) {
        match self.random.below(200) {
            0..3 => {
                let all = (0..DATABASES).flat_map(|db| (0..LOCKS).map(move |lock| (db, lock)));
                self.remove(number, "FLUSHALL", "FLUSHALL", all.map(Target::Lock).collect());
            }
            3..30 => {
                let lock = self.any_lock(number);
                let line = format!("DEL {}", lock_name(lock));
                self.remove(number, "DEL", &line, vec![Target::Lock(lock)]);
            }
            30..50 => {
                let lock = self.any_lock(number);
                let line = format!("RWLOCK.FORCEUNLOCK {}", lock_name(lock));
                self.remove(number, "FORCEUNLOCK", &line, vec![Target::Lock(lock)]);
            }
            50..80 => self.kill(number),
            _ => self.unblock(number),
        }
    }

    fn remove(&mut self, number: usize, what: &'static str, line: &str, targets: Vec<Target>) {
        let now = Instant::now();
        for target in &targets {
            self.books.begin(*target, now);
        }
        self.events += 1;
        self.count(what);
        self.ask(number, line, What::Remove(targets));
    }

    fn kill(&mut self, number: usize) {
        let other = self.random.below_len(CLIENTS);
        let victim = &mut self.clients[other];
        let (Some(id), None) = (victim.id, &victim.doomed) else {
            return;
        };
        if other == number {
            return;
        }
        let now = Instant::now();
        for (lock, owner) in &victim.sessions {
            self.books.begin(Target::Owner(*lock, *owner), now);
            self.books.lose(*lock, *owner);
        }
        victim.doomed = Some(victim.sessions.clone());
        self.events += 1;
        self.count("CLIENT KILL");
        self.ask(number, &format!("CLIENT KILL ID {id}"), What::Kill(other));
    }

    fn unblock(&mut self, number: usize) {
        let start = self.random.below_len(CLIENTS);
        let mut others = (0..CLIENTS).map(|step| (start + step) % CLIENTS);
        let Some(other) = others.find(|other| self.clients[*other].blocking().is_some()) else {
            return;
        };
        let Some(id) = self.clients[other].id else {
            return;
        };
        let mut targets = Vec::new();
        if self.unblocking_may_close {
            for (lock, owner) in &self.clients[other].sessions {
                targets.push(Target::Owner(*lock, *owner));
                self.books.begin(Target::Owner(*lock, *owner), Instant::now());
                self.books.lose(*lock, *owner);
            }
        }
        self.clients[other].unblocks += 1;
        let how = if self.random.chance(50) { "TIMEOUT" } else { "ERROR" };
        self.events += 1;
        self.count("CLIENT UNBLOCK");
        self.ask(number, &format!("CLIENT UNBLOCK {id} {how}"), What::Unblock(other, targets));
    }
}
