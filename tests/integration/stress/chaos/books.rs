//! What is certain of the holds, by what clients sent and were told.
//!
//! A hold is certain from the receipt of its grant until its release was sent,
//! or until its lease is over, counted from the moment the request was sent: the
//! server cannot have granted it earlier. Whatever may have ended it otherwise
//! (a DEL, a FORCEUNLOCK, another client of the same owner) makes it uncertain
//! from the moment that was sent. So two holds that are certain at one time and
//! exclude each other are a fault of the server, however slow the machine is.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// A database and a number.
pub type Lock = (u8, usize);
pub type Owner = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Read,
    Write,
}

/// What a client gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Any,
    One(Kind),
    /// As DOWNGRADE does.
    Writes,
    All,
}

/// What something else may end holds of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Lock(Lock),
    Owner(Lock, Owner),
}

/// How that came to an end.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    /// The server replied.
    Replied(Instant),
    /// The connection is gone, and the server may still be about to do it.
    Lost,
}

/// The server's clock is in ms, and ours is another one.
const SLACK: Duration = Duration::from_millis(3);

/// Every grant that the server made before its reply to something has been read
/// when so many PINGs more have been answered: one may have been under way, the
/// next one was sent after that reply, and the look at the sockets after that
/// finds all that was written before.
const PINGS: u64 = 4;

/// The same for what was lost with its connection: the server has to notice it.
const PINGS_LOST: u64 = 12;

#[derive(Clone, Copy, Debug)]
struct Hold {
    kind: Kind,
    since: Instant,
    until: Instant,
    /// It may be one that was granted to another client of the owner.
    shared: bool,
}

/// What may end holds that are not known of yet.
#[derive(Default)]
struct Disturbance {
    under_way: u32,
    begun: Option<Instant>,
    replied: Option<Instant>,
    /// The PING from which on grants came after it.
    replied_clean: u64,
    lost_clean: u64,
}

impl Disturbance {
    /// Whether what was asked for then, and granted now, came after all of it;
    /// `own`: how many of those under way are the request itself.
    fn is_over(&self, pings: u64, asked: Instant, own: u32) -> bool {
        let after = self.replied.is_none_or(|replied| asked >= replied);
        self.under_way == own && pings >= self.lost_clean && (after || pings >= self.replied_clean)
    }
}

#[derive(Default)]
pub struct Books {
    holds: HashMap<Lock, BTreeMap<Owner, Vec<Hold>>>,
    of_lock: HashMap<Lock, Disturbance>,
    of_owner: HashMap<(Lock, Owner), Disturbance>,
    /// How many PINGs have been answered.
    pings: u64,
    /// How many holds were certain when their grant came.
    pub certain: u64,
    /// How many of them found somebody else's certain hold beside them.
    pub shared: u64,
}

/// What was asked for, when.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub lock: Lock,
    pub owner: Owner,
    pub at: Instant,
    pub lease: Duration,
}

impl Books {
    /// A PING that was sent after the one before was answered has been answered.
    pub fn ping_answered(&mut self) {
        self.pings += 1;
    }

    /// Something that may end holds is about to be sent.
    pub fn begin(&mut self, target: Target, now: Instant) {
        if let Target::Lock(lock) = target {
            self.holds.remove(&lock);
        }
        let disturbance = self.disturbance(target);
        disturbance.under_way += 1;
        disturbance.begun = Some(now);
    }

    pub fn end(&mut self, target: Target, how: Over) {
        let pings = self.pings;
        let disturbance = self.disturbance(target);
        disturbance.under_way -= 1;
        match how {
            Over::Replied(at) => {
                disturbance.replied = Some(at);
                disturbance.replied_clean = pings + PINGS;
            }
            Over::Lost => disturbance.lost_clean = pings + PINGS_LOST,
        }
    }

    /// All that the owner has there may end now.
    pub fn lose(&mut self, lock: Lock, owner: Owner) {
        if let Some(owners) = self.holds.get_mut(&lock) {
            owners.remove(&owner);
        }
    }

    /// The request was granted. An error tells who held it as well.
    pub fn granted(
        &mut self,
        asked: Asked,
        kind: Kind,
        once: bool,
        now: Instant,
    ) -> Result<(), String> {
        self.add(asked, kind, once, now, 0)
    }

    /// DOWNGRADE, which is something that ends holds as well, was granted.
    pub fn downgraded(&mut self, asked: Asked, now: Instant) -> Result<(), String> {
        self.add(asked, Kind::Read, true, now, 1)
    }

    fn add(
        &mut self,
        asked: Asked,
        kind: Kind,
        once: bool,
        now: Instant,
        own: u32,
    ) -> Result<(), String> {
        let Asked { lock, owner, at, lease } = asked;
        let pings = self.pings;
        let over = self.disturbance(Target::Lock(lock)).is_over(pings, at, 0)
            && self.disturbance(Target::Owner(lock, owner)).is_over(pings, at, own);
        let until = at + lease - SLACK.min(lease);
        if !over || until <= now {
            return Ok(());
        }
        self.certain += 1;
        let holds = self.holds.entry(lock).or_default().entry(owner).or_default();
        holds.retain(|hold| hold.until > now);
        // ONCE perhaps made no second one; and what comes after it here may have
        // come before it there.
        let mut same = holds.iter_mut().filter(|hold| hold.kind == kind);
        let one = if once { same.max_by_key(|hold| hold.until) } else { same.find(|h| h.shared) };
        match one {
            Some(hold) => {
                hold.until = hold.until.max(until);
                hold.shared &= once;
            }
            None => holds.push(Hold { kind, since: now, until, shared: once }),
        }
        self.check(asked, kind, now)
    }

    fn check(&mut self, asked: Asked, kind: Kind, now: Instant) -> Result<(), String> {
        for (other, holds) in self.holds.get(&asked.lock).into_iter().flatten() {
            let live = holds.iter().filter(|hold| *other != asked.owner && hold.until > now);
            for hold in live {
                if kind == Kind::Write || hold.kind == Kind::Write {
                    let since = now - hold.since;
                    let left = hold.until - now;
                    return Err(format!(
                        "{asked:?} was granted to {kind:?} beside {other}, who has held it to \
                         {:?} for {since:?} and holds it for {left:?} more",
                        hold.kind
                    ));
                }
                self.shared += 1;
            }
        }
        Ok(())
    }

    /// A release is about to be sent. Until when there certainly is something to
    /// release.
    pub fn give_up(
        &mut self,
        lock: Lock,
        owner: Owner,
        which: Which,
        now: Instant,
    ) -> Option<Instant> {
        let holds = self.holds.get_mut(&lock)?.get_mut(&owner)?;
        holds.retain(|hold| hold.until > now);
        let mut given = Vec::new();
        match which {
            Which::All => given.append(holds),
            Which::Writes => given.extend(take(holds, Kind::Write, usize::MAX)),
            Which::One(kind) => given.extend(take(holds, kind, 1)),
            Which::Any => {
                given.extend(take(holds, Kind::Read, 1));
                given.extend(take(holds, Kind::Write, 1));
            }
        }
        given.into_iter().map(|hold| hold.until).max()
    }

    /// RENEW was granted.
    pub fn renewed(&mut self, asked: Asked, now: Instant) {
        let Asked { lock, owner, at, lease } = asked;
        let until = at + lease - SLACK.min(lease);
        let holds = self.holds.get_mut(&lock).and_then(|owners| owners.get_mut(&owner));
        for hold in holds.into_iter().flatten() {
            if hold.since < at && hold.until > now {
                hold.until = hold.until.max(until);
            }
        }
    }

    /// Whether the owner certainly had such a hold all the time since `asked`.
    pub fn had(&self, asked: Asked, kind: Option<Kind>, now: Instant) -> bool {
        let holds = self.holds.get(&asked.lock).and_then(|owners| owners.get(&asked.owner));
        holds.into_iter().flatten().any(|hold| {
            kind.is_none_or(|kind| hold.kind == kind) && hold.since < asked.at && hold.until > now
        })
    }

    /// Somebody else who certainly had a hold all the time since `asked`.
    pub fn others_had(&self, asked: Asked, now: Instant) -> Option<Owner> {
        let mut owners = self.holds.get(&asked.lock).into_iter().flatten();
        let found = owners.find(|(other, holds)| {
            let has = |hold: &Hold| hold.since < asked.at && hold.until > now;
            **other != asked.owner && holds.iter().any(has)
        });
        found.map(|(owner, _)| *owner)
    }

    /// How many things are under way that may end holds.
    pub fn under_way(&self) -> usize {
        let all = self.of_lock.values().chain(self.of_owner.values());
        all.map(|disturbance| disturbance.under_way as usize).sum()
    }

    /// Whether nothing but the request itself has been sent since `asked` that
    /// could have ended the owner's holds.
    pub fn undisturbed(&mut self, asked: Asked) -> bool {
        let quiet = |disturbance: &Disturbance| disturbance.begun.is_none_or(|at| at <= asked.at);
        quiet(self.disturbance(Target::Lock(asked.lock)))
            && quiet(self.disturbance(Target::Owner(asked.lock, asked.owner)))
    }

    /// All holds on a lock that have been certain since `then`: how many there
    /// are of an owner and a kind.
    pub fn on(&self, lock: Lock, then: Instant, now: Instant) -> BTreeMap<(Owner, Kind), i64> {
        let mut counts = BTreeMap::new();
        for (owner, holds) in self.holds.get(&lock).into_iter().flatten() {
            for hold in holds.iter().filter(|hold| hold.since < then && hold.until > now) {
                *counts.entry((*owner, hold.kind)).or_default() += 1;
            }
        }
        counts
    }

    fn disturbance(&mut self, target: Target) -> &mut Disturbance {
        match target {
            Target::Lock(lock) => self.of_lock.entry(lock).or_default(),
            Target::Owner(lock, owner) => self.of_owner.entry((lock, owner)).or_default(),
        }
    }
}

/// Takes holds of a kind. Which of them the server takes is not known here: what
/// is left is what may be left, that which ends earliest.
fn take(holds: &mut Vec<Hold>, kind: Kind, most: usize) -> Vec<Hold> {
    holds.sort_by_key(|hold| hold.until);
    let mut taken = Vec::new();
    while taken.len() < most {
        let Some(last) = holds.iter().rposition(|hold| hold.kind == kind) else {
            break;
        };
        taken.push(holds.remove(last));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Lock = (0, 7);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn asked(owner: Owner, at: Instant) -> Asked {
        Asked { lock: LOCK, owner, at, lease: ms(1_000) }
    }

    #[test]
    fn holds_that_exclude_each_other_are_found() {
        let start = Instant::now();
        for (one, other, bad) in [
            (Kind::Read, Kind::Read, false),
            (Kind::Read, Kind::Write, true),
            (Kind::Write, Kind::Read, true),
            (Kind::Write, Kind::Write, true),
        ] {
            let mut books = Books::default();
            books.granted(asked(1, start), one, false, start + ms(1)).expect("alone");
            // The owner itself may have both.
            books.granted(asked(1, start), other, false, start + ms(2)).expect("again");
            books.give_up(LOCK, 1, Which::One(other), start + ms(3));
            if one == other {
                books.granted(asked(1, start), one, false, start + ms(4)).expect("back");
            }
            let beside = books.granted(asked(2, start + ms(5)), other, false, start + ms(6));
            assert_eq!(beside.is_err(), bad, "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_may_have_ended_is_not_certain() {
        let start = Instant::now();
        let begin = |books: &mut Books| {
            books.granted(asked(1, start), Kind::Write, false, start + ms(1)).expect("alone");
        };
        let also = |books: &mut Books, at: u64| {
            books.granted(asked(2, start + ms(5)), Kind::Write, false, start + ms(at)).is_err()
        };

        let mut books = Books::default();
        begin(&mut books);
        assert!(also(&mut books, 900), "it is certain until it ends");

        let mut books = Books::default();
        begin(&mut books);
        assert!(!also(&mut books, 1_000), "its lease is over");

        let mut books = Books::default();
        begin(&mut books);
        assert!(books.give_up(LOCK, 1, Which::Any, start + ms(2)).is_some());
        assert!(!also(&mut books, 10), "its release was sent");

        let mut books = Books::default();
        begin(&mut books);
        books.begin(Target::Lock(LOCK), start + ms(2));
        assert!(!also(&mut books, 10), "a DEL was sent");
        assert_eq!(books.certain, 1, "nor is what comes meanwhile");
        books.end(Target::Lock(LOCK), Over::Replied(start + ms(20)));
        books.granted(asked(3, start), Kind::Write, false, start + ms(21)).expect("alone");
        assert_eq!(books.certain, 1, "nor what may have come before");
        books.granted(asked(4, start + ms(22)), Kind::Write, false, start + ms(23)).expect("alone");
        assert_eq!(books.certain, 2, "but what was asked for after it is");
    }
}
