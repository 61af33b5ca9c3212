//! RWLOCK.LOG: what goes in, what it tells, what it keeps.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use support::observe::run;
use support::{
    assert_error, assert_ok, call, int, list, map, text, wait_until, Client, Crowd, Server,
};

type Entry = BTreeMap<String, Value>;

/// A server that logs all that waits.
fn server() -> Server {
    Server::builder().module_arguments("log-slower-than 0").start()
}

fn entries(con: &mut Connection) -> Vec<Entry> {
    list(run(con, "RWLOCK.LOG COUNT 1000")).into_iter().map(map).collect()
}

/// `event key owner kind`.
fn shown(entry: &Entry) -> String {
    ["event", "key", "owner", "kind"].map(|name| text(&entry[name])).join(" ")
}

fn all_shown(con: &mut Connection) -> Vec<String> {
    entries(con).iter().map(shown).collect()
}

/// `a write holds, b read waits`.
fn blockers(entry: &Entry) -> String {
    let blockers = list(&entry["blockers"]).into_iter().map(map);
    let shown = blockers.map(|blocker| {
        let holds = if int(&blocker["holding"]) == 1 { "holds" } else { "waits" };
        format!("{} {} {holds}", text(&blocker["owner"]), text(&blocker["kind"]))
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_wait_is_told_with_all_that_stood_in_its_way() {
    let server = server();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k r 100000");
    crowd.ok("RLOCK k s 100000");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k q 100000 BLOCK 0");
    let mut other = crowd.waits("RLOCK k p 100000 BLOCK 0");
    crowd.gives("UNLOCK k r", 0);
    crowd.gives("UNLOCK k s", 1);
    writer.granted();
    crowd.gives("UNLOCK k w", 1);
    reader.granted();
    other.granted();
    let mut con = server.connection();
    let log = entries(&mut con);
    let told: Vec<_> = log.iter().map(|entry| (shown(entry), blockers(entry))).collect();
    let expected = [
        // Readers wait for the writer ahead, and not for each other.
        ("wait k p read", "r read holds, s read holds, w write waits"),
        ("wait k q read", "r read holds, s read holds, w write waits"),
        ("wait k w write", "r read holds, s read holds"),
    ];
    assert_eq!(told, expected.map(|(entry, by)| (entry.to_owned(), by.to_owned())));
    for (id, entry) in (0..).zip(log.iter().rev()) {
        assert_eq!(int(&entry["id"]), id);
        assert_eq!(int(&entry["db"]), 0);
        assert!(int(&entry["waited"]) >= 0);
        assert_eq!(int(&entry["held"]), 0);
        assert!(text(&entry["address"]).starts_with("127.0.0.1:"));
        assert!(int(&entry["client"]) > 0);
    }
    let names: Vec<_> = log[0].keys().map(String::as_str).collect();
    assert_eq!(names.len(), 14, "{names:?}");
}

#[test]
fn the_client_is_told_as_client_list_does() {
    let server = server();
    let mut crowd = Crowd::on(&server);
    crowd.plain("SELECT 3");
    crowd.ok("WLOCK k h 100000");
    let mut client = Client::new(&server);
    assert_ok(call!(client.con, "CLIENT", "SETNAME", "night-job"));
    assert_ok(call!(client.con, "SELECT", 3));
    client.send("WLOCK k w 100000 BLOCK 0");
    wait_until("it waits", || !list(crowd.plain("RWLOCK.QUEUES")).is_empty());
    crowd.gives("UNLOCK k h", 1);
    client.granted();
    let info = text(call!(client.con, "CLIENT", "INFO"));
    let field = |name: &str| {
        let fields = info.split([' ', '\n']);
        fields.filter_map(|field| field.strip_prefix(name)?.strip_prefix('=')).next().expect(name)
    };
    let log = entries(&mut server.connection());
    assert_eq!(text(&log[0]["address"]), field("addr"));
    assert_eq!(int(&log[0]["client"]).to_string(), field("id"));
    assert_eq!(text(&log[0]["name"]), "night-job");
    assert_eq!(int(&log[0]["db"]), 3);
}

#[test]
fn only_what_waited_long_is_told() {
    let server = Server::builder().module_arguments("log-slower-than 60000").start();
    let mut crowd = Crowd::on(&server);
    let mut con = server.connection();
    let mut wait_for_it = || {
        crowd.ok("WLOCK k h 100000");
        let mut client = crowd.waits("WLOCK k w 100000 BLOCK 0");
        crowd.gives("UNLOCK k h", 1);
        client.granted();
        crowd.gives("UNLOCK k w", 1);
    };
    wait_for_it();
    assert_eq!(all_shown(&mut con), [] as [&str; 0]);
    assert_ok(run(&mut con, "CONFIG SET rwlock.log-slower-than 0"));
    wait_for_it();
    assert_eq!(all_shown(&mut con), ["wait k w write"]);
    for off in ["rwlock.log-slower-than -1", "rwlock.log-slower-than 0 rwlock.log-max-len 0"] {
        assert_ok(run(&mut con, &format!("CONFIG SET {off}")));
        assert_ok(run(&mut con, "RWLOCK.LOG RESET"));
        wait_for_it();
        assert_eq!(all_shown(&mut con), [] as [&str; 0], "{off}");
    }
}

#[test]
fn what_goes_wrong_is_told_whatever_it_took() {
    let server = Server::builder().module_arguments("log-slower-than 60000").start();
    let mut crowd = Crowd::on(&server);
    let mut con = server.connection();
    let mut told = |what: &str, detail: &str| {
        wait_until(what, || all_shown(&mut con).first().is_some_and(|first| first == what));
        let log = entries(&mut con);
        assert_eq!(text(&log[0]["detail"]), detail, "{what}");
        assert_ok(run(&mut con, "RWLOCK.LOG RESET"));
        log[0].clone()
    };
    // Two that time out, one by CLIENT UNBLOCK.
    crowd.ok("WLOCK k h 100000");
    crowd.waits("WLOCK k late 100000 BLOCK 30").refused();
    let entry = told("timeout k late write", "");
    assert_eq!(blockers(&entry), "h write holds");
    assert!(int(&entry["waited"]) >= 30);
    let mut client = crowd.waits("RLOCK k gone 100000 BLOCK 0");
    let id = crowd.waiting("k")[0];
    crowd.plain(&format!("CLIENT UNBLOCK {id}"));
    client.refused();
    told("timeout k gone read", "by CLIENT UNBLOCK");
    // A circle.
    crowd.ok("WLOCK l w 100000");
    let mut first = crowd.waits("WLOCK k w 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK l h 100000 BLOCK 0"), "DEADLOCK");
    told("deadlock l h write", "h waits for w, w waits for h");
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    // One that would wait for itself, and a second upgrade.
    crowd.ok("RLOCK m x 100000");
    assert_error(crowd.run("WLOCK m x 100000 BLOCK 0"), "DEADLOCK");
    told("deadlock m x write", "x reads this lock and would wait for itself");
    crowd.ok("RLOCK m y 100000");
    drop(crowd.waits("UPGRADE m y 100000 BLOCK 0"));
    // A hold whose connection closes.
    let mut session = crowd.client();
    session.send("WLOCK s holder 100000 SESSION");
    session.granted();
    drop(session);
    let entry = told("session s holder write", "");
    assert!(int(&entry["client"]) > 0);
    // A lock that lapses, whoever held it; and a reader among others.
    crowd.ok("WLOCK short one 60");
    told("lapse short one write", "");
    crowd.ok("RLOCK many one 100000");
    crowd.ok("RLOCK many two 60");
    told("lapse many two read", "");
    // An operator.
    crowd.gives("FORCEUNLOCK many", 1);
    let entry = told("forced many one read", "by user \"default\"; held by \"one\" (read)");
    assert!(text(&entry["address"]).starts_with("127.0.0.1:"));
}

#[test]
fn a_lock_that_was_held_for_long_is_told_when_it_is_free() {
    let server = Server::builder().module_arguments("log-holds-over 50").start();
    let mut crowd = Crowd::on(&server);
    let mut con = server.connection();
    // By those who hold it in turn, without a gap.
    crowd.ok("WLOCK k a 100000");
    let mut next = crowd.waits("RLOCK k b 100000 BLOCK 0");
    let held = |crowd: &mut Crowd<'_>, lock: &str| int(&crowd.inspect(lock)["held"]);
    // The log may tell some ms less than INSPECT, which reads another clock.
    wait_until("it is held for long", || held(&mut crowd, "k") >= 65);
    crowd.gives("UNLOCK k a", 1);
    next.granted();
    assert_eq!(all_shown(&mut con), [] as [&str; 0]);
    crowd.gives("UNLOCK k b", 1);
    assert_eq!(all_shown(&mut con), ["hold k b "]);
    let entry = &entries(&mut con)[0];
    assert!(int(&entry["held"]) >= 60);
    assert_eq!(int(&entry["waited"]), 0);
    // Not one that was held shortly, nor one that is off.
    crowd.ok("WLOCK short a 100000");
    crowd.gives("UNLOCK short a", 1);
    assert_eq!(all_shown(&mut con).len(), 1);
    assert_ok(run(&mut con, "CONFIG SET rwlock.log-holds-over -1"));
    crowd.ok("WLOCK k a 100000");
    wait_until("it is held for long", || held(&mut crowd, "k") >= 60);
    crowd.gives("UNLOCK k a", 1);
    assert_eq!(all_shown(&mut con).len(), 1);
    // A lapse and a FORCEUNLOCK tell how long it was, and are a long hold as well.
    assert_ok(run(&mut con, "CONFIG SET rwlock.log-holds-over 50"));
    assert_ok(run(&mut con, "RWLOCK.LOG RESET"));
    crowd.ok("WLOCK k a 80");
    let told = |con: &mut Connection| {
        let mut shown = all_shown(con);
        shown.sort();
        shown
    };
    wait_until("it has lapsed", || told(&mut con) == ["hold k a ", "lapse k a write"]);
    assert!(entries(&mut con).iter().all(|entry| int(&entry["held"]) >= 75));
    assert_ok(run(&mut con, "RWLOCK.LOG RESET"));
    crowd.ok("WLOCK k c 100000");
    wait_until("it is held for long", || held(&mut crowd, "k") >= 65);
    crowd.gives("FORCEUNLOCK k", 1);
    assert_eq!(told(&mut con), ["forced k c write", "hold k c "]);
    assert!(entries(&mut con).iter().all(|entry| int(&entry["held"]) >= 60));
}

#[test]
fn several_locks_are_one_entry() {
    let server = server();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK a h 100000");
    crowd.ok("WLOCK b i 100000");
    let mut client = Client::waits(&server, "MLOCK me 100000 READ 1 c WRITE 2 a b BLOCK 0");
    crowd.gives("UNLOCK a h", 1);
    crowd.gives("UNLOCK b i", 1);
    client.granted();
    let log = entries(&mut server.connection());
    assert_eq!(log.iter().map(shown).collect::<Vec<_>>(), ["wait c me read"]);
    assert_eq!(blockers(&log[0]), "h write holds, i write holds");
    assert_eq!(text(&log[0]["detail"]), "the first of 3 locks");
}

#[test]
fn names_may_be_anything_and_are_cut() {
    let server = server();
    let mut crowd = Crowd::on(&server);
    let long = "x".repeat(1_000);
    crowd.ok(&format!("WLOCK {long} {long} 100000"));
    let mut client = crowd.waits(&format!("WLOCK {long} me 100000 BLOCK 0"));
    crowd.gives(&format!("UNLOCK {long} {long}"), 1);
    client.granted();
    let cut = format!("{}... (872 more bytes)", &long[..128]);
    let log = entries(&mut server.connection());
    assert_eq!(shown(&log[0]), format!("wait {cut} me write"));
    assert_eq!(blockers(&log[0]), format!("{cut} write holds"));
    // The server's log takes them as text, whatever they are.
    for name in [&b"%n%s%d"[..], b"\0\r\n+OK", b"\xff\xfe", b"\x1b[31m"] {
        assert_ok(call!(crowd.con, "RWLOCK.WLOCK", name, name, 60_000));
        assert_eq!(int(call!(crowd.con, "RWLOCK.FORCEUNLOCK", name)), 1);
        let shown = format!("FORCEUNLOCK of lock \"{}\"", name.escape_ascii());
        assert!(server.log().contains(&shown), "{shown}");
    }
}

#[test]
fn the_newest_are_kept_and_reset_drops_them() {
    let server = Server::builder().module_arguments("log-slower-than 0 log-max-len 3").start();
    let mut crowd = Crowd::on(&server);
    let mut con = server.connection();
    let ids = |con: &mut Connection| -> Vec<i64> {
        entries(con).iter().map(|entry| int(&entry["id"])).collect()
    };
    for _ in 0..5 {
        crowd.ok("WLOCK k h 100000");
        crowd.waits("WLOCK k w 100000 BLOCK 5").refused();
        crowd.gives("UNLOCK k h", 1);
    }
    wait_until("all are told", || ids(&mut con) == [4, 3, 2]);
    assert_eq!(list(run(&mut con, "RWLOCK.LOG COUNT 1")).len(), 1);
    assert_ok(run(&mut con, "CONFIG SET rwlock.log-max-len 1"));
    wait_until("the oldest are dropped", || ids(&mut con) == [4]);
    assert_ok(run(&mut con, "RWLOCK.LOG RESET"));
    assert_eq!(ids(&mut con), []);
    for (line, error) in [
        ("COUNT 0", "ERR value is out of range, must be positive"),
        ("COUNT -1", "ERR value is out of range, must be positive"),
        ("COUNT x", "ERR value is not an integer or out of range"),
        ("COUNT", "ERR syntax error"),
        ("COUNT 1 2", "ERR syntax error near '2'"),
        ("RESET now", "ERR syntax error near 'now'"),
        ("CLEAR", "ERR syntax error near 'CLEAR'"),
    ] {
        assert_error(run(&mut con, &format!("RWLOCK.LOG {line}")), error);
    }
    assert_eq!(list(run(&mut con, "RWLOCK.LOG COUNT 9223372036854775807")).len(), 0);
}

#[test]
fn a_user_sees_only_the_locks_that_it_may_read_and_may_not_reset() {
    let server = server();
    let mut crowd = Crowd::on(&server);
    let long = format!("app:{}", "x".repeat(200));
    for lock in ["app:1", "other", &long] {
        crowd.ok(&format!("WLOCK {lock} h 100000"));
        crowd.waits(&format!("WLOCK {lock} w 100000 BLOCK 5")).refused();
        crowd.gives(&format!("UNLOCK {lock} h"), 1);
    }
    let mut con = server.connection();
    wait_until("all are told", || entries(&mut con).len() == 3);
    assert_ok(run(&mut con, "ACL SETUSER watcher on nopass %R~app:* +rwlock.log"));
    assert_ok(run(&mut con, "AUTH watcher x"));
    let seen: Vec<_> = entries(&mut con).iter().map(|entry| text(&entry["key"])).collect();
    assert_eq!(seen, [format!("{}... (76 more bytes)", &long[..128]), "app:1".to_owned()]);
    assert_error(run(&mut con, "RWLOCK.LOG RESET"), "NOPERM");
    assert_eq!(entries(&mut con).len(), 2);
}

#[test]
fn deadlocks_are_in_the_servers_log_ten_a_second() {
    let server = server();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 100000");
    for _ in 0..100 {
        assert_error(crowd.run("WLOCK k a 100000 BLOCK 0"), "DEADLOCK");
    }
    let lines = || {
        let log = server.log();
        log.lines().filter(|line| line.contains("deadlock at lock")).map(str::to_owned).collect()
    };
    let first: Vec<String> = lines();
    // Some more if the hundred took longer than a second.
    assert!((10..100).contains(&first.len()), "{first:?}");
    assert!(first[0].contains("\"k\" in database 0, client"), "{first:?}");
    assert!(first[0].ends_with("a reads this lock and would wait for itself"), "{first:?}");
    wait_until("the next one tells how many were left out", || {
        assert_error(crowd.run("WLOCK k a 100000 BLOCK 0"), "DEADLOCK");
        let now: Vec<String> = lines();
        now.last().is_some_and(|line| line.contains("more before this one)"))
    });
}

#[test]
fn a_wait_is_logged_whose_client_goes_while_it_is_granted() {
    let server = server();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK k holder 100000"));
    let waiter = Client::waits(&server, "WLOCK k waiter 100000 BLOCK 0");
    // In one packet: the server sends the answer only after that, when the client is gone.
    let mut packet = redis::pipe();
    packet.cmd("RWLOCK.UNLOCK").arg("k").arg("holder");
    packet.cmd("CLIENT").arg("KILL").arg("ID").arg(waiter.id);
    packet.query::<()>(&mut con).expect("the server goes on");
    wait_until("the wait is logged", || {
        all_shown(&mut con).contains(&"disconnect k waiter write".to_owned())
    });
    wait_until("the hold is given back", || int(call!(con, "EXISTS", "k")) == 0);
}
