//! A client that moves money.

use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisError, RedisResult, Value};

use super::{balance_name, lock_name, seen_name, Bank, Counts, Guard, ACCOUNTS, LEDGER};
use support::observe::run;
use support::{assert_ok, bytes, call, int, list, map, text, Random};

/// Writes both balances if the owner still has both locks.
const WRITE_IF_RENEWED: &str = "
    local held = redis.call('RWLOCK.MRENEW', ARGV[1], ARGV[2], KEYS[1], KEYS[2])
    if held[1] == 0 or held[2] == 0 then return 0 end
    redis.call('MSET', KEYS[3], ARGV[3], KEYS[4], ARGV[4])
    redis.call('HSET', KEYS[5], ARGV[1], ARGV[5])
    return 1";

/// Notes the tokens and reads both balances, unless a later token was seen.
const READ_IF_LAST: &str = "
    for at = 1, 2 do
        local seen = tonumber(redis.call('GET', KEYS[at]) or 0)
        if seen > tonumber(ARGV[at]) then return false end
    end
    redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])
    return redis.call('MGET', KEYS[3], KEYS[4])";

/// Writes both balances if the tokens are the last that were seen.
const WRITE_IF_LAST: &str = "
    for at = 1, 2 do
        if redis.call('GET', KEYS[at]) ~= ARGV[at] then return 0 end
    end
    redis.call('MSET', KEYS[3], ARGV[3], KEYS[4], ARGV[4])
    redis.call('HSET', KEYS[5], ARGV[5], ARGV[6])
    return 1";

/// What became of the transfers.
#[derive(Default)]
pub struct Books {
    /// The owners that were told that their transfer is written.
    pub written: BTreeSet<String>,
    /// The owners that were cut off before they were told.
    pub unknown: BTreeSet<String>,
    pub counts: Counts,
}

impl Books {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl AddAssign for Books {
    fn add_assign(&mut self, other: Self) {
        self.written.extend(other.written);
        self.unknown.extend(other.unknown);
        for (what, count) in other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

/// One attempt to move money.
struct Transfer {
    /// No other request has this owner.
    owner: String,
    from: usize,
    to: usize,
    amount: i64,
    /// In ms.
    lease: u64,
    /// Whether the holds are bound to the connection.
    session: bool,
    /// Whether the client takes longer than the lease.
    slow: bool,
}

impl Transfer {
    fn locks(&self) -> [String; 2] {
        [self.from, self.to].map(lock_name)
    }
}

/// A client, and what it knows.
pub struct Mover<'b> {
    bank: &'b Bank<'b>,
    con: Connection,
    id: i64,
    asked: u64,
    random: Random,
    books: Books,
}

impl<'b> Mover<'b> {
    pub fn new(bank: &'b Bank<'b>, random: Random) -> Self {
        let (con, id) = connect(bank);
        Self { bank, con, id, asked: 0, random, books: Books::default() }
    }

    /// Moves money until all clients together have done enough.
    pub fn work(mut self) -> Books {
        while self.bank.goes_on() {
            let transfer = self.choose();
            if let Err(error) = self.attempt(&transfer) {
                self.cut_off(&error);
            }
        }
        self.books.counts.insert("outcome unknown", self.books.unknown.len() as u64);
        self.books
    }

    fn choose(&mut self) -> Transfer {
        self.asked += 1;
        let random = &mut self.random;
        let from = random.below_len(ACCOUNTS);
        let to = (from + 1 + random.below_len(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = i64::try_from(random.between(1, 100)).expect("a small amount");
        let short = random.chance(20);
        let lease = if short { random.between(1, 20) } else { 100 };
        let session = random.chance(25);
        let slow = !session && short && random.chance(25);
        let owner = format!("{}-{}", self.id, self.asked);
        Transfer { owner, from, to, amount, lease, session, slow }
    }

    /// Takes the locks, moves the money and gives the locks back. An error: the connection is
    /// closed.
    fn attempt(&mut self, transfer: &Transfer) -> RedisResult<()> {
        let Some(tokens) = self.take(transfer)? else {
            self.books.count("timed out");
            return Ok(());
        };
        let balances = self.read(transfer, tokens)?;
        if transfer.slow {
            thread::sleep(Duration::from_millis(transfer.lease + 2));
            self.books.count("slower than the lease");
        }
        match balances {
            Some(balances) => self.write(transfer, tokens, balances)?,
            None => self.books.count("not read"),
        }
        if !transfer.session && self.random.chance(1) {
            self.books.count("not given back");
            return Ok(());
        }
        self.give_back(transfer)
    }

    /// None: the time was up. Without FENCE, zeros stand for the tokens.
    fn take(&mut self, transfer: &Transfer) -> RedisResult<Option<[i64; 2]>> {
        let [from, to] = transfer.locks();
        let block = if self.random.chance(60) { 0 } else { self.random.between(1, 50) };
        let (owner, lease) = (&transfer.owner, transfer.lease);
        let mut line = format!("RWLOCK.MLOCK {owner} {lease} WRITE 2 {from} {to} BLOCK {block}");
        if self.bank.guard == Guard::Fenced {
            line += " FENCE";
        }
        if transfer.session {
            line += " SESSION";
        }
        match run(&mut self.con, &line)? {
            Value::Int(_) if block > 0 => Ok(None),
            Value::Okay if self.bank.guard != Guard::Fenced => Ok(Some([0, 0])),
            Value::Array(parts) if parts.len() == 3 => {
                assert_ok(&parts[0]);
                Ok(Some([int(&parts[1]), int(&parts[2])]))
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    /// None: the storage has seen a later token.
    fn read(&mut self, transfer: &Transfer, tokens: [i64; 2]) -> RedisResult<Option<[i64; 2]>> {
        let [from, to] = [transfer.from, transfer.to].map(balance_name);
        let read = match self.bank.guard {
            Guard::Fenced => {
                let seen = [transfer.from, transfer.to].map(seen_name);
                call!(self.con, "EVAL", READ_IF_LAST, 4, &seen, from, to, &tokens)?
            }
            _ => call!(self.con, "MGET", from, to)?,
        };
        if read == Value::Nil {
            return Ok(None);
        }
        let read: Vec<i64> =
            list(read).into_iter().map(|one| text(one).parse().expect("a balance")).collect();
        Ok(Some([read[0], read[1]]))
    }

    /// Writes the new balances, unless a lock is lost.
    fn write(
        &mut self,
        transfer: &Transfer,
        tokens: [i64; 2],
        balances: [i64; 2],
    ) -> RedisResult<()> {
        let after = [balances[0] - transfer.amount, balances[1] + transfer.amount];
        let owner = &transfer.owner;
        // If the connection is closed now, it stays there.
        self.books.unknown.insert(owner.clone());
        let written = match self.bank.guard {
            Guard::Renewed => self.write_if_renewed(transfer, after),
            Guard::Watched => self.write_if_unchanged(transfer, after),
            Guard::Fenced => self.write_if_last(transfer, tokens, after),
        }?;
        self.books.unknown.remove(owner);
        if written {
            self.books.written.insert(owner.clone());
            self.bank.written.fetch_add(1, Ordering::Relaxed);
        } else {
            self.books.count("not written");
        }
        Ok(())
    }

    fn write_if_renewed(&mut self, transfer: &Transfer, after: [i64; 2]) -> RedisResult<bool> {
        let keys = keys(transfer, lock_name);
        let (owner, lease, entry) = (&transfer.owner, transfer.lease, entry(transfer));
        let con = &mut self.con;
        let written = call!(con, "EVAL", WRITE_IF_RENEWED, 5, keys, owner, lease, &after, entry)?;
        Ok(int(written) == 1)
    }

    fn write_if_last(
        &mut self,
        transfer: &Transfer,
        tokens: [i64; 2],
        after: [i64; 2],
    ) -> RedisResult<bool> {
        let keys = keys(transfer, seen_name);
        let (owner, entry) = (&transfer.owner, entry(transfer));
        let con = &mut self.con;
        let written = call!(con, "EVAL", WRITE_IF_LAST, 5, keys, &tokens, &after, owner, entry)?;
        Ok(int(written) == 1)
    }

    fn write_if_unchanged(&mut self, transfer: &Transfer, after: [i64; 2]) -> RedisResult<bool> {
        let locks = transfer.locks();
        assert_ok(call!(self.con, "WATCH", &locks)?);
        for lock in &locks {
            if !self.holds(lock, &transfer.owner)? {
                assert_ok(run(&mut self.con, "UNWATCH")?);
                return Ok(false);
            }
        }
        let [from, to] = [transfer.from, transfer.to].map(balance_name);
        assert_ok(run(&mut self.con, "MULTI")?);
        call!(self.con, "MSET", from, after[0], to, after[1])?;
        call!(self.con, "HSET", LEDGER, &transfer.owner, entry(transfer))?;
        Ok(run(&mut self.con, "EXEC")? != Value::Nil)
    }

    fn holds(&mut self, lock: &str, owner: &str) -> RedisResult<bool> {
        let seen = map(call!(self.con, "RWLOCK.INSPECT", lock)?);
        let mut holders = list(&seen["holders"]).into_iter().map(map);
        Ok(holders.any(|holder| bytes(&holder["owner"]) == owner.as_bytes()))
    }

    fn give_back(&mut self, transfer: &Transfer) -> RedisResult<()> {
        let [from, to] = transfer.locks();
        let line = format!("RWLOCK.MUNLOCK {} WRITE 2 {from} {to}", transfer.owner);
        for given in list(run(&mut self.con, &line)?) {
            match int(given) {
                1 => {}
                -1 => self.books.count("lost a lock"),
                other => panic!("{line}: {other}"),
            }
        }
        Ok(())
    }

    /// Only a kill may close a connection, and only a closed connection is no answer.
    fn cut_off(&mut self, error: &RedisError) {
        assert!(error.is_io_error() && !error.is_timeout(), "{error}");
        let killed = self.bank.killed.lock().expect("the kills").contains(&self.id);
        assert!(killed, "client {} was not killed: {error}", self.id);
        (self.con, self.id) = connect(self.bank);
        self.asked = 0;
    }
}

/// The line of the ledger.
fn entry(transfer: &Transfer) -> String {
    format!("{} {} {}", transfer.from, transfer.to, transfer.amount)
}

/// The keys of a script: those that guard the accounts, the balances and the ledger.
fn keys(transfer: &Transfer, guard: fn(usize) -> String) -> Vec<String> {
    let accounts = [transfer.from, transfer.to];
    let keys = accounts.map(guard).into_iter().chain(accounts.map(balance_name));
    keys.chain([LEDGER.to_owned()]).collect()
}

fn connect(bank: &Bank<'_>) -> (Connection, i64) {
    let mut con = bank.server.connection();
    let id = int(call!(con, "CLIENT", "ID"));
    (con, id)
}
