//! FENCE: a token belongs to one owner and one tenure, and no other gets it.

use redis::Value;

use crate::fencing::tokens::{fenced, micros, token};
use support::observe::run;
use support::{assert_ok, call, int, text, Server};

#[test]
fn who_takes_the_lock_after_a_lapse_in_a_pause_gets_a_token_of_its_own() {
    for next in ["a", "b"] {
        let server = Server::builder().start();
        let mut con = server.connection();
        let mut client = server.connection();
        let first = fenced(&mut con, "WLOCK k a 100 FENCE");
        assert_ok(run(&mut con, "CLIENT PAUSE 100000 WRITE"));
        // It lapses, and the next request is there when the pause ends.
        let mut command = redis::cmd("RWLOCK.WLOCK");
        command.arg("k").arg(next).arg(60_000);
        client.send_packed_command(&command.get_packed_command()).expect("send");
        support::wait_until(
            "the lease is over",
            || matches!(run(&mut con, "PTTL k"), Ok(Value::Int(left)) if left < 0),
        );
        assert_ok(run(&mut con, "CLIENT UNPAUSE"));
        assert_ok(client.recv_response());
        let second = fenced(&mut con, &format!("WLOCK k {next} 60000 FENCE"));
        assert!(second > first, "{next}");
        assert_eq!(fenced(&mut con, &format!("WLOCK k {next} 60000 FENCE")), second);
    }
}

#[test]
fn a_writer_that_a_script_put_in_gets_a_token_of_its_own() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    let swap = "redis.call('HDEL', KEYS[1], ARGV[1])
        return redis.call('HSET', KEYS[1], ARGV[2], 1)";
    assert_eq!(int(call!(con, "EVAL", swap, 1, "k", "a:write", "b:write")), 1);
    let second = fenced(&mut con, "WLOCK k b 60000 FENCE");
    assert!(second > first);
    assert_eq!(fenced(&mut con, "WLOCK k b 60000 FENCE"), second);
}

#[test]
fn a_tenure_that_a_script_began_after_a_lapse_is_another_one() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // Nothing has time to look.
    let mut pipe = redis::pipe();
    pipe.cmd("RWLOCK.WLOCK").arg("k").arg("a").arg(5).arg("FENCE");
    pipe.cmd("DEBUG").arg("SLEEP").arg("0.02");
    pipe.cmd("HSET").arg("k").arg("mode").arg("write").arg("a:write").arg("1");
    pipe.cmd("PEXPIRE").arg("k").arg("60000");
    pipe.cmd("RWLOCK.WLOCK").arg("k").arg("a").arg(60_000).arg("FENCE");
    let replies: Vec<Value> = pipe.query(&mut con).expect("all replies");
    assert!(token(Ok(replies[4].clone())) > token(Ok(replies[0].clone())));
}

#[test]
fn a_request_that_meets_a_lapse_begins_a_tenure_whose_token_is_repeated() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut pipe = redis::pipe();
    pipe.cmd("RWLOCK.WLOCK").arg("k").arg("a").arg(5).arg("FENCE");
    pipe.cmd("DEBUG").arg("SLEEP").arg("0.02");
    pipe.cmd("RWLOCK.WLOCK").arg("k").arg("b").arg(60_000).arg("FENCE");
    pipe.cmd("RWLOCK.WLOCK").arg("k").arg("b").arg(60_000).arg("FENCE");
    let replies: Vec<Value> = pipe.query(&mut con).expect("all replies");
    let tokens = [0, 2, 3].map(|at: usize| token(Ok(replies[at].clone())));
    assert!(tokens[1] > tokens[0]);
    assert_eq!(tokens[2], tokens[1]);
}

#[test]
fn a_lost_key_and_a_clock_that_is_behind_do_not_make_a_tenure_s_token_smaller() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // As after the clock was set back by an hour.
    let ahead = micros(&mut con) + 3_600_000_000;
    assert_ok(call!(con, "SET", "{k}:rwlock_fence", ahead));
    let mut last = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert_eq!(last, ahead + 1);
    for loss in ["DEL {k}:rwlock_fence", "SET {k}:rwlock_fence 1"] {
        run(&mut con, loss).expect(loss);
        let next = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(next > last, "{loss}");
        assert_eq!(text(call!(con, "GET", "{k}:rwlock_fence")), next.to_string());
        last = next;
    }
}
