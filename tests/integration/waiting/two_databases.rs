//! Owners that wait for locks in two databases: a lock's keys are looked at in
//! the lock's own.

use support::{assert_error, assert_ok, call, wait_until, Client, Crowd, Server};

fn select(crowd: &mut Crowd<'_>, db: i64) {
    assert_ok(call!(crowd.con, "SELECT", db));
}

/// Runs a command of the module that is answered `OK`, in this database.
fn ok_in(crowd: &mut Crowd<'_>, db: i64, command: &str) {
    select(crowd, db);
    crowd.ok(command);
}

/// A new client that sends this and waits now, in this database.
fn waits_in(crowd: &mut Crowd<'_>, db: i64, command: &str) -> Client {
    select(crowd, db);
    let mut client = crowd.client();
    assert_ok(call!(client.con, "SELECT", db));
    client.send(command);
    let lock = command.split(' ').nth(1).expect("a command with a key");
    wait_until(command, || crowd.waiting(lock).contains(&client.id));
    client
}

#[test]
fn a_circle_is_found_past_a_wait_in_another_database() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    ok_in(&mut crowd, 1, "WLOCK m y 100000");
    ok_in(&mut crowd, 0, "RLOCK k z 100000");
    ok_in(&mut crowd, 0, "WLOCK n x 100000");
    let _m = waits_in(&mut crowd, 1, "WLOCK m x 100000 BLOCK 0");
    let mut z = waits_in(&mut crowd, 0, "WLOCK n z 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK k x 100000 BLOCK 3000"), "DEADLOCK");
    crowd.gives("UNLOCK n x", 1);
    z.granted();
}

#[test]
fn a_hold_in_another_database_closes_no_circle() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    ok_in(&mut crowd, 1, "WLOCK m y 100000");
    // A hold of z on k in the other database; a field that is no hold in this.
    ok_in(&mut crowd, 1, "RLOCK k z 100000");
    ok_in(&mut crowd, 0, "RLOCK k h 100000");
    crowd.plain("HSET k z 1");
    ok_in(&mut crowd, 0, "WLOCK n x 100000");
    let _m = waits_in(&mut crowd, 1, "WLOCK m x 100000 BLOCK 0");
    let mut z = waits_in(&mut crowd, 0, "WLOCK n z 100000 BLOCK 0");
    assert!(crowd.refused("WLOCK k x 100000 BLOCK 500") > 0);
    crowd.gives("UNLOCK n x", 1);
    z.granted();
}

#[test]
fn a_client_stays_in_its_database_whatever_is_looked_at() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    ok_in(&mut crowd, 1, "WLOCK m y 100000");
    ok_in(&mut crowd, 0, "WLOCK n x 100000");
    let mut y = waits_in(&mut crowd, 0, "WLOCK n y 100000 BLOCK 0");
    // The search for circles goes through both databases, and finds this one.
    let mut client = crowd.client();
    assert_ok(call!(client.con, "SELECT", 1));
    client.send("WLOCK m x 100000 BLOCK 0");
    client.fails("DEADLOCK");
    // A waiter whose time is up in another one.
    let mut late = waits_in(&mut crowd, 1, "WLOCK m late 100000 BLOCK 500");
    assert!(late.refused() > 0);
    for (client, db) in [(&mut client, 1), (&mut late, 1)] {
        assert_ok(call!(client.con, "SET", "here", db));
        assert_ok(call!(crowd.con, "SELECT", db));
        assert_eq!(crowd.plain("GETDEL here"), redis::Value::BulkString(db.to_string().into()));
    }
    select(&mut crowd, 0);
    crowd.gives("UNLOCK n x", 1);
    y.granted();
}

#[test]
fn a_waiter_whose_owner_holds_the_lock_that_is_swapped_in_is_served() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    ok_in(&mut crowd, 1, "RLOCK k b 100000");
    ok_in(&mut crowd, 1, "RLOCK k c 100000");
    ok_in(&mut crowd, 0, "WLOCK k h 100000");
    let mut writer = waits_in(&mut crowd, 0, "WLOCK k a 100000 BLOCK 0");
    let mut reader = waits_in(&mut crowd, 0, "RLOCK k b 100000 BLOCK 0");
    // The writer stands ahead of it, and waits for the readers that are in now.
    crowd.plain("SWAPDB 0 1");
    reader.granted();
    assert_eq!(crowd.queue("k"), "a write");
    crowd.gives("UNLOCK k b ALL", 0);
    crowd.gives("UNLOCK k c", 1);
    writer.granted();
}
