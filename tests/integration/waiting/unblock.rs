//! CLIENT UNBLOCK.

use support::{call, int, wait_until, Crowd, Server};

#[test]
fn unblock_answers_as_if_the_time_were_up() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 60000");
    for request in ["WLOCK k a 1000 BLOCK 0", "RLOCK k a 1000 BLOCK 50000"] {
        for words in [&["UNBLOCK"][..], &["UNBLOCK", "TIMEOUT"]] {
            let mut client = crowd.waits(request);
            let id = client.id.to_string();
            let mut command = redis::cmd("CLIENT");
            command.arg(words[0]).arg(&id).arg(&words[1..]);
            let unblocked: i64 = command.query(&mut crowd.con).expect("unblock");
            assert_eq!(unblocked, 1);
            let left = client.refused();
            assert!((1..=60_000).contains(&left), "{left}");
            crowd.nobody_waits();
            // Nobody to unblock any more.
            assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", &id)), 0);
            // The client goes on, and may wait again.
            client.send("WLOCK free a 1000");
            client.granted();
            client.send("WLOCK k a 1000 BLOCK 1");
            assert!(client.refused() > 0);
        }
    }
    crowd.plain("PERSIST k");
    let mut client = crowd.waits("RLOCK k a 1000 BLOCK 0");
    let id = client.id.to_string();
    assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", id, "TIMEOUT")), 1);
    assert_eq!(client.refused(), -1);
    assert_eq!(crowd.holders("k"), "h write");
}

#[test]
fn unblock_error_is_an_error() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 60000");
    crowd.ok("RLOCK k u 60000");
    for request in ["WLOCK k a 1000 BLOCK 0", "UPGRADE k u 1000 BLOCK 0"] {
        let mut client = crowd.waits(request);
        let mut behind = crowd.waits("RLOCK k b 100000 BLOCK 0");
        let id = client.id.to_string();
        assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", id, "ERROR")), 1);
        client.fails("UNBLOCKED");
        behind.granted();
        crowd.nobody_waits();
        assert_eq!(crowd.holders("k"), "b read, h read, u read");
        crowd.gives("UNLOCK k b", 0);
        client.send("RLOCK k a 1000 BLOCK 0");
        client.granted();
        crowd.gives("UNLOCK k a", 0);
    }
    assert_eq!(server.info("clients")["blocked_clients"], "0");
}

#[test]
fn those_behind_one_that_is_unblocked_are_served() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 100000");
    let mut writer = crowd.waits("WLOCK k w 1000 BLOCK 0");
    let mut readers = ["a", "b"].map(|name| crowd.waits(&format!("RLOCK k {name} 100000 BLOCK 0")));
    let mut second = crowd.waits("WLOCK k x 100000 BLOCK 0");
    let id = writer.id.to_string();
    assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", id)), 1);
    assert!(writer.refused() > 0);
    for reader in &mut readers {
        reader.granted();
    }
    assert_eq!(crowd.queue("k"), "x write");
    crowd.gives("UNLOCK k h", 0);
    crowd.gives("UNLOCK k a", 0);
    crowd.gives("UNLOCK k b", 1);
    second.granted();
}

/// UNLOCK and CLIENT UNBLOCK in one transaction: the waiter is granted and
/// unblocked in the same instant. Whatever it is told is true, and nothing is
/// left of it.
#[test]
fn who_is_granted_and_unblocked_at_once_is_told_the_truth() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for round in 0..20 {
        let (word, order) = (["TIMEOUT", "ERROR"][round % 2], round / 2 % 2);
        let lock = format!("k{round}");
        crowd.ok(&format!("WLOCK {lock} h 100000"));
        let mut client = crowd.waits(&format!("WLOCK {lock} a 100000 BLOCK 0"));
        let mut behind = crowd.waits(&format!("WLOCK {lock} b 100000 BLOCK 0"));
        let mut commands =
            [format!("RWLOCK.UNLOCK {lock} h"), format!("CLIENT UNBLOCK {} {word}", client.id)];
        commands.rotate_left(order);
        crowd.plain("MULTI");
        crowd.plain(&commands[0]);
        crowd.plain(&commands[1]);
        crowd.plain("EXEC");
        match client.reply() {
            Ok(redis::Value::Okay) => {
                wait_until("it holds", || crowd.holders(&lock) == "a write");
                crowd.gives(&format!("UNLOCK {lock} a"), 1);
            }
            // An error may also be a closed connection: Redis 7.0 leaves a
            // client without a reply then, and the module does not.
            Ok(redis::Value::Int(_)) | Err(_) => {}
            other => panic!("{other:?}"),
        }
        behind.granted();
        wait_until("the next one holds", || crowd.holders(&lock) == "b write");
        crowd.nobody_waits();
    }
    assert_eq!(server.info("clients")["blocked_clients"], "0");
}

/// A grant that its client was not told of is taken back before the client's next
/// command is looked at: what that is granted stays.
#[test]
fn what_is_taken_back_is_not_what_came_after() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for round in 0..20 {
        let lock = format!("k{round}");
        let request = format!("WLOCK {lock} w 100000");
        crowd.ok(&format!("WLOCK {lock} h 100000"));
        let mut client = crowd.waits(&format!("{request} BLOCK 0"));
        client.send(&format!("UNLOCK {lock} w"));
        client.send(&request);
        crowd.plain("MULTI");
        crowd.plain(&format!("RWLOCK.UNLOCK {lock} h"));
        crowd.plain(&format!("CLIENT UNBLOCK {} ERROR", client.id));
        crowd.plain("EXEC");
        let told = client.reply();
        // Before 7.2 the server has lost the reply, and the connection is closed.
        if told.as_ref().is_err_and(redis::RedisError::is_connection_dropped) {
            continue;
        }
        match (told, client.reply()) {
            (Ok(redis::Value::Okay), Ok(redis::Value::Int(1))) => {}
            (Err(_), Err(gone)) => assert!(gone.to_string().contains("NOTHELD"), "{gone}"),
            other => panic!("{other:?}"),
        }
        client.granted();
        wait_until("nothing is due", || server.info("rwlock")["rwlock_waiters"] == "0");
        assert_eq!(crowd.holders(&lock), "w write");
        crowd.gives(&format!("UNLOCK {lock} w"), 1);
    }
}
