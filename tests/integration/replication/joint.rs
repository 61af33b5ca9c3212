//! Holds on several locks: after each step, servers without the module have what the primary
//! has: a replica, one that loads the append-only file, and one that loads the RDB file. And
//! each step is sent as a whole.

use std::collections::BTreeMap;
use std::fs;

use redis::{Connection, RedisResult, Value};

use support::observe::{assert_same_keys, inspect, keyspace, run};
use support::wire::{append_only_file, assert_plain, ReplicationStream, Wire, Words};
use support::{
    assert_ok, error_text, fresh_seed, int, is_blocked, list, map, number_from_environment, send,
    text, wait_synced, wait_until, Client, Random, Server,
};

const STEPS: usize = 400;
const LOCKS: [&str; 5] = ["stock", "order{7}", "{bill}:1", "till", "a:b"];
const OWNERS: [&str; 3] = ["anna", "bob", "c:1"];
const WAITERS: usize = 4;

/// Servers without the module that get what the primary has.
struct Copies {
    replica: Server,
    of_aof: Server,
    of_rdb: Server,
}

impl Copies {
    fn of(primary: &Server) -> Self {
        let plain = || Server::builder().without_module();
        let replica = plain().replica_of(primary).start();
        wait_synced(primary, &replica);
        Self { replica, of_aof: plain().aof().start(), of_rdb: plain().start() }
    }

    /// Compares all of them with the primary. Its writes are paused meanwhile, so that no
    /// waiter is granted anything between two looks.
    #[track_caller]
    fn assert_same(&self, primary: &Server, after: &str) {
        let mut con = primary.connection();
        assert_ok(run(&mut con, "CLIENT PAUSE 60000 WRITE"));
        let expected = keyspace(primary);
        wait_synced(primary, &self.replica);
        self.load_aof(primary);
        self.load_rdb(primary);
        for (name, copy) in
            [("replica", &self.replica), ("AOF", &self.of_aof), ("RDB", &self.of_rdb)]
        {
            assert_same_keys(&format!("the {name} after {after}"), &expected, &keyspace(copy));
        }
        assert_ok(run(&mut con, "CLIENT UNPAUSE"));
    }

    fn load_aof(&self, primary: &Server) {
        for file in fs::read_dir(primary.dir().join("appendonlydir")).expect("list the files") {
            let file = file.expect("a file");
            let copy = self.of_aof.dir().join("appendonlydir").join(file.file_name());
            fs::copy(file.path(), copy).expect("copy a file");
        }
        assert_ok(run(&mut self.of_aof.connection(), "DEBUG LOADAOF"));
    }

    fn load_rdb(&self, primary: &Server) {
        primary.save();
        let [file, copy] = [primary, &self.of_rdb].map(|server| server.dir().join("dump.rdb"));
        fs::copy(file, copy).expect("copy the file");
        assert_ok(run(&mut self.of_rdb.connection(), "DEBUG RELOAD NOSAVE"));
    }
}

/// A client that waits for locks now and then.
struct Waiter {
    wire: Wire,
    id: i64,
    waits: bool,
    /// As they were sent.
    replies: Vec<String>,
}

impl Waiter {
    fn new(server: &Server, db: usize) -> Self {
        let mut wire = Wire::connect(server.port());
        assert_ok(wire.ask(&format!("SELECT {db}")));
        let id = int(wire.ask("CLIENT ID"));
        Self { wire, id, waits: false, replies: Vec::new() }
    }

    fn is_answered(&mut self) -> bool {
        self.replies.extend(self.wire.receive().replies);
        !self.replies.is_empty()
    }
}

/// Random steps on a few locks in two databases.
struct Steps {
    cons: [Connection; 2],
    /// The database of the step.
    db: usize,
    waiters: Vec<Waiter>,
    random: Random,
    done: BTreeMap<&'static str, u32>,
}

impl Steps {
    fn new(server: &Server, seed: u64) -> Self {
        let mut cons = [server.connection(), server.connection()];
        assert_ok(run(&mut cons[1], "SELECT 1"));
        let waiters = (0..WAITERS).map(|number| Waiter::new(server, number % 2)).collect();
        Self { cons, db: 0, waiters, random: Random::new(seed), done: BTreeMap::new() }
    }

    /// Does something, and gives what it was.
    fn step(&mut self) -> String {
        self.db = usize::from(self.random.one_in(3));
        let line = match self.random.below(100) {
            0..25 => self.command("MLOCK", Self::mlock),
            25..45 => self.command("MUNLOCK", Self::munlock),
            45..55 => self.command("MRENEW", Self::mrenew),
            55..65 => self.command("WLOCK", Self::wlock),
            65..80 => self.command("UNLOCK", Self::unlock),
            80..95 => self.wait(),
            _ => self.accident(),
        };
        self.hear();
        line
    }

    fn command(&mut self, name: &'static str, line: fn(&mut Self) -> String) -> String {
        let line = line(self);
        match self.send(&line) {
            Ok(reply) if !has_done(name, &reply) => {}
            Ok(_) => self.count(name),
            Err(error) => assert!(error_text(&error).starts_with("NOTHELD "), "{line}: {error}"),
        }
        line
    }

    /// Sends it plainly, inside a transaction or from a script.
    fn send(&mut self, line: &str) -> RedisResult<Value> {
        let con = &mut self.cons[self.db];
        match self.random.below(6) {
            0 => {
                assert_ok(run(con, "MULTI"));
                assert_eq!(text(run(con, line)), "QUEUED");
                match list(run(con, "EXEC")).swap_remove(0) {
                    Value::ServerError(error) => Err(error.into()),
                    reply => Ok(reply),
                }
            }
            1 => {
                let script = ["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
                send(con, script.into_iter().chain(line.split(' ')))
            }
            _ => run(con, line),
        }
    }

    fn owner(&mut self) -> &'static str {
        self.random.pick(&OWNERS)
    }

    /// So long that no lease ends during the test.
    fn lease(&mut self) -> u64 {
        self.random.between(1_000_000, 2_000_000)
    }

    /// This lock and up to two others, in any order.
    fn some_locks(&mut self, first: &'static str) -> Vec<&'static str> {
        let mut locks = vec![first];
        for _ in 0..self.random.below(3) {
            let other = self.random.pick(&LOCKS);
            if !locks.contains(&other) {
                locks.insert(self.random.below_len(locks.len() + 1), other);
            }
        }
        locks
    }

    /// A lock, and mostly an owner that holds it.
    fn any_hold(&mut self) -> (&'static str, String) {
        let lock = self.random.pick(&LOCKS);
        let seen = inspect(&mut self.cons[self.db], lock, "holders");
        let holders: Vec<String> =
            list(seen).into_iter().map(|holder| text(&map(holder)["owner"])).collect();
        if holders.is_empty() || self.random.one_in(4) {
            return (lock, self.owner().to_owned());
        }
        (lock, holders[self.random.below_len(holders.len())].clone())
    }

    fn mlock(&mut self) -> String {
        let (owner, lease, lock) = (self.owner(), self.lease(), self.random.pick(&LOCKS));
        let mut read = self.some_locks(lock);
        let write = read.split_off(self.random.below_len(read.len() + 1));
        let mut line = format!("RWLOCK.MLOCK {owner} {lease}{}", clause("READ", &read));
        line += &clause("WRITE", &write);
        for (option, allowed) in [(" ONCE", true), (" FENCE", !write.is_empty())] {
            if allowed && self.random.one_in(4) {
                line += option;
            }
        }
        line
    }

    fn munlock(&mut self) -> String {
        let (lock, owner) = self.any_hold();
        let mut line = format!("RWLOCK.MUNLOCK {owner}");
        let words: &[&str] =
            self.random.pick(&[&["READ"], &["READ", "WRITE"], &["ALL"], &["WRITE", "ALL"]]);
        for word in words {
            line += &clause(word, &self.some_locks(lock));
        }
        line
    }

    fn mrenew(&mut self) -> String {
        let ((lock, owner), lease) = (self.any_hold(), self.lease());
        format!("RWLOCK.MRENEW {owner} {lease} {}", self.some_locks(lock).join(" "))
    }

    fn wlock(&mut self) -> String {
        let (lock, owner, lease) = (self.random.pick(&LOCKS), self.owner(), self.lease());
        format!("RWLOCK.WLOCK {lock} {owner} {lease}")
    }

    fn unlock(&mut self) -> String {
        let ((lock, owner), word) = (self.any_hold(), self.random.pick(&["", " READ", " ALL"]));
        format!("RWLOCK.UNLOCK {lock} {owner}{word}")
    }

    /// Has a client wait, for one lock or for several, if one is left.
    fn wait(&mut self) -> String {
        let line = if self.random.one_in(4) { self.wlock() } else { self.mlock() } + " BLOCK 0";
        let Some(waiter) = self.waiters.iter_mut().find(|waiter| !waiter.waits) else {
            return "nothing".to_owned();
        };
        waiter.wire.send(&line);
        waiter.waits = true;
        let con = &mut self.cons[0];
        wait_until(&line, || waiter.is_answered() || is_blocked(con, waiter.id));
        line
    }

    /// Hears those that do not wait any more.
    fn hear(&mut self) {
        for at in 0..self.waiters.len() {
            let (waiter, con) = (&mut self.waiters[at], &mut self.cons[0]);
            if !waiter.waits || is_blocked(con, waiter.id) {
                continue;
            }
            wait_until("it is answered", || waiter.is_answered());
            waiter.waits = false;
            match waiter.replies.pop().expect("a reply").split(' ').next() {
                Some("-DEADLOCK") => self.count("a deadlock"),
                Some(granted) if granted.contains("+OK") => self.count("a waiter is answered OK"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A lock is deleted, or its lease ends.
    fn accident(&mut self) -> String {
        let (lock, con) = (self.random.pick(&LOCKS), &mut self.cons[self.db]);
        let deleted = self.random.one_in(2);
        let line = if deleted { format!("DEL {lock}") } else { format!("PEXPIRE {lock} 1") };
        if int(run(con, &line)) == 1 {
            // Somebody else may take it meanwhile.
            let left = format!("PTTL {lock}");
            wait_until("it has expired", || !(0..=1).contains(&int(run(con, &left))));
            self.count(if deleted { "a lock is deleted" } else { "a lock lapses" });
        }
        line
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn is_complete(&self) -> bool {
        let all = ["MLOCK", "MUNLOCK", "MRENEW", "WLOCK", "UNLOCK", "a waiter is answered OK"];
        all.iter().all(|what| self.done.contains_key(what))
    }
}

fn clause(word: &str, locks: &[&str]) -> String {
    match locks.len() {
        0 => String::new(),
        count => format!(" {word} {count} {}", locks.join(" ")),
    }
}

/// Whether a command that was not answered with an error has changed anything.
fn has_done(name: &str, reply: &Value) -> bool {
    match (name, reply) {
        ("MLOCK" | "WLOCK", Value::Int(_)) => false,
        ("MUNLOCK", reply) => list(reply).iter().any(|part| *part != Value::Int(-1)),
        ("MRENEW", reply) => list(reply).contains(&Value::Int(1)),
        _ => true,
    }
}

#[test]
fn copies_without_the_module_have_the_same_keys_after_each_step() {
    let seed = number_from_environment("RWLOCK_SEED").unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let primary = Server::builder().aof().start();
    let copies = Copies::of(&primary);
    let mut steps = Steps::new(&primary, seed);
    let mut most = 0;
    // Each kind of step has a chance of some percent.
    for number in 0..10 * STEPS {
        if number >= STEPS && steps.is_complete() {
            break;
        }
        let line = steps.step();
        copies.assert_same(&primary, &format!("step {number} of seed {seed}: {line}"));
        most = most.max(keyspace(&primary).len());
    }
    assert!(most > 10, "there were at most {most} keys");
    println!("{:?}", steps.done);
    assert!(steps.is_complete(), "{:?}", steps.done);
    assert_plain(&append_only_file(&primary));
}

/// Asserts that all changes are in one transaction. The messages may follow it.
#[track_caller]
fn assert_one_transaction(sent: &[Words]) {
    assert_plain(sent);
    let names: Vec<&str> = sent.iter().map(|words| words[0].as_str()).collect();
    let changes: Vec<usize> =
        (0..names.len()).filter(|at| !["MULTI", "EXEC", "PUBLISH"].contains(&names[*at])).collect();
    let [first, .., last] = changes[..] else { panic!("one change or none: {sent:?}") };
    assert!(names[..first].contains(&"MULTI") && names[last..].contains(&"EXEC"), "{sent:?}");
    assert!(!names[first..last].contains(&"EXEC"), "{sent:?}");
}

#[test]
fn each_step_on_several_locks_is_sent_in_one_transaction() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut stream = ReplicationStream::attach(&server);
    let mut waiter = Client::new(&server);
    for (line, waits) in [
        ("MLOCK a 60000 READ 2 r1 r2 WRITE 2 w1 w2", ""),
        ("MRENEW a 90000 r1 r2 w1 w2", ""),
        ("MLOCK a 60000 READ 1 r1 WRITE 1 w1 FENCE", ""),
        ("MUNLOCK a READ 1 r1 WRITE 1 w1", ""),
        // The waiter gets four locks in the step that frees the last of them.
        ("MUNLOCK a READ 2 r1 r2 WRITE 2 w1 w2", "MLOCK b 60000 WRITE 4 r2 w1 w2 r1 BLOCK 0"),
        ("UNLOCK w1 b", "MLOCK c 60000 READ 2 w1 other BLOCK 0"),
        ("MUNLOCK b ALL 4 r1 r2 w1 w2", ""),
        ("MUNLOCK c READ 2 w1 other", ""),
    ] {
        if !waits.is_empty() {
            waiter.send(waits);
            wait_until("it waits", || is_blocked(&mut con, waiter.id));
        }
        let (_, sent) =
            stream.during(&mut con, |con| run(con, &format!("RWLOCK.{line}")).expect(line));
        assert_one_transaction(&sent);
        if !waits.is_empty() {
            waiter.granted();
        }
    }
    assert_eq!(keyspace(&server).len(), 1, "only the fence key of w1 is left");
}
