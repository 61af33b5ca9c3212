//! HOTLOCKS: what counts as a wait, the order, RESET, and who sees which lock.

use redis::{Connection, RedisResult, Value};

use crate::access::rights::{user, Categories};
use support::{
    assert_error, assert_ok, bytes, call, int, list, map, send, text, wait_synced, wait_until,
    Client, Crowd, Server,
};

/// A row of HOTLOCKS: `key db waits timeouts deadlocks`. Times are checked, not shown.
#[track_caller]
fn rows(con: &mut Connection) -> Vec<String> {
    rows_of(&list(call!(con, "RWLOCK.HOTLOCKS", "COUNT", 1_000)))
}

#[track_caller]
fn rows_of(rows: &[Value]) -> Vec<String> {
    let mut last = i64::MAX;
    let mut row = |row: &Value| {
        let row = map(row);
        let names: Vec<_> = row.keys().map(String::as_str).collect();
        assert_eq!(names, ["db", "deadlocks", "key", "max", "timeouts", "total", "waits"]);
        let number = |name: &str| int(&row[name]);
        let (waits, total, max) = (number("waits"), number("total"), number("max"));
        assert!(0 <= max && max <= total && total <= waits * max.max(1), "{row:?}");
        assert!(total <= last, "longest first");
        last = total;
        let (key, db) = (text(&row["key"]), number("db"));
        format!("{key} {db} {waits} {} {}", number("timeouts"), number("deadlocks"))
    };
    rows.iter().map(&mut row).collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// The reply to a new client that sends this.
fn fails(crowd: &Crowd<'_>, command: &str) -> RedisResult<Value> {
    Client::sends(crowd.server, command).reply()
}

/// Waits until the first waiter of a lock has waited for so many ms.
fn until_waited(crowd: &mut Crowd<'_>, lock: &str, ms: i64) {
    wait_until("it has waited", || {
        let waiters = list(&crowd.inspect(lock)["waiters"]);
        waiters.first().is_some_and(|waiter| int(&map(waiter)["waited"]) >= ms)
    });
}

#[test]
fn the_lock_that_was_waited_for_longest_is_first() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    assert_eq!(rows(&mut crowd.con), [""; 0]);
    for (lock, ms) in [("short", 5), ("long", 300), ("middle", 80)] {
        crowd.ok(&format!("WLOCK {lock} h 100000"));
        let mut waiter = crowd.waits(&format!("WLOCK {lock} w 100000 BLOCK 0"));
        until_waited(&mut crowd, lock, ms);
        assert!(rows(&mut crowd.con).iter().all(|row| !row.starts_with(lock)), "it still waits");
        crowd.gives(&format!("UNLOCK {lock} h"), 1);
        waiter.granted();
    }
    assert_eq!(rows(&mut crowd.con), ["long 0 1 0 0", "middle 0 1 0 0", "short 0 1 0 0"]);
    let first = map(&list(crowd.run("HOTLOCKS"))[0]);
    assert!((300..60_000).contains(&int(&first["total"])), "{first:?}");
    assert_eq!(first["total"], first["max"]);
    // RESP2 has a flat array in the order of the contract, RESP3 a map.
    let names = ["key", "db", "waits", "total", "max", "timeouts", "deadlocks"];
    let flat = list(&list(crowd.run("HOTLOCKS COUNT 1"))[0]);
    let flat: Vec<String> = flat.iter().step_by(2).map(text).collect();
    assert_eq!(flat, names);
    let rows = list(call!(server.connection_resp3(), "RWLOCK.HOTLOCKS", "count", 2));
    let [Value::Map(pairs), Value::Map(_)] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(pairs.iter().map(|(name, _)| text(name)).collect::<Vec<_>>(), names);
}

#[test]
fn ten_locks_are_listed_without_count() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let locks: Vec<String> = (0..12).map(|number| format!("lock{number}")).collect();
    crowd.ok(&format!("MLOCK h 100000 WRITE 12 {}", locks.join(" ")));
    let mut client = crowd.client();
    client.send(&format!("MLOCK w 100000 WRITE 12 {} BLOCK 1", locks.join(" ")));
    assert!(client.refused() > 0);
    for (options, listed) in
        [("", 10), (" COUNT 1", 1), (" COUNT 11", 11), (" COUNT 9223372036854775807", 12)]
    {
        assert_eq!(list(crowd.run(&format!("HOTLOCKS{options}"))).len(), listed, "{options}");
    }
}

#[test]
fn a_wait_counts_however_it_ends_and_nothing_else_does() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 600000");
    // Granted and refused at once.
    assert!(crowd.refused("WLOCK k w 1000") > 0);
    crowd.plain("MULTI");
    crowd.plain("RWLOCK.WLOCK k w 1000 BLOCK 0");
    crowd.plain("EXEC");
    crowd.ok("WLOCK k h 600000 BLOCK 0");
    crowd.gives("UNLOCK k h", 0);
    crowd.plain("CONFIG SET rwlock.max-waiters 1");
    let mut waiter = crowd.waits("RLOCK k a 600000 BLOCK 0");
    assert_error(fails(&crowd, "WLOCK k b 1000 BLOCK 0"), "ERR too many waiters");
    crowd.plain("CONFIG SET rwlock.max-waiters 0");
    assert_eq!(rows(&mut crowd.con), [""; 0]);

    // CLIENT UNBLOCK, as INFO counts it.
    crowd.plain(&format!("CLIENT UNBLOCK {}", waiter.id));
    waiter.refused();
    assert_eq!(rows(&mut crowd.con), ["k 0 1 1 0"]);
    // With ERROR it is an error of the server's.
    let mut waiter = crowd.waits("WLOCK k a 600000 BLOCK 0");
    crowd.plain(&format!("CLIENT UNBLOCK {} ERROR", waiter.id));
    waiter.fails("UNBLOCKED");
    assert_eq!(rows(&mut crowd.con), ["k 0 2 1 0"]);
    // The time is up.
    let mut client = crowd.client();
    client.send("WLOCK k a 600000 BLOCK 5");
    client.refused();
    assert_eq!(rows(&mut crowd.con), ["k 0 3 2 0"]);
    // The connection closes.
    drop(crowd.waits("WLOCK k a 600000 BLOCK 0"));
    wait_until("it has left", || rows(&mut crowd.con) == ["k 0 4 2 0"]);
    // A grant.
    let mut waiter = crowd.waits("WLOCK k a 600000 BLOCK 0");
    crowd.gives("UNLOCK k h", 1);
    waiter.granted();
    assert_eq!(rows(&mut crowd.con), ["k 0 5 2 0"]);
    // An error: the key is no lock any more.
    let mut waiter = crowd.waits("WLOCK k b 600000 BLOCK 0");
    crowd.plain("SET k text");
    waiter.fails("WRONGTYPE");
    assert_eq!(rows(&mut crowd.con), ["k 0 6 2 0"]);
    crowd.plain("DEL k");
    // INFO counted the same.
    let info = server.info("rwlock");
    assert_eq!((&info["rwlock_waited"][..], &info["rwlock_timeouts"][..]), ("6", "2"));
}

#[test]
fn deadlocks_count_also_where_nobody_waited() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // It would wait for itself, or for another upgrade: it never waits.
    crowd.ok("RLOCK own me 600000");
    assert_error(fails(&crowd, "WLOCK own me 1000 BLOCK 0"), "DEADLOCK");
    crowd.ok("RLOCK up a 600000");
    crowd.ok("RLOCK up b 600000");
    let upgrade = crowd.waits("UPGRADE up a 600000 BLOCK 0");
    assert_error(fails(&crowd, "UPGRADE up b 600000 BLOCK 0"), "DEADLOCK");
    // A circle that the request would close.
    crowd.ok("WLOCK fork ann 600000");
    crowd.ok("WLOCK knife bob 600000");
    let mut waiter = crowd.waits("WLOCK fork bob 600000 BLOCK 0");
    assert_error(fails(&crowd, "WLOCK knife ann 600000 BLOCK 0"), "DEADLOCK");
    let expected = ["knife 0 0 0 1", "own 0 0 0 1", "up 0 0 0 1"];
    assert_eq!(sorted(rows(&mut crowd.con)), expected);
    crowd.gives("UNLOCK fork ann", 1);
    waiter.granted();
    drop(upgrade);
    // A circle among those that wait: the search is off until they do.
    wait_until("the upgrade has left", || crowd.queue("up").is_empty());
    crowd.ok("HOTLOCKS RESET");
    crowd.plain("CONFIG SET rwlock.deadlock-detection no");
    crowd.ok("WLOCK spoon ann 600000");
    let _first = crowd.waits("WLOCK spoon bob 600000 BLOCK 0");
    let mut second = crowd.waits("WLOCK knife ann 600000 BLOCK 0");
    crowd.plain("CONFIG SET rwlock.deadlock-detection yes");
    second.fails("DEADLOCK");
    assert_eq!(rows(&mut crowd.con), ["knife 0 1 0 1"]);
}

#[test]
fn a_waiter_of_several_locks_counts_for_each() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK b h 600000");
    let mut waiter = Client::waits(&server, "MLOCK me 600000 READ 1 a WRITE 2 b c BLOCK 0");
    until_waited(&mut crowd, "a", 5);
    crowd.gives("UNLOCK b h", 1);
    assert_ok(waiter.reply());
    assert_eq!(sorted(rows(&mut crowd.con)), ["a 0 1 0 0", "b 0 1 0 0", "c 0 1 0 0"]);
    let mut client = crowd.client();
    client.send("MLOCK you 600000 WRITE 2 a c BLOCK 2");
    client.refused();
    let expected = ["a 0 2 1 0", "b 0 1 0 0", "c 0 2 1 0"];
    assert_eq!(sorted(rows(&mut crowd.con)), expected);
    crowd.ok("RLOCK d you 600000");
    assert_error(fails(&crowd, "MLOCK you 1000 WRITE 2 d a BLOCK 0"), "DEADLOCK");
    let expected = ["a 0 2 1 1", "b 0 1 0 0", "c 0 2 1 0", "d 0 0 0 1"];
    assert_eq!(sorted(rows(&mut crowd.con)), expected);
}

#[test]
fn the_same_name_in_two_databases_is_two_locks() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for db in ["0", "3"] {
        crowd.plain(&format!("SELECT {db}"));
        crowd.ok("WLOCK k h 600000");
        let mut client = crowd.client();
        assert_ok(call!(client.con, "SELECT", db));
        client.send("WLOCK k w 600000 BLOCK 3");
        client.refused();
    }
    // In whichever database the client is.
    crowd.plain("SELECT 7");
    assert_eq!(sorted(rows(&mut crowd.con)), ["k 0 1 1 0", "k 3 1 1 0"]);
}

#[test]
fn reset_forgets_what_is_over() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("HOTLOCKS RESET");
    crowd.ok("WLOCK k h 600000");
    let mut client = crowd.client();
    client.send("WLOCK k w 600000 BLOCK 1");
    client.refused();
    let mut waiter = crowd.waits("WLOCK k w 600000 BLOCK 0");
    until_waited(&mut crowd, "k", 50);
    assert_eq!(rows(&mut crowd.con), ["k 0 1 1 0"]);
    crowd.ok("hotlocks reset");
    assert_eq!(rows(&mut crowd.con), [""; 0]);
    crowd.gives("UNLOCK k h", 1);
    waiter.granted();
    // The whole wait counts, because it was over after the reset.
    assert_eq!(rows(&mut crowd.con), ["k 0 1 0 0"]);
    assert!(int(&map(&list(crowd.run("HOTLOCKS"))[0])["max"]) >= 50);
    // FLUSHALL and CONFIG RESETSTAT forget nothing.
    crowd.plain("FLUSHALL");
    crowd.plain("CONFIG RESETSTAT");
    assert_eq!(rows(&mut crowd.con), ["k 0 1 0 0"]);
}

#[test]
fn wrong_words_are_refused() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 600000");
    let mut client = crowd.client();
    client.send("WLOCK k w 600000 BLOCK 1");
    client.refused();
    for (wrong, error) in [
        ("COUNT", "ERR syntax error near 'COUNT'"),
        ("COUNT 0", "ERR value is out of range, must be positive"),
        ("COUNT -1", "ERR value is out of range, must be positive"),
        ("COUNT x", "ERR value is not an integer or out of range"),
        ("COUNT 9223372036854775808", "ERR value is not an integer or out of range"),
        ("COUNT 1 2", "ERR syntax error near '2'"),
        ("COUNT 1 RESET", "ERR syntax error near 'RESET'"),
        ("RESET now", "ERR syntax error near 'now'"),
        ("RESET COUNT 1", "ERR syntax error near 'COUNT'"),
        ("5", "ERR syntax error near '5'"),
        ("LIMIT 1", "ERR syntax error near 'LIMIT'"),
    ] {
        let words = std::iter::once("RWLOCK.HOTLOCKS").chain(wrong.split(' '));
        assert_eq!(assert_error(send(&mut crowd.con, words), "ERR"), error, "{wrong}");
    }
    assert_eq!(rows(&mut crowd.con), ["k 0 1 1 0"]);
}

#[test]
fn only_locks_that_the_user_may_read_are_listed() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let long = format!("app:{}", "x".repeat(2_000));
    let locks = format!("app:1 other app:2 {long}");
    crowd.ok(&format!("MLOCK h 600000 WRITE 4 {locks}"));
    let mut client = crowd.client();
    client.send(&format!("MLOCK w 600000 WRITE 4 {locks} BLOCK 3"));
    client.refused();
    let cut = format!("{}... (980 more bytes)", &long[..1_024]);
    let count = "return #redis.call('RWLOCK.HOTLOCKS')";
    for (rules, expected) in [
        (&["~app:*"][..], vec!["app:1", "app:2", &cut]),
        (&["%R~app:*"], vec!["app:1", "app:2", &cut]),
        (&["%W~app:*"], vec![]),
        (&["~*"], vec!["app:1", "app:2", "other", &cut]),
        (&["resetkeys"], vec![]),
        (&["~app:1", "~o*"], vec!["app:1", "other"]),
        // Of a long name only the beginning is kept, so its end cannot be compared.
        (&["~*x"], vec![]),
        (&[&format!("~{long}")], vec![]),
        (&["~*", "resetkeys", "~app:2"], vec!["app:2"]),
    ] {
        let rules: Vec<_> = ["+rwlock.hotlocks", "+eval"].iter().chain(rules).collect();
        let mut con = user(&server, "ann", &rules);
        let seen = list(call!(con, "RWLOCK.HOTLOCKS"));
        let mut seen: Vec<_> = seen.iter().map(|row| text(&map(row)["key"])).collect();
        seen.sort();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(seen, expected, "{rules:?}");
        assert_eq!(int(call!(con, "EVAL", count, 0)), expected.len() as i64, "{rules:?}");
        // What is hidden does not count.
        let first = list(call!(con, "RWLOCK.HOTLOCKS", "COUNT", 1));
        assert_eq!(first.len(), expected.len().min(1), "{rules:?}");
    }
}

#[test]
fn reset_needs_the_right_to_what_is_dangerous() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 600000");
    let mut client = crowd.client();
    client.send("WLOCK k w 600000 BLOCK 1");
    client.refused();
    let script = "return redis.call('RWLOCK.HOTLOCKS', 'RESET')";
    let commands = ["~app:*", "+rwlock.hotlocks", "+eval", "+multi", "+exec"];
    let mut con = user(&server, "ann", &commands);
    let error = assert_error(call!(con, "RWLOCK.HOTLOCKS", "RESET"), "NOPERM");
    assert!(error.contains("'rwlock.hotlocks|reset'"), "{error}");
    assert!(error.contains("'rwlock.forceunlock'"), "{error}");
    assert!(call!(con, "EVAL", script, 0).is_err());
    assert_ok(call!(con, "MULTI"));
    assert_eq!(text(call!(con, "RWLOCK.HOTLOCKS", "RESET")), "QUEUED");
    assert!(matches!(list(call!(con, "EXEC"))[..], [Value::ServerError(_)]));
    // Also with a category, where the server has them.
    if Categories::of(&server) != Categories::None {
        let mut con = user(&server, "bob", &["~*", "+@all", "-@dangerous"]);
        assert_error(call!(con, "RWLOCK.HOTLOCKS", "RESET"), "NOPERM");
        let mut con = user(&server, "bob", &["~*", "+@read"]);
        assert_error(call!(con, "RWLOCK.HOTLOCKS", "RESET"), "NOPERM");
    }
    assert_eq!(rows(&mut crowd.con), ["k 0 1 1 0"]);
    // The keys do not matter.
    for keys in ["~app:*", "~*", "resetkeys"] {
        let rules = [keys, "+rwlock.hotlocks", "+rwlock.forceunlock", "+eval"];
        let mut con = user(&server, "cid", &rules);
        assert_ok(call!(con, "RWLOCK.HOTLOCKS", "RESET"));
        assert_eq!(rows(&mut crowd.con), [""; 0]);
        client.send("WLOCK k w 600000 BLOCK 1");
        client.refused();
        assert_ok(call!(con, "EVAL", script, 0));
        assert_eq!(rows(&mut crowd.con), [""; 0]);
    }
}

#[test]
fn names_may_be_long_and_have_any_bytes() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let whole = vec![b'\xff'; 1_024];
    let long = [&[b'\0'; 1_500][..], b"one"].concat();
    let twin = [&[b'\0'; 1_500][..], b"two"].concat();
    let locks = [b"\r\n\xfe\0".to_vec(), Vec::new(), whole, long.clone(), twin];
    for (number, name) in locks.iter().enumerate() {
        assert_ok(call!(crowd.con, "RWLOCK.WLOCK", name, "h", 600_000));
        for _ in 0..=number {
            let mut con = server.connection();
            int(call!(con, "RWLOCK.WLOCK", name, "w", 600_000, "BLOCK", 1));
        }
    }
    let rows = list(call!(crowd.con, "RWLOCK.HOTLOCKS"));
    let mut seen: Vec<(i64, Vec<u8>)> =
        rows.iter().map(|row| (int(&map(row)["waits"]), bytes(&map(row)["key"]))).collect();
    seen.sort();
    let cut = [&long[..1_024], b"... (479 more bytes)"].concat();
    let expected = [&locks[0], &locks[1], &locks[2], &cut, &cut];
    let expected: Vec<_> =
        expected.iter().enumerate().map(|(at, name)| (at as i64 + 1, name.to_vec())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_thousand_locks_are_kept() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut client = crowd.client();
    // A lock that is waited for longer than all those that follow together.
    crowd.ok("WLOCK hot h 600000");
    let mut waiter = crowd.waits("WLOCK hot w 600000 BLOCK 0");
    until_waited(&mut crowd, "hot", 200);
    crowd.gives("UNLOCK hot h", 1);
    waiter.granted();
    for round in 0..3 {
        let locks: Vec<String> = (0..1_000).map(|at| format!("lock{round}:{at}")).collect();
        crowd.ok(&format!("WLOCK {} h 600000", locks[0]));
        let locks = locks.join(" ");
        client.send(&format!("MLOCK w 600000 WRITE 1000 {locks} BLOCK 2"));
        client.refused();
        let rows = list(crowd.run("HOTLOCKS COUNT 5000"));
        assert_eq!(rows.len(), 1_000);
        rows_of(&rows);
        let first = map(&rows[0]);
        assert_eq!((text(&first["key"]), int(&first["waits"])), ("hot".to_owned(), 1));
    }
}

#[test]
fn a_replica_has_its_own_list_and_may_reset_it() {
    let primary = Server::builder().start();
    let mut crowd = Crowd::on(&primary);
    crowd.ok("WLOCK k h 600000");
    let mut client = crowd.client();
    client.send("WLOCK k w 600000 BLOCK 1");
    client.refused();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = replica.connection();
    assert_eq!(rows(&mut con), [""; 0]);
    assert_ok(call!(con, "RWLOCK.HOTLOCKS", "RESET"));
    assert_eq!(rows(&mut crowd.con), ["k 0 1 1 0"]);
    // A command that comes over the link is nobody's, so no rule applies.
    assert_ok(call!(crowd.con, "DEBUG", "REPLICATE", "RWLOCK.HOTLOCKS", "RESET"));
    assert_ok(call!(crowd.con, "SET", "after", 1));
    wait_until("the replica has gone on", || int(call!(con, "EXISTS", "after")) == 1);
    let calls = &replica.info("commandstats")["cmdstat_rwlock.hotlocks"];
    assert!(calls.contains("failed_calls=0"), "{calls}");
    // When the server becomes a replica, its waiters leave. Their waits are over.
    let mut waiter = crowd.waits("WLOCK k w 600000 BLOCK 0");
    let port = replica.port().to_string();
    assert_ok(call!(con, "REPLICAOF", "NO", "ONE"));
    assert_ok(call!(crowd.con, "REPLICAOF", "127.0.0.1", port));
    waiter.fails("UNBLOCKED");
    assert_eq!(rows(&mut crowd.con), ["k 0 2 1 0"]);
}

#[test]
fn without_acl_nobody_may_reset() {
    let server = Server::builder().config("rename-command", "ACL hidden").start();
    let mut con = server.connection();
    assert_error(call!(con, "RWLOCK.HOTLOCKS", "RESET"), "NOPERM");
    assert_error(call!(con, "RWLOCK.LOG", "RESET"), "NOPERM");
    assert_eq!(list(call!(con, "RWLOCK.HOTLOCKS")), []);
}
