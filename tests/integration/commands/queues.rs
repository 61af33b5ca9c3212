//! QUEUES, and the waiters that INSPECT shows.

use support::{assert_error, call, int, list, map, text, wait_until, Client, Crowd, Server};

/// The rows of QUEUES: `(key, waiters)`.
fn queues(crowd: &mut Crowd<'_>, options: &str) -> Vec<(String, i64)> {
    let reply = crowd.run(format!("QUEUES {options}").trim_end());
    list(reply)
        .iter()
        .map(|row| {
            let row = map(row);
            assert_eq!(row.keys().collect::<Vec<_>>(), ["key", "oldest", "waiters"]);
            assert!(int(&row["oldest"]) >= 0);
            (text(&row["key"]), int(&row["waiters"]))
        })
        .collect()
}

#[test]
fn queues_lists_the_longest_first() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    assert_eq!(queues(&mut crowd, ""), []);
    let mut clients: Vec<Client> = Vec::new();
    for (lock, waiters) in [("one", 1), ("three", 3), ("two", 2), ("none", 0)] {
        crowd.ok(&format!("RLOCK {lock} h 100000"));
        for waiter in 0..waiters {
            clients.push(crowd.waits(&format!("WLOCK {lock} w{waiter} 100000 BLOCK 0")));
        }
    }
    let all = [("three".into(), 3), ("two".into(), 2), ("one".into(), 1)];
    assert_eq!(queues(&mut crowd, ""), all);
    assert_eq!(queues(&mut crowd, "COUNT 2"), all[..2]);
    assert_eq!(queues(&mut crowd, "count 100"), all);
    for (wrong, error) in [
        ("COUNT", "ERR"),
        ("COUNT 0", "ERR value is out of range, must be positive"),
        ("COUNT x", "ERR value is not an integer or out of range"),
        ("COUNT 1 2", "ERR syntax error"),
        ("LIMIT 1", "ERR syntax error"),
    ] {
        assert_error(crowd.run(&format!("QUEUES {wrong}")), error);
    }
    // Only this database's.
    crowd.plain("SELECT 1");
    assert_eq!(queues(&mut crowd, ""), []);
    crowd.plain("SELECT 0");
    // Served waiters are off the list, those who leave too.
    crowd.gives("UNLOCK one h", 1);
    clients[0].granted();
    clients.truncate(4);
    wait_until("two has no waiters", || queues(&mut crowd, "") == [("three".to_owned(), 3)]);
}

#[test]
fn queues_tells_how_long_the_first_has_waited() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let oldest = |crowd: &mut Crowd<'_>| int(&map(&list(crowd.run("QUEUES"))[0])["oldest"]);
    let first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    wait_until("some time has passed", || oldest(&mut crowd) >= 100);
    // Another reader that is ahead by policy does not matter, who came first does.
    let _second = crowd.waits("WLOCK k b 100000 BLOCK 0");
    assert!(oldest(&mut crowd) >= 100);
    drop(first);
    wait_until("the second is the oldest", || crowd.queue("k") == "b write");
    assert!(oldest(&mut crowd) < 10_000);
}

#[test]
fn queues_speaks_resp3() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let _waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let mut con = server.connection_resp3();
    let rows = list(call!(con, "RWLOCK.QUEUES"));
    assert!(matches!(rows[..], [redis::Value::Map(_)]), "{rows:?}");
    let seen = map(call!(con, "RWLOCK.INSPECT", "k"));
    assert!(matches!(list(&seen["waiters"])[..], [redis::Value::Map(_)]), "{seen:?}");
}

#[test]
fn inspect_tells_all_about_each_waiter() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k u 100000");
    crowd.ok("RLOCK k h 100000");
    let writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let reader = crowd.waits("RLOCK k r 100000 BLOCK 60000");
    let upgrade = crowd.waits("UPGRADE k u 100000 BLOCK 50000");
    wait_until("some time has passed", || {
        let waiters = list(&crowd.inspect("k")["waiters"]);
        waiters.iter().all(|waiter| int(&map(waiter)["waited"]) > 20)
    });
    let seen = crowd.inspect("k");
    assert_eq!(int(&seen["waiters_total"]), 3);
    let expected = [
        ("u", "upgrade", 50_000, upgrade.id),
        ("w", "write", 0, writer.id),
        ("r", "read", 60_000, reader.id),
    ];
    let waiters = list(&seen["waiters"]);
    assert_eq!(waiters.len(), 3);
    for (waiter, (owner, kind, timeout, client)) in waiters.iter().zip(expected) {
        let waiter = map(waiter);
        let fields: Vec<&str> = waiter.keys().map(String::as_str).collect();
        assert_eq!(fields, ["client", "kind", "locks", "name", "owner", "timeout", "waited"]);
        assert_eq!(text(&waiter["owner"]), owner);
        assert_eq!(text(&waiter["kind"]), kind);
        assert_eq!(int(&waiter["client"]), client);
        let (left, waited) = (int(&waiter["timeout"]), int(&waiter["waited"]));
        // Both are of the same instant.
        let all = if timeout == 0 { left } else { left + waited };
        assert!((timeout - 1..=timeout + 1).contains(&all), "{left} left after {waited}");
    }
}

#[test]
fn inspect_lists_as_many_waiters_as_asked() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let _clients: Vec<Client> = (0..103)
        .map(|at| {
            let mut client = crowd.client();
            client.send(&format!("WLOCK k w{at} 100000 BLOCK 0"));
            client
        })
        .collect();
    wait_until("all wait", || int(&crowd.inspect("k")["waiters_total"]) == 103);
    for (options, listed) in [("", 100), (" COUNT 1", 1), (" COUNT 102", 102), (" COUNT 500", 103)]
    {
        let seen = map(crowd.run(&format!("INSPECT k{options}")));
        assert_eq!(list(&seen["waiters"]).len(), listed, "{options}");
        assert_eq!(int(&seen["waiters_total"]), 103);
    }
}

#[test]
fn looking_changes_nothing() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let _waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let mut other = server.connection();
    call!(crowd.con, "WATCH", "k").expect("watch");
    for _ in 0..3 {
        call!(other, "RWLOCK.INSPECT", "k").expect("inspect");
        call!(other, "RWLOCK.QUEUES").expect("queues");
        call!(other, "RWLOCK.LIST", 0).expect("list");
    }
    // Nor does one more who waits.
    let _second = Crowd::on(&server).waits("RLOCK k b 100000 BLOCK 0");
    crowd.plain("MULTI");
    crowd.plain("PING");
    assert_eq!(list(crowd.plain("EXEC")).len(), 1);
}
