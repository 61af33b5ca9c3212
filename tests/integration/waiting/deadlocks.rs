//! Owners that wait for each other.

use std::thread;

use redis::Value;
use support::{assert_error, assert_ok, call, error_text, text, wait_until, Client, Crowd, Server};

#[test]
fn the_one_who_closes_a_circle_is_told() {
    let server = Server::builder().start();
    for length in [2, 3, 10] {
        let mut crowd = Crowd::on(&server);
        for at in 0..length {
            crowd.ok(&format!("WLOCK {length}.{at} o{at}. 100000"));
        }
        let mut waiters: Vec<Client> = (0..length - 1)
            .map(|at| crowd.waits(&format!("WLOCK {length}.{} o{at}. 100000 BLOCK 0", at + 1)))
            .collect();
        let last = length - 1;
        let text =
            assert_error(crowd.run(&format!("WLOCK {length}.0 o{last}. 1000 BLOCK 0")), "DEADLOCK");
        // The circle, from the one who is told on.
        let mut at = 0;
        for owner in std::iter::once(last).chain(0..last) {
            let name = format!("o{owner}.");
            let found = text[at..].find(&name);
            at += found.unwrap_or_else(|| panic!("{name} is not where it should be in {text}"));
        }
        // Without waiting it is an ordinary refusal, and so are others' waits.
        assert!(crowd.refused(&format!("WLOCK {length}.0 o{last}. 1000")) > 0);
        let mut stranger = crowd.waits(&format!("WLOCK {length}.0 stranger 100000 BLOCK 0"));
        // The others go on: all get what they wait for.
        crowd.gives(&format!("UNLOCK {length}.{last} o{last}."), 1);
        for (at, waiter) in waiters.iter_mut().enumerate().rev() {
            waiter.granted();
            crowd.gives(&format!("UNLOCK {length}.{} o{at}.", at + 1), 1);
            crowd.gives(&format!("UNLOCK {length}.{at} o{at}."), 1);
        }
        stranger.granted();
        crowd.nobody_waits();
    }
}

#[test]
fn of_those_who_close_a_circle_together_exactly_one_is_told() {
    let server = Server::builder().start();
    for length in [2, 3, 10] {
        for round in 0..5 {
            let lock = |at: usize| format!("{length}.{round}.{}", at % length);
            let mut crowd = Crowd::on(&server);
            for at in 0..length {
                crowd.ok(&format!("WLOCK {} o{at} 100000", lock(at)));
            }
            let clients: Vec<Client> = (0..length).map(|_| crowd.client()).collect();
            let told = thread::scope(|scope| {
                let run = |(at, mut client): (usize, Client)| {
                    scope.spawn(move || {
                        client.send(&format!("WLOCK {} o{at} 100000 BLOCK 0", lock(at + 1)));
                        let told = match client.reply() {
                            Ok(Value::Okay) => {
                                client.send(&format!("UNLOCK {} o{at}", lock(at + 1)));
                                assert_eq!(client.refused(), 1);
                                false
                            }
                            Err(error) if error_text(&error).starts_with("DEADLOCK ") => true,
                            other => panic!("{other:?}"),
                        };
                        client.send(&format!("UNLOCK {} o{at}", lock(at)));
                        assert_eq!(client.refused(), 1);
                        told
                    })
                };
                let threads: Vec<_> = clients.into_iter().enumerate().map(run).collect();
                threads.into_iter().map(|t| t.join().expect("it ends")).collect::<Vec<_>>()
            });
            assert_eq!(told.iter().filter(|told| **told).count(), 1, "{told:?}");
            crowd.nobody_waits();
        }
    }
}

#[test]
fn readers_are_part_of_circles() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // Two readers of each other's lock, who both want to write.
    crowd.ok("RLOCK x a 100000");
    crowd.ok("RLOCK y b 100000");
    let mut a = crowd.waits("WLOCK y a 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK x b 1000 BLOCK 0"), "DEADLOCK");
    crowd.gives("UNLOCK y b", 1);
    a.granted();
    crowd.plain("FLUSHALL");

    // One of many readers.
    for reader in 0..100 {
        crowd.ok(&format!("RLOCK x r{reader} 100000"));
    }
    crowd.ok("WLOCK y w 100000");
    let mut reader = crowd.waits("RLOCK y r57 100000 BLOCK 0");
    let text = assert_error(crowd.run("WLOCK x w 1000 BLOCK 0"), "DEADLOCK");
    assert!(text.contains("r57") && text.contains('w') && !text.contains("r58"), "{text}");
    crowd.gives("UNLOCK y w", 1);
    reader.granted();
    crowd.plain("FLUSHALL");

    // A reader that waits only because a writer is ahead of it.
    crowd.ok("RLOCK x h 100000");
    crowd.ok("WLOCK y r 100000");
    let mut writer = crowd.waits("WLOCK x w 100000 BLOCK 0");
    let mut other = crowd.waits("WLOCK y w 100000 BLOCK 0");
    let text = assert_error(crowd.run("RLOCK x r 1000 BLOCK 0"), "DEADLOCK");
    assert!(text.contains('w') && text.contains('r'), "{text}");
    crowd.gives("UNLOCK y r", 1);
    other.granted();
    crowd.gives("UNLOCK x h", 1);
    writer.granted();
}

#[test]
fn upgrades_are_part_of_circles() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK x a 100000");
    crowd.ok("RLOCK x b 100000");
    crowd.ok("WLOCK y a 100000");
    let mut b = crowd.waits("WLOCK y b 100000 BLOCK 0");
    let text = assert_error(crowd.run("UPGRADE x a 1000 BLOCK 0"), "DEADLOCK");
    assert!(text.contains('a') && text.contains('b'), "{text}");
    crowd.gives("UNLOCK y a", 1);
    b.granted();
    crowd.plain("FLUSHALL");

    crowd.ok("RLOCK x a 100000");
    crowd.ok("RLOCK x b 100000");
    crowd.ok("WLOCK y a 100000");
    let mut a = crowd.waits("UPGRADE x a 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK y b 1000 BLOCK 0"), "DEADLOCK");
    crowd.gives("UNLOCK x b", 0);
    a.granted();
}

#[test]
fn an_owner_waits_when_any_of_its_clients_does() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK x a 100000");
    crowd.ok("WLOCK y b 100000");
    crowd.ok("WLOCK z c 100000");
    let mut first = crowd.waits("WLOCK y a 100000 BLOCK 0");
    let mut second = crowd.waits("WLOCK z a 100000 BLOCK 0");
    // Whichever of a's waits would close it.
    assert_error(crowd.run("WLOCK x b 1000 BLOCK 0"), "DEADLOCK");
    assert_error(crowd.run("WLOCK x c 1000 BLOCK 0"), "DEADLOCK");
    let mut stranger = crowd.waits("RLOCK x d 100000 BLOCK 0");
    crowd.gives("UNLOCK y b", 1);
    first.granted();
    assert_eq!(crowd.waiting("z"), [second.id]);
    // What a waited for is no longer in the way.
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 0");
    crowd.gives("UNLOCK z c", 1);
    second.granted();
    crowd.gives("UNLOCK x a", 1);
    stranger.granted();
    crowd.gives("UNLOCK x d", 1);
    b.granted();
}

#[test]
fn an_owner_does_not_wait_for_itself() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // Its clients are one owner: they queue for what others hold.
    crowd.ok("WLOCK x a 100000");
    crowd.ok("WLOCK k h 100000");
    let mut first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let mut second = crowd.waits("RLOCK k a 100000 BLOCK 0");
    crowd.ok("WLOCK x a 100000 BLOCK 0");
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    second.granted();
}

#[test]
fn a_grant_that_closes_a_circle_fails_the_youngest() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // a waits for b. b waits for x, which a does not yet hold: it has reserved
    // it, and polls.
    crowd.ok("WLOCK x h 100000");
    crowd.ok("WLOCK y b 100000");
    assert!(crowd.refused("WLOCK x a 1000 RESERVE 100000") > 0);
    let mut a = crowd.waits("WLOCK y a 100000 BLOCK 0");
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 0");
    let mut young = crowd.waits("WLOCK x young 100000 BLOCK 0");
    crowd.gives("UNLOCK x h", 1);
    crowd.ok("WLOCK x a 100000");
    // b came last into the circle; the youngest of all is no part of it.
    let text = b.fails("DEADLOCK");
    assert!(text.contains('a') && !text.contains("young"), "{text}");
    assert_eq!(crowd.waiting("x"), [young.id]);
    crowd.gives("UNLOCK y b", 1);
    a.granted();
    crowd.gives("UNLOCK x a", 1);
    young.granted();
}

#[test]
fn those_that_only_look_like_circles_are_none() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // A hold that has lapsed makes nobody wait.
    crowd.ok("WLOCK x a 100");
    crowd.ok("WLOCK y b 100000");
    let mut a = crowd.waits("WLOCK y a 100000 BLOCK 0");
    wait_until("it lapses", || crowd.holders("x").is_empty());
    crowd.ok("WLOCK x h 100000");
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 0");
    crowd.gives("UNLOCK y b", 1);
    a.granted();
    crowd.gives("UNLOCK x h", 1);
    b.granted();
    crowd.plain("FLUSHALL");

    // The same names in another database are other locks.
    crowd.ok("WLOCK x a 100000");
    let mut a = crowd.client();
    call!(crowd.con, "SELECT", 1).expect("select");
    call!(a.con, "SELECT", 1).expect("select");
    crowd.ok("WLOCK y b 100000");
    a.send("WLOCK y a 100000 BLOCK 0");
    wait_until("a waits", || crowd.queue("y") == "a write");
    crowd.ok("WLOCK x b 1000 BLOCK 0");
    // But a circle may go through both.
    call!(crowd.con, "SELECT", 0).expect("select");
    assert_error(crowd.run("WLOCK x b 1000 BLOCK 0"), "DEADLOCK");

    // A waiter that left is no part of any.
    drop(a);
    call!(crowd.con, "SELECT", 1).expect("select");
    wait_until("a is gone", || crowd.queue("y").is_empty());
    call!(crowd.con, "SELECT", 0).expect("select");
    let mut b = crowd.waits("WLOCK x b 1000 BLOCK 0");
    crowd.gives("UNLOCK x a", 1);
    b.granted();
}

#[test]
fn without_detection_circles_stand_until_something_gives() {
    let server = Server::builder().module_arguments("deadlock-detection no").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK x a 100000");
    crowd.ok("WLOCK y b 100000");
    let mut a = crowd.waits("WLOCK y a 100000 BLOCK 0");
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 500");
    assert!(b.refused() > 0);
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 0");
    crowd.gives("FORCEUNLOCK x", 1);
    b.granted();
    crowd.gives("UNLOCK y b", 1);
    a.granted();
}

#[test]
fn names_of_a_circle_may_be_any_bytes() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let (a, b): (&[u8], &[u8]) = (b"\xff\r\n+OK", b"\x00 \"b\"");
    let mut hold = |lock: &str, owner: &[u8]| {
        assert_ok(call!(crowd.con, "RWLOCK.WLOCK", lock, owner, 9999));
    };
    hold("x", a);
    hold("y", b);
    let waiter = crowd.client();
    let mut con = waiter.con;
    let mut command = redis::cmd("RWLOCK.WLOCK");
    command.arg("y").arg(a).arg(9999).arg("BLOCK").arg(0);
    con.send_packed_command(&command.get_packed_command()).expect("send");
    wait_until("it waits", || crowd.waiting("y") == [waiter.id]);
    let reply = call!(crowd.con, "RWLOCK.WLOCK", "x", b, 9999, "BLOCK", 0);
    assert_error(reply, "DEADLOCK");
    // The connection is still in step.
    assert_eq!(text(crowd.plain("PING")), "PONG");
}
