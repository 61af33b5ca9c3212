//! Random commands with hostile arguments, amid plain commands on the locks'
//! keys: the server lives, answers in the forms that the contract knows and
//! loses no memory.

use std::thread;

use redis::{Connection, Value};

use support::unchanged::shown;
use support::wire::{packed, Batch};
use support::{
    assert_ok, call, error_text, fresh_seed, int, list, number_from_environment, text, wait_until,
    Client, Random, Server,
};

/// Set to a number, it replaces the fresh seed.
const SEED: &str = "RWLOCK_FUZZ_SEED";

const COMMANDS: usize = 20_000;

/// How many are under way at once.
const BATCH: usize = 100;

/// Mostly one of the first [`GOOD`].
fn mostly<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    let hostile = random.one_in(20);
    random.pick(if hostile { choices } else { &choices[..GOOD] })
}

/// Locks that share derived names, and names that are refused.
const LOCKS: [&[u8]; 8] = [
    b"a",
    b"{a}",
    b"{a}:b",
    b"\0\r\n\xff",
    b"",
    b"{a}:wait_write",
    b"{a}:b:rwlock_timeout:1",
    b"x:rwlock_fence",
];

/// How many of [`LOCKS`], and of the lists below, are as they should be. They
/// come first, and are taken more often.
const GOOD: usize = 5;

const OWNERS: [&[u8]; 9] =
    [b"b", b"c", b"b:c", b"\xff\r\n\0", b"%s%n", b"mode", b"b:write", b"", b"mode:write"];

const NUMBERS: [&str; 18] = [
    "60000",
    "1",
    "2",
    "20",
    "3",
    "300",
    "70000",
    "0",
    "-1",
    "",
    " 1",
    "1.5",
    "x",
    "01",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
];

const OPTIONS: [&str; 13] = [
    "ONCE", "RESERVE", "BLOCK", "SESSION", "FENCE", "READ", "WRITE", "ALL", "COUNT", "reserve",
    "block", "", "60000",
];

/// The longest that a client waits, in ms.
const PATIENCE: i64 = 3;

type Words = Vec<Vec<u8>>;

fn words<const N: usize>(words: [&[u8]; N]) -> Words {
    words.map(<[u8]>::to_vec).into()
}

/// A command of ours, mostly one that could succeed.
fn ours(random: &mut Random) -> Words {
    let (name, fixed) = random.pick(&[
        ("RWLOCK.RLOCK", 3),
        ("RWLOCK.RLOCK", 3),
        ("RWLOCK.WLOCK", 3),
        ("RWLOCK.WLOCK", 3),
        ("RWLOCK.UNLOCK", 2),
        ("RWLOCK.UNLOCK", 2),
        ("RWLOCK.RENEW", 3),
        ("RWLOCK.UPGRADE", 3),
        ("RWLOCK.DOWNGRADE", 3),
        ("rwlock.forceunlock", 1),
        ("RWLOCK.INSPECT", 1),
        ("RWLOCK.QUEUES", 0),
        ("RWLOCK.HELP", 0),
    ]);
    let mut all = words([name.as_bytes()]);
    let fixed = if random.one_in(50) { random.below_len(5) } else { fixed };
    for at in 0..fixed {
        all.push(match at {
            0 => mostly(random, &LOCKS).to_vec(),
            1 => mostly(random, &OWNERS).to_vec(),
            _ => mostly(random, &NUMBERS).as_bytes().to_vec(),
        });
    }
    if fixed == 3 && random.one_in(8) {
        all.push(b"BLOCK".to_vec());
        all.push(mostly(random, &NUMBERS).as_bytes().to_vec());
    }
    if matches!(name, "RWLOCK.WLOCK" | "RWLOCK.UPGRADE") && random.one_in(4) {
        all.push(b"FENCE".to_vec());
    }
    while random.one_in(6) {
        all.push(random.pick(&OPTIONS).as_bytes().to_vec());
        if random.one_in(2) {
            all.push(mostly(random, &NUMBERS).as_bytes().to_vec());
        }
    }
    all
}

/// Makes a command wait for no longer than [`PATIENCE`].
fn hurried(command: &Words) -> Words {
    let mut hurried = command.clone();
    for at in 1..hurried.len() {
        if hurried[at - 1].eq_ignore_ascii_case(b"BLOCK") {
            let number = String::from_utf8_lossy(&hurried[at]).parse::<i64>();
            if number.is_ok_and(|ms| ms == 0 || ms > PATIENCE) {
                hurried[at] = PATIENCE.to_string().into_bytes();
            }
        }
    }
    hurried
}

/// A key made from the name of a lock and that of an owner.
fn derived_key(random: &mut Random) -> Vec<u8> {
    let lock = mostly(random, &LOCKS);
    let prefix = if lock.contains(&b'{') { lock.to_vec() } else { [b"{", lock, b"}"].concat() };
    match random.below(6) {
        0 => [&prefix[..], b":wait_write"].concat(),
        1 => [&prefix[..], b":rwlock_fence"].concat(),
        _ => {
            let number = random.pick(&["1", "2", "3"]);
            let owner = mostly(random, &OWNERS);
            [&prefix[..], b":", owner, b":rwlock_timeout:", number.as_bytes()].concat()
        }
    }
}

fn any_key(random: &mut Random) -> Vec<u8> {
    if random.one_in(2) {
        mostly(random, &LOCKS).to_vec()
    } else {
        derived_key(random)
    }
}

/// A field of a lock's hash with a value that mostly could be right.
fn field(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let owner = mostly(random, &OWNERS);
    let mode = random.pick(&[&b"read"[..], b"write"]).to_vec();
    let count = random.pick(&[&b"1"[..], b"2", b"3", b"9223372036854775807"]).to_vec();
    match random.below(12) {
        0 => (b"mode".to_vec(), mostly(random, &NUMBERS).as_bytes().to_vec()),
        1 => (owner.to_vec(), mode),
        2 => (owner.to_vec(), mostly(random, &NUMBERS).as_bytes().to_vec()),
        3..6 => (b"mode".to_vec(), mode),
        6..9 => (owner.to_vec(), count),
        _ => ([owner, b":write"].concat(), count),
    }
}

/// A plain command on a lock's keys.
fn plain(random: &mut Random, has_field_expiry: bool) -> Words {
    let lock = mostly(random, &LOCKS);
    let derived = derived_key(random);
    let any = any_key(random);
    let (field, value) = field(random);
    let owner = mostly(random, &OWNERS);
    match random.below(40) {
        0..4 => words([b"HSET", lock, &field, &value]),
        4 => words([b"HDEL", lock, &field]),
        5 => words([b"HINCRBY", lock, &field, mostly(random, &NUMBERS).as_bytes()]),
        6 if has_field_expiry => words([b"HPEXPIRE", lock, b"5", b"FIELDS", b"1", &field]),
        6..9 => words([b"SET", &derived, random.pick(&LOCKS), b"PX", b"30"]),
        9 => words([b"SET", &derived, owner]),
        10 => words([b"SET", &derived, &value]),
        11 => words([b"SET", &any, &value]),
        12 => words([b"LPUSH", &any, &value]),
        13 => words([b"ZADD", &any, b"1", &value]),
        14 => words([b"HSET", &derived, &field, &value]),
        15..18 => words([b"PEXPIRE", &any, b"3"]),
        18 => words([b"PEXPIRE", &any, mostly(random, &NUMBERS).as_bytes()]),
        19 => words([b"PERSIST", &any]),
        20 => words([b"RENAME", &any, &any_key(random)]),
        21 => words([b"COPY", &any, &any_key(random), b"REPLACE"]),
        22 => words([b"DEBUG", b"SET-ACTIVE-EXPIRE", random.pick(&[b"0", b"1"])]),
        23 => words([b"FLUSHALL"]),
        24..28 => words([b"DEL", &derived]),
        28..36 => words([b"DEL", lock]),
        _ => words([b"UNLINK", &any]),
    }
}

/// The errors of ours that may be, beginning with these words.
const SANCTIONED: [&str; 18] = [
    "NOTHELD ",
    "DEADLOCK ",
    "UNBLOCKED ",
    "ERR too many waiters",
    "ERR timeout is ",
    "ERR SESSION needs a client connection",
    "WRONGTYPE ",
    "ERR syntax error",
    "ERR invalid expire time in 'rwlock.",
    "ERR wrong number of arguments for 'rwlock.",
    "ERR key clash with lock ",
    "ERR owner must ",
    "ERR a name that ends in ",
    "ERR value is ",
    "ERR the hash counts more read holds than ",
    "ERR the owner has ",
    "ERR increment or decrement would overflow",
    "ERR the next fencing token would not be below 2^53",
];

fn is_ours(command: &Words) -> bool {
    command[0].to_ascii_uppercase().starts_with(b"RWLOCK.")
}

fn is_sanctioned(command: &Words, reply: &Value) -> bool {
    let name = command[0].to_ascii_uppercase();
    match (&name[b"RWLOCK.".len()..], reply) {
        (_, Value::ServerError(error)) => {
            let error = error_text(&error.clone().into());
            SANCTIONED.iter().any(|start| error.starts_with(start)) && !error.contains("internal")
        }
        // 0: free, and others are being served.
        (b"RLOCK" | b"WLOCK" | b"UPGRADE", Value::Int(left)) => *left >= -1,
        (b"UNLOCK" | b"FORCEUNLOCK", Value::Int(freed)) => *freed == 0 || *freed == 1,
        (b"RLOCK" | b"WLOCK" | b"UPGRADE" | b"RENEW" | b"DOWNGRADE", Value::Okay) => true,
        (b"WLOCK" | b"UPGRADE", Value::Array(items)) => {
            let token = 1..1 << 53;
            matches!(items[..], [Value::Okay, Value::Int(of)] if token.contains(&of))
        }
        (b"INSPECT", Value::Array(items)) => items.len() == 16,
        (b"INSPECT", Value::Map(pairs)) => pairs.len() == 8,
        (b"QUEUES", Value::Array(queues)) => queues.iter().all(|queue| match queue {
            Value::Array(items) => items.len() == 6,
            Value::Map(pairs) => pairs.len() == 3,
            _ => false,
        }),
        (b"HELP", Value::Array(lines)) => !lines.is_empty(),
        _ => false,
    }
}

fn is_fenced(command: &Words, reply: &Value) -> bool {
    let name = command[0].to_ascii_uppercase();
    matches!(&name[..], b"RWLOCK.WLOCK" | b"RWLOCK.UPGRADE") && matches!(reply, Value::Array(_))
}

fn is_deadlock(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "DEADLOCK")
}

#[track_caller]
fn check(command: &Words, reply: &Value, seed: u64) {
    let shown: Vec<String> = command.iter().map(|word| shown(word)).collect();
    assert!(is_sanctioned(command, reply), "seed {seed}: {shown:?}: {reply:?}");
}

fn send_all(con: &mut Connection, commands: &[Words]) -> Vec<Value> {
    let mut batch = Batch::default();
    for words in commands {
        batch.add_packed(&packed(words));
    }
    batch.exchange(con).collect()
}

/// Sends commands over two connections at the same time, so that one can wait
/// for the other. The commands as they were sent, with their replies.
fn send_both(cons: [&mut Connection; 2], batch: &[Words]) -> Vec<(Words, Value)> {
    let batch: Vec<Words> = batch.iter().map(hurried).collect();
    let (mine, theirs) = batch.split_at(batch.len() / 2);
    let [one, other] = cons;
    let replies = thread::scope(|scope| {
        let theirs = scope.spawn(|| send_all(other, theirs));
        let mut replies = send_all(one, mine);
        replies.extend(theirs.join().expect("the other's replies"));
        replies
    });
    batch.into_iter().zip(replies).collect()
}

/// Sends commands each in its own script and checks the replies to ours.
fn send_scripted(con: &mut Connection, batch: &[Words], seed: u64) {
    let start = words([b"EVAL", b"return redis.pcall(unpack(ARGV))", b"0"]);
    let calls: Vec<Words> =
        batch.iter().map(|command| start.iter().chain(command).cloned().collect()).collect();
    for (command, reply) in batch.iter().zip(send_all(con, &calls)) {
        // A script says it in its own words.
        let miscounted = matches!(&reply, Value::ServerError(error)
            if error_text(&error.clone().into()).contains("Wrong number of args"));
        if is_ours(command) && !miscounted {
            check(command, &reply, seed);
        }
    }
}

/// Sends commands in short transactions and checks the replies to ours; gives
/// back how many transactions were carried out.
fn send_transactions(con: &mut Connection, batch: &[Words], seed: u64) -> usize {
    let mut done = 0;
    for group in batch.chunks(4) {
        let whole = [&[words([b"MULTI"])], group, &[words([b"EXEC"])]].concat();
        // One that has a wrong number of arguments ends it before it begins.
        if let Some(Value::Array(results)) = send_all(con, &whole).last() {
            done += 1;
            for (command, reply) in group.iter().zip(results).filter(|(words, _)| is_ours(words)) {
                check(command, reply, seed);
            }
        }
    }
    done
}

/// Sends random commands and checks the replies; gives back how many requests
/// would have waited for themselves.
fn fuzz(server: &Server, seed: u64, resp3: bool) -> usize {
    println!("{SEED}={seed}");
    let mut random = Random::new(seed);
    let connection = || if resp3 { server.connection_resp3() } else { server.connection() };
    let (mut con, mut other) = (connection(), connection());
    let field_expiry = call!(con, "COMMAND", "INFO", "HPEXPIRE").expect("an answer");
    let has_field_expiry = field_expiry != Value::Array(vec![Value::Nil]);
    let (mut granted, mut fenced, mut deadlocks) = (0, 0, 0);
    let mut transactions = 0;
    for _ in 0..COMMANDS / BATCH {
        let mut command = || {
            if random.one_in(3) {
                plain(&mut random, has_field_expiry)
            } else {
                ours(&mut random)
            }
        };
        let batch: Vec<Words> = (0..BATCH).map(|_| command()).collect();
        match random.below(4) {
            0 => send_scripted(&mut con, &batch, seed),
            1 => transactions += send_transactions(&mut con, &batch, seed),
            _ => {
                let answered = send_both([&mut con, &mut other], &batch);
                for (command, reply) in answered.iter().filter(|(words, _)| is_ours(words)) {
                    check(command, reply, seed);
                    granted += usize::from(*reply == Value::Okay);
                    fenced += usize::from(is_fenced(command, reply));
                    deadlocks += usize::from(is_deadlock(reply));
                }
            }
        }
    }
    // It would be worth little if hardly anything got through.
    assert!(granted > COMMANDS / 50, "seed {seed}: only {granted} grants");
    assert!(fenced > COMMANDS / 1_000, "seed {seed}: only {fenced} tokens");
    assert!(transactions > COMMANDS / 50, "seed {seed}: only {transactions} transactions");
    // Whatever is left of it, every lock can be looked at, and the answer is
    // in step with the question.
    for lock in LOCKS {
        let inspect = words([b"RWLOCK.INSPECT", lock]);
        check(&inspect, &send_all(&mut con, std::slice::from_ref(&inspect))[0], seed);
    }
    assert_eq!(list(call!(con, "RWLOCK.QUEUES")), [], "nobody waits any more");
    assert_eq!(text(call!(con, "PING")), "PONG");
    assert_eq!(text(call!(other, "PING")), "PONG");
    deadlocks
}

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().expect("a number")
}

/// Lets so many clients wait at once.
fn make_wait(server: &Server, clients: usize) {
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.WLOCK", "a", "b", 60_000));
    let wait = |_| Client::waits(server, "RLOCK a c 60000 BLOCK 0");
    let waiting: Vec<Client> = (0..clients).map(wait).collect();
    assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "a")), 1);
    for mut client in waiting {
        client.granted();
    }
}

#[test]
fn random_commands_do_no_harm_and_leave_no_memory_behind() {
    let server = Server::builder().start();
    let emptied = || {
        let mut con = server.connection();
        assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 1));
        assert_ok(call!(con, "FLUSHALL", "SYNC"));
        // The module keeps the names of keys that it made last, up to 100 KB of them. How many
        // there are, and how long, is a matter of chance. So these take their places.
        let hold = words([b"RWLOCK.RLOCK", b"a", b"b", b"600000"]);
        let held = send_all(&mut con, &vec![hold; 8_000]);
        assert!(held.iter().all(|reply| *reply == Value::Okay));
        assert_ok(call!(con, "FLUSHALL", "SYNC"));
        assert_ok(call!(con, "SCRIPT", "FLUSH", "SYNC"));
        assert_ok(call!(con, "SLOWLOG", "RESET"));
    };
    // The first rounds also pay for what the server allocates only once: some
    // of it not before the second time that it closes so many connections. And
    // it keeps up to eight of its helper clients of 16 KB, of which each client
    // that waits has two: as many as ever were in use at once.
    make_wait(&server, 8);
    let mut deadlocks = 0;
    for resp3 in [false, true] {
        deadlocks += fuzz(&server, 1, resp3);
        emptied();
    }
    let mut before = used_memory(&server);
    wait_until("the memory in use settles", || {
        let last = before;
        before = used_memory(&server);
        before >= last
    });
    for (seed, resp3) in
        [(2, true), (number_from_environment(SEED).unwrap_or_else(fresh_seed), false)]
    {
        deadlocks += fuzz(&server, seed, resp3);
    }
    // A round has a few of them, and now and then one has none.
    assert!(deadlocks > 0, "none had to wait for itself");
    emptied();
    // Some times what it is without a leak. A leak in a path that one command in
    // a hundred takes would be more.
    const TOLERANCE: i64 = 10_000;
    wait_until("the memory is given back", || used_memory(&server) < before + TOLERANCE);
}
