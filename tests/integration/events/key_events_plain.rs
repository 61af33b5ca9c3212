//! The keyspace events that plain commands would raise for the same changes.

use support::observe::Subscriber;
use support::{assert_ok, call, wait_synced, wait_until, Crowd, Server};

/// What is done to the locks. `DEL a` ends the first read lease of an owner.
const HISTORIES: [&str; 23] = [
    "RLOCK k a 60000; UNLOCK k a",
    "WLOCK k a 60000; UNLOCK k a",
    "RLOCK k a 60000; RLOCK k a 70000; RLOCK k b 60000; UNLOCK k a; UNLOCK k a; UNLOCK k b",
    "WLOCK k a 60000; WLOCK k a 90000; UNLOCK k a; UNLOCK k a",
    "WLOCK k a 60000; RLOCK k a 60000; UNLOCK k a WRITE; UNLOCK k a",
    "WLOCK k a 60000; RLOCK k a 60000; RLOCK k a 60000; UNLOCK k a ALL",
    "RLOCK k a 60000; UPGRADE k a 60000; DOWNGRADE k a 90000; UNLOCK k a",
    "RLOCK k a 60000; RENEW k a 90000; RLOCK k a 100000 ONCE",
    "WLOCK k a 60000; DOWNGRADE k a 60000",
    "WLOCK k a 60000; WLOCK k b 60000 RESERVE 50000; UNLOCK k a; WLOCK k b 60000",
    "WLOCK k a 60000 FENCE; UNLOCK k a; WLOCK k a 60000 FENCE",
    "RLOCK k a 60000; RLOCK k b 60000; FORCEUNLOCK k",
    "WLOCK k a 60000; WLOCK k b 60000 RESERVE 50000; FORCEUNLOCK k",
    "RLOCK k a 60000; RLOCK k a 60000; DEL a; RENEW k a 70000",
    "RLOCK k a 60000; RLOCK k b 60000; DEL b; UNLOCK k a",
    "RLOCK k a 60000; DEL a; WLOCK k b 60000",
    "RLOCK k a 60000; DEL a; FORCEUNLOCK k",
    "WLOCK k a 60000; RLOCK k a 60000; DEL a; UNLOCK k a WRITE",
    "WLOCK k a 60000; PERSIST k; RLOCK k a 60000; UNLOCK k a WRITE",
    "WLOCK k a 60000; PERSIST k; UNLOCK k a",
    // Nothing changes.
    "WLOCK k a 60000; WLOCK k b 60000; UNLOCK k b; RENEW k b 1000; RLOCK k b 1000",
    // A writer that waits, and readers that wait.
    "WLOCK k a 60000; WAITS WLOCK k b 60000 BLOCK 0; UNLOCK k a",
    "WLOCK k a 60000; WAITS RLOCK k b 60000 BLOCK 0; WAITS RLOCK k c 60000 BLOCK 0; UNLOCK k a",
];

fn perform(crowd: &mut Crowd<'_>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["DEL", owner] => drop(crowd.plain(&format!("DEL {{k}}:{owner}:rwlock_timeout:1"))),
        ["PERSIST", _] => drop(crowd.plain(line)),
        ["WAITS", ..] => {
            let request = line.trim_start_matches("WAITS ");
            let mut client = crowd.waits(request);
            // Its reply comes with what follows.
            std::thread::spawn(move || drop(client.reply()));
        }
        _ => drop(crowd.run(line)),
    }
}

/// Every event up to the mark, as `channel event`, but those of the module's own.
fn events(subscriber: &mut Subscriber) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let (channel, event) = subscriber.message();
        let channel = String::from_utf8_lossy(&channel).into_owned();
        match event.as_str() {
            "end" => return events,
            event if event.starts_with("rwlock.") => {}
            event => events.push(format!("{channel} {event}")),
        }
    }
}

#[test]
fn the_primary_raises_what_its_replica_raises_for_the_plain_commands() {
    let asked = |server: support::Builder| server.config("notify-keyspace-events", "KA");
    let primary = asked(Server::builder()).start();
    let replica = asked(Server::builder().replica_of(&primary)).start();
    wait_synced(&primary, &replica);
    let mut crowd = Crowd::on(&primary);
    let [mut here, mut there] =
        [&primary, &replica].map(|server| Subscriber::pattern(server, b"__keyspace@0__:*"));
    for history in HISTORIES {
        for line in history.split(';').map(str::trim) {
            perform(&mut crowd, line);
        }
        wait_synced(&primary, &replica);
        crowd.plain("PUBLISH __keyspace@0__:mark end");
        let raised = events(&mut here);
        assert!(!raised.is_empty(), "{history}");
        assert_eq!(raised, events(&mut there), "{history}");
        crowd.plain("FLUSHALL");
    }
}

#[test]
fn each_class_is_raised_where_it_is_asked_for() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut subscriber = Subscriber::pattern(&server, b"__keyspace@*__:*");
    let cases = [
        ("K$", "set"),
        ("Kh", "hset"),
        ("Kg", "expire expire del del"),
        ("Kd", "rwlock.acquire rwlock.release"),
        ("K$hg", "hset expire set expire del del"),
        ("KA", "hset expire set expire rwlock.acquire del del rwlock.release"),
        ("", ""),
    ];
    for (classes, expected) in cases {
        assert_ok(call!(crowd.con, "CONFIG", "SET", "notify-keyspace-events", classes));
        crowd.ok("RLOCK k a 60000");
        crowd.gives("UNLOCK k a", 1);
        crowd.plain("PUBLISH __keyspace@0__:mark end");
        assert_eq!(subscriber.until("end").join(" "), expected, "{classes}");
    }
}

/// How the listeners of Redisson's objects hear that one is gone.
#[test]
fn who_listens_for_del_hears_each_way_in_which_a_lock_ends() {
    let server = Server::builder().config("notify-keyspace-events", "Eg").start();
    let mut crowd = Crowd::on(&server);
    let mut subscriber = Subscriber::channel(&server, b"__keyevent@0__:del");
    crowd.ok("WLOCK written a 60000");
    crowd.gives("UNLOCK written a", 1);
    crowd.ok("WLOCK forced a 60000");
    crowd.gives("FORCEUNLOCK forced", 1);
    // The one that waits goes on with a hash of its own or with that of the first.
    crowd.ok("WLOCK handed a 60000");
    let mut next = crowd.waits("RLOCK handed b 60000 BLOCK 0");
    crowd.gives("UNLOCK handed a", 1);
    next.granted();
    let mut session = crowd.client();
    session.send("WLOCK session a 60000 SESSION");
    session.granted();
    drop(session);
    for key in ["written", "forced", "handed", "session"] {
        assert_eq!(subscriber.message().1, key);
    }
}

#[test]
fn an_event_of_the_modules_own_is_no_change_by_others() {
    let server = Server::builder().config("notify-keyspace-events", "KEA").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 60000");
    let mut session = crowd.waits("WLOCK k s 60000 BLOCK 0 SESSION");
    // The old hash is deleted, and there is a new one when the events are raised.
    crowd.gives("UNLOCK k a", 1);
    session.granted();
    assert_eq!(crowd.holders("k"), "s write");
    drop(session);
    wait_until("the hold has gone with its session", || crowd.holders("k").is_empty());
}

#[test]
fn another_module_may_change_the_lock_when_it_hears_of_one() {
    let server = Server::builder()
        .config("notify-keyspace-events", "Kg")
        .meddler("del", "RWLOCK.WLOCK k meddler 60000")
        .start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k a 60000");
    crowd.gives("UNLOCK k a", 1);
    assert_eq!(crowd.holders("k"), "meddler write");
    let mut waiter = crowd.waits("WLOCK k b 60000 BLOCK 0");
    crowd.gives("UNLOCK k meddler", 1);
    waiter.granted();
    assert_eq!(crowd.holders("k"), "b write");
}
