//! Another module that does something to a lock in the middle of a key event.

use std::time::Duration;

use redis::Cmd;

use support::{assert_ok, call, Client, Crowd, Server};

/// Sends several commands in one packet, so that the server runs them in one go.
fn in_one_packet(client: &mut Client, lines: &[&str]) {
    let mut packet = Vec::new();
    for line in lines {
        let mut cmd = Cmd::new();
        for word in line.split(' ') {
            cmd.arg(word);
        }
        packet.extend(cmd.get_packed_command());
    }
    // Without an answer the test is to fail soon.
    client.con.set_read_timeout(Some(Duration::from_secs(10))).expect("set a time limit");
    client.con.send_packed_command(&packet).expect("send commands");
}

#[test]
fn a_request_that_frees_its_lock_by_an_event_of_its_own_is_answered() {
    let server = Server::builder()
        .config("notify-keyspace-events", "Kd")
        .meddler("rwlock.expire", "RWLOCK.FORCEUNLOCK k")
        .start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("DEBUG SET-ACTIVE-EXPIRE 0");
    crowd.ok("RLOCK k a 50");
    crowd.ok("RLOCK k b 60000");
    let mut client = crowd.client();
    // It meets a lapsed hold, and has to wait for the other.
    in_one_packet(&mut client, &["DEBUG SLEEP 0.2", "RWLOCK.WLOCK k w 3000 BLOCK 1000"]);
    assert_ok(client.con.recv_response());
    client.granted();
    crowd.gives("UNLOCK k w", 1);
    // Nobody is blocked any more.
    assert_ok(call!(crowd.con, "MODULE", "UNLOAD", "rwlock"));
}

#[test]
fn a_command_in_an_event_that_comes_in_the_middle_of_another_is_an_error() {
    let server = Server::builder().meddler("expired", "RWLOCK.FORCEUNLOCK k").start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("DEBUG SET-ACTIVE-EXPIRE 0");
    crowd.ok("RLOCK k a 50");
    crowd.ok("RLOCK k b 60000");
    let mut client = crowd.client();
    // The look at the lapsed hold makes the server remove its key, and tell of it.
    in_one_packet(&mut client, &["DEBUG SLEEP 0.2", "RWLOCK.WLOCK k w 3000 BLOCK 500"]);
    assert_ok(client.con.recv_response());
    client.refused();
    assert_eq!(crowd.holders("k"), "b read");
}

#[test]
fn another_module_gets_no_session() {
    for (line, free) in [("WLOCK k m 60000 SESSION", true), ("WLOCK k m 60000", false)] {
        let server = Server::builder().meddler("set", &format!("RWLOCK.{line}")).start();
        let mut crowd = Crowd::on(&server);
        assert_ok(call!(crowd.con, "SET", "any", "thing"));
        assert_eq!(crowd.holders("k").is_empty(), free, "{line}");
    }
}
