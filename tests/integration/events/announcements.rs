//! What is announced, where, and how often.

use support::observe::{inspect, run, Subscriber};
use support::{
    assert_error, assert_ok, call, int, send, text, wait_synced, wait_until, Cluster, Server,
};

/// What happened to the lock `K` before, what is done then, and what that
/// announces. Lines are split at `;`.
type Case = (&'static str, &'static str, &'static [&'static str]);

const ENDS: [Case; 29] = [
    // The last read hold goes.
    ("RLOCK K a 60000", "UNLOCK K a", &["0"]),
    ("RLOCK K a 60000", "UNLOCK K a READ", &["0"]),
    ("RLOCK K a 60000; RLOCK K a 60000", "UNLOCK K a ALL", &["0"]),
    ("RLOCK K a 60000; RLOCK K b 60000; UNLOCK K a", "UNLOCK K b", &["0"]),
    ("RLOCK K a 60000", "FORCEUNLOCK K", &["0"]),
    ("RLOCK K a 60000; RLOCK K b 60000", "FORCEUNLOCK K READ", &["0"]),
    // A write hold ends.
    ("WLOCK K a 60000", "UNLOCK K a", &["1"]),
    ("WLOCK K a 60000; WLOCK K a 60000", "UNLOCK K a ALL", &["1"]),
    ("WLOCK K a 60000; RLOCK K a 60000", "UNLOCK K a ALL", &["1"]),
    ("WLOCK K a 60000; RLOCK K a 60000; UNLOCK K a", "UNLOCK K a", &["1"]),
    ("WLOCK K a 60000", "FORCEUNLOCK K", &["1"]),
    ("WLOCK K a 60000; RLOCK K a 60000", "FORCEUNLOCK K WRITE", &["1"]),
    ("WLOCK K a 60000; WLOCK K b 60000 RESERVE 60000", "FORCEUNLOCK K", &["1"]),
    // A reservation alone is forced away.
    ("WLOCK K a 60000; WLOCK K b 60000 RESERVE 60000; UNLOCK K a", "FORCEUNLOCK K", &["1"]),
    // A write lock becomes a read lock.
    ("WLOCK K a 60000; RLOCK K a 60000", "UNLOCK K a WRITE", &["1"]),
    ("RLOCK K a 60000; UPGRADE K a 60000", "UNLOCK K a WRITE", &["1"]),
    ("WLOCK K a 60000; WLOCK K a 60000", "DOWNGRADE K a 60000", &["1"]),
    ("WLOCK K a 60000; RLOCK K a 60000", "DOWNGRADE K a 60000", &["1"]),
    // A lapse: LAPSE ends the lease of an owner's first read hold, while the
    // hash goes on. The module notices, unless a command is quicker.
    ("RLOCK K a 60000", "LAPSE a", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; RLOCK K b 60000", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; WLOCK K a 60000", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; UNLOCK K a", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; RENEW K a 60000", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; UPGRADE K a 60000", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; FORCEUNLOCK K", &["0"]),
    ("RLOCK K a 60000", "LAPSE a; INSPECT K; FORCEUNLOCK K WRITE", &["0"]),
    ("RLOCK K a 60000; RLOCK K b 60000", "LAPSE b; UNLOCK K a", &["0"]),
    ("WLOCK K a 60000; RLOCK K a 60000", "LAPSE a; UNLOCK K a WRITE", &["1"]),
    // Two ends.
    ("RLOCK K a 60000", "LAPSE a; RLOCK K b 60000; UNLOCK K b", &["0", "0"]),
];

const NO_ENDS: [Case; 23] = [
    ("", "RLOCK K a 60000; RLOCK K a 60000; RLOCK K b 60000; RLOCK K a 60000 ONCE", &[]),
    ("", "WLOCK K a 60000; WLOCK K a 60000; RLOCK K a 60000; WLOCK K a 60000 ONCE", &[]),
    ("RLOCK K a 60000", "WLOCK K b 60000; WLOCK K a 60000; UPGRADE K b 60000", &[]),
    ("WLOCK K a 60000", "WLOCK K b 60000; RLOCK K b 60000; DOWNGRADE K b 60000", &[]),
    ("RLOCK K a 60000", "WLOCK K b 60000 RESERVE 60000; RLOCK K c 60000", &[]),
    (
        "WLOCK K a 60000; WLOCK K b 60000 RESERVE 60000; UNLOCK K a",
        "WLOCK K c 60000; RLOCK K c 60000; WLOCK K b 60000",
        &[],
    ),
    ("RLOCK K a 60000", "RENEW K a 90000; RENEW K b 90000", &[]),
    ("WLOCK K a 60000", "RENEW K a 90000; RENEW K b 90000", &[]),
    ("RLOCK K a 60000", "UPGRADE K a 60000", &[]),
    ("RLOCK K a 60000; UPGRADE K a 60000", "UPGRADE K a 60000", &[]),
    ("RLOCK K a 60000; RLOCK K a 60000", "UNLOCK K a", &[]),
    ("RLOCK K a 60000; RLOCK K b 60000", "UNLOCK K a", &[]),
    ("RLOCK K a 60000; RLOCK K b 60000", "UNLOCK K a ALL", &[]),
    ("RLOCK K a 60000; RLOCK K b 60000", "LAPSE b; UNLOCK K b", &[]),
    ("RLOCK K a 60000; RLOCK K a 60000", "LAPSE a; RENEW K a 60000", &[]),
    ("WLOCK K a 60000; WLOCK K a 60000", "UNLOCK K a", &[]),
    ("WLOCK K a 60000; RLOCK K a 60000", "UNLOCK K a", &[]),
    ("WLOCK K a 60000; RLOCK K a 60000", "LAPSE a; RENEW K a 60000", &[]),
    ("WLOCK K a 60000", "UNLOCK K b; UNLOCK K a READ; UNLOCK K b ALL", &[]),
    ("", "UNLOCK K a; FORCEUNLOCK K; FORCEUNLOCK K READ; FORCEUNLOCK K WRITE", &[]),
    ("RLOCK K a 60000", "FORCEUNLOCK K WRITE", &[]),
    ("WLOCK K a 60000", "FORCEUNLOCK K READ", &[]),
    ("RLOCK K a 60000", "UNLOCK K a NOW; UNLOCK K; RLOCK K a 0; UNLOCK K mode", &[]),
];

/// How the lines of a [`Case`] are sent.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One after the other; a LAPSE is over when the module has met it.
    Plain,
    /// In a transaction: what follows a LAPSE meets it.
    Transaction,
    /// The same, in a script.
    Script,
}

/// Carries out lines such as `RLOCK K a 1000`, whatever the replies.
fn perform(con: &mut redis::Connection, lines: &str, lock: &str, way: Way) {
    let commands = lines.split(';').map(str::trim).filter(|line| !line.is_empty()).map(|line| {
        match line.strip_prefix("LAPSE ") {
            Some(owner) => format!("DEL {{{lock}}}:{owner}:rwlock_timeout:1"),
            None => format!("RWLOCK.{line}").replace(" K", &format!(" {lock}")),
        }
    });
    match way {
        Way::Plain => {
            for command in commands {
                let count = |con: &mut _| run(con, &format!("HVALS {lock}"));
                let before = count(con);
                drop(run(con, &command));
                if command.starts_with("DEL ") {
                    wait_until("the module meets the lapse", || count(con) != before);
                }
            }
        }
        Way::Transaction => {
            assert_ok(run(con, "MULTI"));
            for command in commands {
                drop(run(con, &command));
            }
            drop(run(con, "EXEC"));
        }
        Way::Script => {
            let script = "for _, line in ipairs(ARGV) do \
                              local words = {} \
                              for word in line:gmatch('%S+') do words[#words + 1] = word end \
                              redis.pcall(unpack(words)) \
                          end";
            let words = ["EVAL".to_owned(), script.to_owned(), "0".to_owned()];
            send(con, words.into_iter().chain(commands)).expect("run the script");
        }
    }
}

#[test]
fn every_end_is_announced_once_on_primary_and_replicas_and_nothing_else_is() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    let plain = Server::builder().without_module().replica_of(&replica).start();
    wait_synced(&primary, &replica);
    wait_synced(&replica, &plain);
    let mut con = primary.connection();
    let mut everywhere = [&primary, &replica, &plain]
        .map(|server| (server.port(), Subscriber::pattern(server, b"redisson_rwlock:*")));
    for (number, (before, act, expected)) in ENDS.iter().chain(&NO_ENDS).enumerate() {
        for way in [Way::Plain, Way::Transaction, Way::Script] {
            if *act == "LAPSE a" && !matches!(way, Way::Plain) {
                // Nobody meets it but the module, some time later.
                continue;
            }
            let lock = format!("lock-{number}-{way:?}");
            perform(&mut con, before, &lock, Way::Plain);
            let channel = format!("redisson_rwlock:{{{lock}}}");
            call!(con, "PUBLISH", &channel, "begin").expect("mark the beginning");
            perform(&mut con, act, &lock, way);
            call!(con, "PUBLISH", &channel, "end").expect("mark the end");
            for (port, subscriber) in &mut everywhere {
                subscriber.until("begin");
                let case = format!("{before} | {act} | {way:?}, at {port}");
                assert_eq!(subscriber.until("end"), *expected, "{case}");
            }
        }
    }
}

#[test]
fn the_channel_has_the_name_that_redisson_gives_it() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    let names: [(&[u8], &[u8]); 7] = [
        (b"stock", b"redisson_rwlock:{stock}"),
        (b"{order}:7", b"redisson_rwlock:{order}:7"),
        (b"a{b", b"redisson_rwlock:a{b"),
        (b"a{}b", b"redisson_rwlock:a{}b"),
        (b"a}b", b"redisson_rwlock:{a}b}"),
        (b"", b"redisson_rwlock:{}"),
        (b"\xff\0\r\n", b"redisson_rwlock:{\xff\0\r\n}"),
    ];
    for (lock, channel) in names {
        for server in [&primary, &replica] {
            // What was said before is not for this one.
            wait_synced(&primary, &replica);
            let mut subscriber = Subscriber::channel(server, channel);
            assert_ok(call!(con, "RWLOCK.RLOCK", lock, "a", 60_000));
            assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, "a")), 1);
            assert_eq!(subscriber.message(), (channel.to_vec(), "0".to_owned()));
            assert_ok(call!(con, "RWLOCK.WLOCK", lock, "a", 60_000));
            assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, "a")), 1);
            assert_eq!(subscriber.message(), (channel.to_vec(), "1".to_owned()));
        }
    }
}

#[test]
fn who_hears_that_a_lock_is_free_finds_it_free_also_on_a_replica() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut con = primary.connection();
    for server in [&primary, &replica] {
        // What was said before is not for this one.
        wait_synced(&primary, &replica);
        let mut subscriber = Subscriber::channel(server, b"redisson_rwlock:{lock}");
        let mut looking = server.connection();
        for command in ["RLOCK", "WLOCK"] {
            for _ in 0..20 {
                assert_ok(run(&mut con, &format!("RWLOCK.{command} lock a 60000")));
                assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
                subscriber.message();
                assert_eq!(text(inspect(&mut looking, "lock", "mode")), "free");
            }
        }
    }
}

#[test]
fn what_is_announced_inside_a_transaction_is_announced_once() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    let mut everywhere =
        [&primary, &replica].map(|server| Subscriber::channel(server, b"redisson_rwlock:{lock}"));
    assert_ok(run(&mut con, "MULTI"));
    for line in ["WLOCK lock a 60000", "UNLOCK lock a", "RLOCK lock a 60000", "UNLOCK lock a"] {
        assert_eq!(text(run(&mut con, &format!("RWLOCK.{line}"))), "QUEUED");
    }
    run(&mut con, "EXEC").expect("carry out the transaction");
    run(&mut con, "PUBLISH redisson_rwlock:{lock} end").expect("mark the end");
    for subscriber in &mut everywhere {
        assert_eq!(subscriber.until("end"), ["1", "0"]);
    }
}

#[test]
fn nothing_is_sharded_outside_a_cluster() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut subscriber = Subscriber::shard_channel(&server, b"redisson_rwlock:{lock}");
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
    run(&mut con, "SPUBLISH redisson_rwlock:{lock} end").expect("mark the end");
    assert_eq!(subscriber.until("end"), [] as [&str; 0]);
}

#[test]
fn a_cluster_announces_by_sharded_publish_to_the_primary_and_its_replica() {
    let cluster = Cluster::start(1, 1);
    let (primary, replica) = (cluster.node(0), cluster.node(1));
    let mut con = primary.connection();
    let channel = b"redisson_rwlock:{lock}";
    let mut sharded =
        [primary, replica].map(|node| (node.port(), Subscriber::shard_channel(node, channel)));
    let mut global = [primary, replica].map(|node| Subscriber::channel(node, channel));
    for line in [
        "RLOCK lock a 60000",
        "RLOCK lock b 60000",
        "UNLOCK lock a",
        "UNLOCK lock b",
        "WLOCK lock a 60000",
        "WLOCK lock a 60000",
        "UNLOCK lock a",
        "DOWNGRADE lock a 60000",
        "FORCEUNLOCK lock",
    ] {
        run(&mut con, &format!("RWLOCK.{line}")).expect(line);
    }
    assert_error(run(&mut con, "RWLOCK.UNLOCK lock a"), "NOTHELD");
    run(&mut con, "SPUBLISH redisson_rwlock:{lock} end").expect("mark the end");
    run(&mut con, "PUBLISH redisson_rwlock:{lock} end").expect("mark the end");
    for (port, subscriber) in &mut sharded {
        assert_eq!(subscriber.until("end"), ["0", "1", "0"], "at {port}");
    }
    for subscriber in &mut global {
        assert_eq!(subscriber.until("end"), [] as [&str; 0]);
    }
}

#[test]
fn a_lapse_is_announced_also_when_nobody_comes() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut con = primary.connection();
    for server in [&primary, &replica] {
        // What was said before is not for this one.
        wait_synced(&primary, &replica);
        let mut subscriber = Subscriber::channel(server, b"redisson_rwlock:{lock}");
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 50"));
        assert_eq!(subscriber.message().1, "1");
        assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 50"));
        assert_eq!(subscriber.message().1, "0");
    }
}
