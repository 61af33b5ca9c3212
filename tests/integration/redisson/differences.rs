//! Where the module differs from Redisson's scripts on purpose: a test for
//! each case of the contract, which shows both.

use std::collections::BTreeMap;

use redis::{Cmd, Connection, Value};

use support::redisson::{channel, timeout, Redisson, DEFAULT_LEASE};
use support::{assert_error, assert_ok, call, int, list, map, text, Call, Server};

const LOCK: &str = "orders";

/// Leases far enough apart that no stall of the machine confuses them.
const SHORT: u32 = 200_000;
const MIDDLE: u32 = 400_000;
const LONG: u32 = 600_000;

/// A server and a connection to it.
struct Side {
    server: Server,
    con: Connection,
}

/// The scripts have a server without the module: it shall not mend anything
/// behind them.
struct Sides {
    module: Side,
    scripts: Side,
    redisson: Redisson,
}

impl Sides {
    fn new() -> Self {
        let module = Side::new(Server::builder().start());
        let mut scripts = Side::new(Server::builder().without_module().start());
        let redisson = Redisson::load(&mut scripts.con).expect("load the scripts");
        Self { module, scripts, redisson }
    }

    /// Runs what a Redisson client sends.
    fn script(&mut self, command: impl FnOnce(&Redisson) -> Cmd) -> Value {
        self.scripts.con.call(&command(&self.redisson)).expect("run a script")
    }

    /// A read hold on both sides.
    fn read_lock(&mut self, owner: &str, lease: u32) {
        assert_eq!(self.script(|redisson| redisson.read_lock(LOCK, owner, lease)), Value::Nil);
        assert_ok(call!(self.module.con, "RWLOCK.RLOCK", LOCK, owner, lease));
    }

    /// A write hold on both sides.
    fn write_lock(&mut self, owner: &str, lease: u32) {
        assert_eq!(self.script(|redisson| redisson.write_lock(LOCK, owner, lease)), Value::Nil);
        assert_ok(call!(self.module.con, "RWLOCK.WLOCK", LOCK, owner, lease));
    }

    /// A lapse on both sides.
    fn lapse(&mut self, owner: &str, number: u64) {
        self.scripts.lapse(owner, number);
        self.module.lapse(owner, number);
    }
}

impl Side {
    fn new(server: Server) -> Self {
        let con = server.connection();
        Self { server, con }
    }

    fn fields(&mut self) -> BTreeMap<String, String> {
        let stored = map(call!(self.con, "HGETALL", LOCK));
        stored.into_iter().map(|(field, value)| (field, text(value))).collect()
    }

    fn exists(&mut self, key: &str) -> bool {
        int(call!(self.con, "EXISTS", key)) == 1
    }

    /// This read hold lapses: its timeout key goes.
    fn lapse(&mut self, owner: &str, number: u64) {
        assert_eq!(int(call!(self.con, "DEL", timeout(LOCK, owner, number))), 1);
    }

    /// The key's TTL must be what is left of `lease`.
    #[track_caller]
    fn assert_lives(&mut self, key: &str, lease: u32) {
        let (left, lease) = (int(call!(self.con, "PTTL", key)), i64::from(lease));
        assert!((lease - 100_000..=lease).contains(&left), "{key} lives {left} of {lease} ms");
    }

    /// A read hold whose lease is that.
    #[track_caller]
    fn assert_hold(&mut self, owner: &str, number: u64, lease: u32) {
        self.assert_lives(&timeout(LOCK, owner, number), lease);
    }

    /// Hears what is published on the lock's channel from here on.
    fn listen(&self) -> Listener {
        let mut listening = self.server.connection();
        let subscribe = redis::cmd("SUBSCRIBE").arg(channel(LOCK)).get_packed_command();
        listening.send_packed_command(&subscribe).expect("subscribe");
        listening.recv_response().expect("a confirmation");
        Listener { con: self.server.connection(), listening }
    }
}

struct Listener {
    con: Connection,
    listening: Connection,
}

impl Listener {
    /// What was published up to now.
    fn heard(mut self) -> Vec<String> {
        assert_eq!(int(call!(self.con, "PUBLISH", channel(LOCK), "end")), 1);
        let mut messages = Vec::new();
        loop {
            let message = list(self.listening.recv_response().expect("a message"));
            match text(&message[2]) {
                end if end == "end" => return messages,
                other => messages.push(other),
            }
        }
    }
}

fn fields<const N: usize>(fields: [(&str, &str); N]) -> BTreeMap<String, String> {
    fields.map(|(field, value)| (field.to_owned(), value.to_owned())).into()
}

#[test]
fn a_timeout_key_names_its_lock() {
    let mut sides = Sides::new();
    sides.read_lock("me", LONG);
    assert_eq!(text(call!(sides.scripts.con, "GET", timeout(LOCK, "me", 1))), "1");
    assert_eq!(text(call!(sides.module.con, "GET", timeout(LOCK, "me", 1))), LOCK);

    // So a clash is noticed: the other lock's timeout key is the same.
    sides.read_lock("b:c", LONG);
    let (other, owner, shared) = ("{orders}:b", "c", timeout(LOCK, "b:c", 1));
    assert_eq!(timeout(other, owner, 1), shared);
    sides.script(|redisson| redisson.read_lock(other, owner, SHORT));
    sides.scripts.assert_lives(&shared, SHORT);
    let clash = call!(sides.module.con, "RWLOCK.RLOCK", other, owner, SHORT);
    assert_error(clash, "ERR key clash with lock orders");
    sides.module.assert_lives(&shared, LONG);
}

#[test]
fn a_nested_write_neither_inflates_nor_cuts_the_lease() {
    let mut sides = Sides::new();
    sides.write_lock("me", LONG);
    sides.write_lock("me", SHORT);
    sides.scripts.assert_lives(LOCK, LONG + SHORT);
    sides.module.assert_lives(LOCK, LONG);

    assert_eq!(sides.script(|redisson| redisson.write_unlock(LOCK, "me", "1")), Value::Int(0));
    assert_eq!(int(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "me", "WRITE")), 0);
    let left = int(call!(sides.scripts.con, "PTTL", LOCK));
    assert!(left <= i64::from(DEFAULT_LEASE), "the client's own lease, not {left}");
    sides.module.assert_lives(LOCK, LONG);
}

#[test]
fn a_read_unlock_does_not_cut_a_write_lease() {
    let mut sides = Sides::new();
    sides.write_lock("me", LONG);
    sides.read_lock("me", SHORT);
    sides.read_lock("me", SHORT);
    assert_eq!(sides.script(|redisson| redisson.read_unlock(LOCK, "me", "1")), Value::Int(0));
    assert_eq!(int(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "me", "READ")), 0);
    sides.scripts.assert_lives(LOCK, SHORT);
    sides.module.assert_lives(LOCK, LONG);
}

#[test]
fn a_writer_that_goes_on_reading_is_announced_and_holds_no_longer_than_its_reads() {
    let mut sides = Sides::new();
    sides.write_lock("me", LONG);
    sides.read_lock("me", MIDDLE);

    let (scripts, module) = (sides.scripts.listen(), sides.module.listen());
    assert_eq!(sides.script(|redisson| redisson.write_unlock(LOCK, "me", "1")), Value::Int(1));
    assert_eq!(int(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "me", "WRITE")), 0);
    assert!(scripts.heard().is_empty());
    assert_eq!(module.heard(), ["1"]);

    sides.scripts.assert_lives(LOCK, LONG);
    sides.module.assert_lives(LOCK, MIDDLE);
    for side in [&mut sides.scripts, &mut sides.module] {
        assert_eq!(side.fields(), fields([("mode", "read"), ("me", "1")]));
    }
}

#[test]
fn a_lapsed_reader_does_not_stay() {
    let mut sides = Sides::new();
    sides.read_lock("gone", LONG);
    sides.read_lock("here", LONG);
    sides.lapse("gone", 1);
    let holders = list(&map(call!(sides.module.con, "RWLOCK.INSPECT", LOCK))["holders"]);
    assert_eq!(holders.len(), 1, "{holders:?}");

    // Others come and go; to the scripts it remains a holder.
    sides.read_lock("new", LONG);
    assert_eq!(sides.script(|redisson| redisson.read_unlock(LOCK, "new", "1")), Value::Int(0));
    assert_eq!(int(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "new")), 0);
    let kept = fields([("mode", "read"), ("gone", "1"), ("here", "1")]);
    assert_eq!(sides.scripts.fields(), kept);
    assert_eq!(sides.module.fields(), fields([("mode", "read"), ("here", "1")]));
    assert_eq!(sides.script(|redisson| redisson.read_unlock(LOCK, "gone", "2")), Value::Int(0));
    assert_error(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "gone"), "NOTHELD");

    // A lock that only lapsed readers are left of is free.
    sides.read_lock("gone", LONG);
    sides.lapse("gone", 1);
    sides.lapse("here", 1);
    assert!(int(sides.script(|redisson| redisson.write_lock(LOCK, "me", LONG))) > 0);
    assert_ok(call!(sides.module.con, "RWLOCK.WLOCK", LOCK, "me", LONG));
}

#[test]
fn a_lapsed_hold_leaves_no_hole_in_the_numbering() {
    let mut sides = Sides::new();
    sides.read_lock("me", SHORT);
    sides.read_lock("me", LONG);
    sides.lapse("me", 1);
    sides.read_lock("me", MIDDLE);

    assert_eq!(sides.scripts.fields(), fields([("mode", "read"), ("me", "3")]));
    assert!(!sides.scripts.exists(&timeout(LOCK, "me", 1)));
    sides.scripts.assert_hold("me", 2, LONG);
    sides.scripts.assert_hold("me", 3, MIDDLE);

    assert_eq!(sides.module.fields(), fields([("mode", "read"), ("me", "2")]));
    sides.module.assert_hold("me", 1, LONG);
    sides.module.assert_hold("me", 2, MIDDLE);
    assert!(!sides.module.exists(&timeout(LOCK, "me", 3)));
}

#[test]
fn a_lapse_is_announced() {
    let mut sides = Sides::new();
    sides.read_lock("gone", LONG);
    let (scripts, module) = (sides.scripts.listen(), sides.module.listen());
    sides.lapse("gone", 1);
    assert!(int(sides.script(|redisson| redisson.write_lock(LOCK, "me", LONG))) > 0);
    assert_eq!(sides.script(|redisson| redisson.write_unlock(LOCK, "me", "1")), Value::Nil);
    assert_eq!(sides.script(|redisson| redisson.read_unlock(LOCK, "me", "2")), Value::Nil);
    assert_error(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "me"), "NOTHELD");
    assert!(scripts.heard().is_empty());
    assert_eq!(module.heard(), ["0"]);
    assert!(sides.scripts.exists(LOCK));
    assert!(!sides.module.exists(LOCK));
}

#[test]
fn new_readers_wait_for_a_writer_that_waits() {
    let mut sides = Sides::new();
    sides.read_lock("reader", LONG);
    // Redisson's writers wait for an announcement, then try again.
    assert!(int(sides.script(|redisson| redisson.write_lock(LOCK, "writer", LONG))) > 0);
    let con = &mut sides.module.con;
    assert!(int(call!(con, "RWLOCK.WLOCK", LOCK, "writer", LONG, "RESERVE", LONG)) > 0);

    assert!(int(call!(con, "RWLOCK.RLOCK", LOCK, "new", LONG)) > 0);
    let let_in = sides.script(|redisson| redisson.read_lock(LOCK, "new", LONG));
    assert_eq!(let_in, Value::Nil);
    // One that reads already must not wait for the writer that waits for it.
    sides.read_lock("reader", LONG);

    for request in ["1", "2"] {
        let reply = sides.script(|redisson| redisson.read_unlock(LOCK, "reader", request));
        assert_eq!(reply, Value::Int(0));
    }
    let con = &mut sides.module.con;
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", LOCK, "reader", "ALL")), 1);
    assert!(int(call!(con, "RWLOCK.RLOCK", LOCK, "new", LONG)) > 0);
    assert_ok(call!(con, "RWLOCK.WLOCK", LOCK, "writer", LONG));
    // The reader that was let in keeps the writer out, as the next one would.
    assert!(int(sides.script(|redisson| redisson.write_lock(LOCK, "writer", LONG))) > 0);
}

#[test]
fn a_hash_that_is_no_lock_is_left_alone() {
    let mut sides = Sides::new();
    let profile = [("name", "Ann"), ("visits", "7")];
    for side in [&mut sides.scripts, &mut sides.module] {
        assert_eq!(int(call!(side.con, "HSET", LOCK, &profile)), 2);
    }
    sides.script(|redisson| redisson.read_lock(LOCK, "name", SHORT));
    let overwritten = fields([("name", "1"), ("visits", "7"), ("mode", "read")]);
    assert_eq!(sides.scripts.fields(), overwritten);
    sides.scripts.assert_lives(LOCK, SHORT);

    let con = &mut sides.module.con;
    for command in ["RLOCK", "WLOCK", "UPGRADE", "DOWNGRADE", "RENEW"] {
        let command = format!("RWLOCK.{command}");
        assert_error(call!(con, command, LOCK, "name", SHORT), "WRONGTYPE");
    }
    assert_error(call!(con, "RWLOCK.UNLOCK", LOCK, "name"), "WRONGTYPE");
    assert_error(call!(con, "RWLOCK.FORCEUNLOCK", LOCK), "WRONGTYPE");
    assert_eq!(int(call!(con, "PTTL", LOCK)), -1);
    assert_eq!(sides.module.fields(), fields(profile));
}

#[test]
fn a_lock_without_expiry_keeps_none() {
    let mut sides = Sides::new();
    sides.read_lock("a", LONG);
    sides.read_lock("b", LONG);
    for side in [&mut sides.scripts, &mut sides.module] {
        assert_eq!(int(call!(side.con, "PERSIST", LOCK)), 1);
    }
    sides.read_lock("c", SHORT);
    sides.scripts.assert_lives(LOCK, SHORT);

    let con = &mut sides.module.con;
    assert_eq!(int(call!(con, "PTTL", LOCK)), -1, "taken");
    assert_ok(call!(con, "RWLOCK.RENEW", LOCK, "c", LONG));
    assert_eq!(int(call!(con, "PTTL", LOCK)), -1, "renewed");
    assert_eq!(int(call!(con, "RWLOCK.WLOCK", LOCK, "c", SHORT)), -1, "refused");
    for owner in ["c", "a"] {
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", LOCK, owner)), 0);
        assert_eq!(int(call!(con, "PTTL", LOCK)), -1, "given back");
    }
    assert_ok(call!(con, "RWLOCK.UPGRADE", LOCK, "b", SHORT));
    assert_eq!(int(call!(con, "PTTL", LOCK)), -1, "upgraded");
}

#[test]
fn a_lock_that_is_forced_open_leaves_nothing() {
    let mut sides = Sides::new();
    sides.read_lock("a", LONG);
    sides.read_lock("b", LONG);
    assert_eq!(sides.script(|redisson| redisson.force_read_unlock(LOCK)), Value::Int(1));
    assert_eq!(int(call!(sides.module.con, "RWLOCK.FORCEUNLOCK", LOCK, "READ")), 1);
    for owner in ["a", "b"] {
        sides.scripts.assert_hold(owner, 1, LONG);
    }
    assert_eq!(int(call!(sides.scripts.con, "DBSIZE")), 2);
    assert_eq!(int(call!(sides.module.con, "DBSIZE")), 0);
}

#[test]
fn to_unlock_what_is_not_held_is_an_error_and_tells_nobody() {
    let mut sides = Sides::new();
    let (scripts, module) = (sides.scripts.listen(), sides.module.listen());
    assert_eq!(sides.script(|redisson| redisson.read_unlock(LOCK, "me", "1")), Value::Nil);
    assert_eq!(sides.script(|redisson| redisson.write_unlock(LOCK, "me", "2")), Value::Nil);
    for word in ["READ", "WRITE", "ALL"] {
        assert_error(call!(sides.module.con, "RWLOCK.UNLOCK", LOCK, "me", word), "NOTHELD");
    }
    assert_eq!(scripts.heard(), ["0", "1"]);
    assert!(module.heard().is_empty());
}
