//! Keyspace notifications of the module's own.

use support::observe::{run, Subscriber};
use support::{
    assert_error, assert_ok, call, int, list, text, wait_synced, wait_until, Client, Crowd, Server,
};

/// What is done to the lock `k`, and the events that it raises. `PASS` waits
/// until the lock is free, `DEL a b` ends leases by hand.
const EVENTS: [(&str, &str); 29] = [
    ("RLOCK k a 60000; UNLOCK k a", "acquire release"),
    ("WLOCK k a 60000; UNLOCK k a", "acquire release"),
    // Re-entrant, and beside others.
    ("RLOCK k a 60000; RLOCK k a 60000; RLOCK k b 60000", "acquire acquire acquire"),
    ("WLOCK k a 60000; WLOCK k a 60000; RLOCK k a 60000", "acquire acquire acquire"),
    ("RLOCK k a 60000; UPGRADE k a 60000", "acquire acquire"),
    // What is answered OK is a grant, also when it is no new hold.
    ("RLOCK k a 60000; RLOCK k a 90000 ONCE", "acquire acquire"),
    // Each command that gives back is one release, whatever is left.
    ("RLOCK k a 60000; RLOCK k a 60000; UNLOCK k a; UNLOCK k a", "acquire acquire release release"),
    ("WLOCK k a 60000; RLOCK k a 60000; UNLOCK k a ALL", "acquire acquire release"),
    ("WLOCK k a 60000; RLOCK k a 60000; UNLOCK k a WRITE", "acquire acquire release"),
    ("WLOCK k a 60000; DOWNGRADE k a 60000; UNLOCK k a", "acquire release release"),
    ("RLOCK k a 60000; RLOCK k b 60000; FORCEUNLOCK k", "acquire acquire release"),
    ("WLOCK k a 60000; FORCEUNLOCK k WRITE", "acquire release"),
    // No hold begins or ends.
    ("WLOCK k a 60000; WLOCK k b 60000; RLOCK k b 60000; UPGRADE k b 60000", "acquire"),
    ("RLOCK k a 60000; WLOCK k b 60000 RESERVE 60000; RENEW k a 90000", "acquire"),
    ("UNLOCK k a; RENEW k a 60000; DOWNGRADE k a 1000; FORCEUNLOCK k", ""),
    ("RLOCK k a 60000; FORCEUNLOCK k WRITE; UNLOCK k b; UNLOCK k a WRITE", "acquire"),
    ("INSPECT k; QUEUES; LOG; LOG RESET; HOTLOCKS; HOTLOCKS RESET; HELP", ""),
    (
        "WLOCK k a 60000; WLOCK k b 60000 RESERVE 60000; UNLOCK k a; FORCEUNLOCK k",
        "acquire release",
    ),
    // Somebody else's doing has the server's own events.
    ("RLOCK k a 60000; GONE", "acquire"),
    // A lapse.
    ("RLOCK k a 50; PASS", "acquire expire"),
    ("WLOCK k a 50; PASS", "acquire expire"),
    ("RLOCK k a 60000; RLOCK k a 60000; DEL a; RENEW k a 60000", "acquire acquire expire"),
    ("RLOCK k a 60000; RLOCK k b 60000; DEL b; UNLOCK k a", "acquire acquire expire release"),
    ("RLOCK k a 60000; RLOCK k b 60000; DEL a b; PASS", "acquire acquire expire"),
    // One that a command meets comes before what the command does.
    ("RLOCK k a 60000; DEL a; WLOCK k b 60000", "acquire expire acquire"),
    ("RLOCK k a 60000; DEL a; UNLOCK k a", "acquire expire"),
    ("RLOCK k a 60000; DEL a; UPGRADE k a 60000", "acquire expire"),
    ("RLOCK k a 60000; DEL a; FORCEUNLOCK k", "acquire expire"),
    ("WLOCK k a 60000; RLOCK k a 60000; DEL a; UNLOCK k a WRITE", "acquire acquire expire release"),
];

fn perform(crowd: &mut Crowd<'_>, lines: &str, in_transaction: bool) {
    if in_transaction {
        crowd.plain("MULTI");
    }
    for line in lines.split(';').map(str::trim) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["PASS"] => wait_until("it is over", || int(crowd.plain("EXISTS k")) == 0),
            ["GONE"] => drop(crowd.plain("DEL k")),
            ["DEL", ref owners @ ..] => {
                let keys = owners.iter().map(|owner| format!(" {{k}}:{owner}:rwlock_timeout:1"));
                crowd.plain(&format!("DEL{}", keys.collect::<String>()));
            }
            _ => drop(crowd.run(line)),
        }
    }
    if in_transaction {
        crowd.plain("EXEC");
    }
}

fn names(events: &[String]) -> String {
    let short = |event: &String| event.trim_start_matches("rwlock.").to_owned();
    events.iter().map(short).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_begin_and_end_of_a_hold_is_an_event_of_the_lock() {
    let server = Server::builder().config("notify-keyspace-events", "Kd").start();
    let mut crowd = Crowd::on(&server);
    let mut subscriber = Subscriber::channel(&server, b"__keyspace@0__:k");
    for (lines, expected) in EVENTS {
        for in_transaction in [false, true] {
            if in_transaction && lines.contains("PASS") {
                continue;
            }
            perform(&mut crowd, lines, in_transaction);
            let case = format!("{lines}, in a transaction: {in_transaction}");
            let heard = expected.split_terminator(' ').map(|_| subscriber.message().1);
            assert_eq!(names(&heard.collect::<Vec<_>>()), expected, "{case}");
            // And no more than that.
            crowd.plain("FLUSHALL");
            crowd.ok("WLOCK k x 60000");
            crowd.gives("UNLOCK k x", 1);
            crowd.plain("PUBLISH __keyspace@0__:k end");
            assert_eq!(names(&subscriber.until("end")), "acquire release", "{case}");
        }
    }
}

#[test]
fn a_grant_after_waiting_is_an_event_behind_the_release() {
    let server = Server::builder().config("notify-keyspace-events", "Ed").start();
    let mut crowd = Crowd::on(&server);
    let mut subscriber = Subscriber::pattern(&server, b"__keyevent@0__:*");
    let mut expect = |expected: &[&str]| {
        for name in expected {
            let (channel, key) = subscriber.message();
            let channel = String::from_utf8(channel).expect("a name");
            assert_eq!(
                (channel.as_str(), key.as_str()),
                (&*format!("__keyevent@0__:rwlock.{name}"), "k")
            );
        }
    };
    crowd.ok("WLOCK k h 100000");
    let mut first = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut second = crowd.waits("RLOCK k b 100000 BLOCK 0");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    second.granted();
    expect(&["acquire", "wait", "release", "acquire", "acquire"]);
    crowd.gives("UNLOCK k a", 0);
    crowd.gives("UNLOCK k b", 1);
    writer.granted();
    expect(&["release", "release", "acquire"]);
    // A waiter that leaves, and one whose time is up.
    drop(crowd.waits("WLOCK k x 100000 BLOCK 0"));
    wait_until("nobody waits", || list(crowd.plain("RWLOCK.QUEUES")).is_empty());
    let mut short = crowd.waits("WLOCK k y 100000 BLOCK 500");
    short.refused();
    // A lapse that lets one in.
    let mut next = crowd.waits("WLOCK k n 100000 BLOCK 0");
    crowd.plain("PEXPIRE k 20");
    next.granted();
    expect(&["wait", "wait", "wait", "expire", "acquire"]);
    // A session closes.
    crowd.gives("UNLOCK k n", 1);
    let mut session = crowd.client();
    session.send("WLOCK k s 100000 SESSION");
    session.granted();
    drop(session);
    expect(&["release", "acquire", "release"]);
}

#[test]
fn the_first_that_waits_for_a_held_lock_is_an_event() {
    let server = Server::builder().config("notify-keyspace-events", "Kd").start();
    let mut crowd = Crowd::on(&server);
    let mut subscriber = Subscriber::pattern(&server, b"__keyspace@0__:*");
    let mut expect = |expected: &[(&str, &str)]| {
        for (key, event) in expected {
            let (channel, name) = subscriber.message();
            let channel = String::from_utf8(channel).expect("a name");
            assert_eq!(channel, format!("__keyspace@0__:{key}"));
            assert_eq!(name, format!("rwlock.{event}"));
        }
    };
    crowd.ok("RLOCK k h 100000");
    crowd.ok("RLOCK k b 100000");
    expect(&[("k", "acquire"), ("k", "acquire")]);
    // A refusal is no wait, and neither is a request that would wait for itself.
    crowd.refused("WLOCK k a 100000");
    assert_error(crowd.run("WLOCK k h 100000 BLOCK 0"), "DEADLOCK");
    let first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    expect(&[("k", "wait")]);
    // Only the first. When the queue was empty in between, the next is the first again.
    drop(crowd.waits("RLOCK k c 100000 BLOCK 0"));
    drop(first);
    wait_until("nobody waits", || list(crowd.plain("RWLOCK.QUEUES")).is_empty());
    let mut upgrade = crowd.waits("UPGRADE k b 100000 BLOCK 0");
    expect(&[("k", "wait")]);
    crowd.gives("UNLOCK k h", 0);
    upgrade.granted();
    expect(&[("k", "release"), ("k", "acquire")]);
    // Of several locks only those that are held, and that had no waiter.
    let mut several = Client::waits(&server, "MLOCK a 100000 READ 1 l WRITE 2 k m BLOCK 0");
    expect(&[("k", "wait")]);
    crowd.gives("UNLOCK k b ALL", 1);
    several.granted();
    expect(&[("k", "release"), ("l", "acquire"), ("k", "acquire"), ("m", "acquire")]);
}

#[test]
fn an_event_belongs_to_the_locks_database_and_key() {
    let server = Server::builder().config("notify-keyspace-events", "KEd").start();
    let mut con = server.connection();
    let mut subscriber = Subscriber::pattern(&server, b"__key*__:*");
    let lock: &[u8] = b"{a}\xff\0 b";
    for db in [0, 5, 0] {
        assert_ok(call!(con, "SELECT", db));
        assert_ok(call!(con, "RWLOCK.WLOCK", lock, "me", 60));
        for what in ["rwlock.acquire", "rwlock.expire"] {
            let keyspace = [format!("__keyspace@{db}__:").as_bytes(), lock].concat();
            assert_eq!(subscriber.message(), (keyspace, what.to_owned()));
            // The payload is no text.
            let channel = subscriber.message_channel();
            assert_eq!(channel, format!("__keyevent@{db}__:{what}"));
        }
        // The connection is still where it was.
        let client = text(run(&mut con, "CLIENT LIST TYPE normal"));
        assert!(client.contains(&format!(" db={db} ")), "{client}");
    }
}

#[test]
fn they_are_off_unless_asked_for() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut subscriber = Subscriber::pattern(&server, b"__key*@*__:*");
    let mut heard = |flags: &str| {
        assert_ok(call!(con, "CONFIG", "SET", "notify-keyspace-events", flags));
        assert_ok(run(&mut con, "RWLOCK.WLOCK k a 60000"));
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
        run(&mut con, "PUBLISH __keyevent@0__:end end").expect("mark the end");
        subscriber.until("end")
    };
    // Classes of changes that the module does not make.
    assert_eq!(heard(""), [] as [&str; 0]);
    assert_eq!(heard("KElszxetm"), [] as [&str; 0]);
    assert_eq!(heard("Kd"), ["rwlock.acquire", "rwlock.release"]);
    assert_eq!(heard("Ed"), ["k", "k"]);
    assert_eq!(heard("KA"), ["hset", "expire", "rwlock.acquire", "del", "rwlock.release"]);
    assert_eq!(heard(""), [] as [&str; 0]);
}

#[test]
fn a_replica_raises_none_but_the_servers_own() {
    let primary = Server::builder().start();
    let replica =
        Server::builder().config("notify-keyspace-events", "KEA").replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    let mut subscriber = Subscriber::channel(&replica, b"__keyspace@0__:k");
    assert_ok(run(&mut con, "RWLOCK.WLOCK k a 60000"));
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    // As it applies the plain commands.
    assert_eq!(subscriber.until("del"), ["hset", "expire"]);
}

#[test]
fn who_is_told_finds_what_it_was_told() {
    let server = Server::builder().config("notify-keyspace-events", "Kd").start();
    let mut crowd = Crowd::on(&server);
    let mut subscriber = Subscriber::channel(&server, b"__keyspace@0__:k");
    for _ in 0..20 {
        crowd.ok("WLOCK k a 60000");
        assert_eq!(subscriber.message().1, "rwlock.acquire");
        assert_eq!(crowd.holders("k"), "a write");
        crowd.gives("UNLOCK k a", 1);
        assert_eq!(subscriber.message().1, "rwlock.release");
        assert_eq!(list(&crowd.inspect("k")["holders"]), []);
    }
}
