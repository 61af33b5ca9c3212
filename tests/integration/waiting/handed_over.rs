//! A lock that goes from one holder to the next inside one UNLOCK: what becomes
//! of its keys, and what is sent. And who is believed to hold it while others
//! wait, when somebody else has changed it.

use redis::Pipeline;

use support::observe::ends_at;
use support::wire::{assert_plain, ReplicationStream, Words};
use support::{assert_ok, call, int, list, text, wait_until, Crowd, Server};

/// The commands that were sent, without those that hold a step together and
/// what is announced.
fn effects(sent: &[Words]) -> Vec<String> {
    let kept = |words: &&Words| !matches!(words[0].as_str(), "MULTI" | "EXEC" | "PUBLISH");
    sent.iter().filter(kept).map(|words| words.join(" ")).collect()
}

/// A key's content, in the order of its words.
fn content(crowd: &mut Crowd<'_>, key: &str) -> Vec<String> {
    let mut words: Vec<String> =
        list(call!(crowd.con, "HGETALL", key)).into_iter().map(text).collect();
    words.sort();
    words
}

#[test]
fn a_writer_hands_its_hash_to_the_next_writer() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut stream = ReplicationStream::attach(&server);
    let long = "a-name-that-is-longer-than-the-one-before-it";
    for (first, next) in [("a", "b"), ("b", "a:b"), ("a", long), (long, "a")] {
        crowd.ok(&format!("WLOCK k {first} 60000"));
        let mut waiter = crowd.waits(&format!("WLOCK k {next} 90000 BLOCK 0"));
        let ((), sent) = stream.during(&mut crowd.con, |con| {
            assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", first)), 1);
        });
        waiter.granted();
        let end = ends_at(&mut crowd.con, "k");
        assert_plain(&sent);
        assert_eq!(
            effects(&sent),
            [
                format!("HDEL k {first}:write"),
                format!("HSET k {next}:write 1"),
                format!("PEXPIREAT k {end}"),
            ]
        );
        let field = format!("{next}:write");
        let mut expected = ["mode", "write", "1", field.as_str()];
        expected.sort_unstable();
        assert_eq!(content(&mut crowd, "k"), expected);
        assert_eq!(int(call!(crowd.con, "RWLOCK.UNLOCK", "k", next)), 1);
        assert_eq!(int(crowd.plain("DBSIZE")), 0);
    }
}

/// A script makes a waiting owner the writer, and no event tells of that. Its UNLOCK then
/// hands the lock over to its own waiter.
#[test]
fn an_owner_hands_its_hash_to_itself() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k a 60000");
    let mut waiter = crowd.waits("WLOCK k b 90000 BLOCK 0");
    let change = "redis.call('HSET', KEYS[1], 'b:write', 1) \
                  redis.call('HDEL', KEYS[1], 'a:write')";
    let mut batch = Pipeline::new();
    batch.cmd("EVAL").arg(change).arg(1).arg("k").ignore().cmd("RWLOCK.UNLOCK").arg("k").arg("b");
    let unlocked: (i64,) = batch.query(&mut crowd.con).expect("b holds the lock");
    assert_eq!(unlocked, (1,));
    waiter.granted();
    assert_eq!(content(&mut crowd, "k"), ["1", "b:write", "mode", "write"]);
    crowd.gives("UNLOCK k b", 1);
}

#[test]
fn readers_get_a_hash_of_their_own() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k a 60000");
    let mut readers = ["b", "c"].map(|by| crowd.waits(&format!("RLOCK k {by} 90000 BLOCK 0")));
    crowd.gives("UNLOCK k a", 1);
    readers.iter_mut().for_each(|reader| _ = reader.granted());
    assert_eq!(content(&mut crowd, "k"), ["1", "1", "b", "c", "mode", "read"]);
    assert_eq!(int(crowd.plain("DBSIZE")), 3);
    // And the other way round.
    let mut writer = crowd.waits("WLOCK k a 60000 BLOCK 0");
    crowd.gives("UNLOCK k b", 0);
    crowd.gives("UNLOCK k c", 1);
    writer.granted();
    assert_eq!(content(&mut crowd, "k"), ["1", "a:write", "mode", "write"]);
    assert_eq!(int(crowd.plain("DBSIZE")), 1);
}

#[test]
fn a_hash_that_nobody_takes_is_gone() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut stream = ReplicationStream::attach(&server);
    // The waiter's turn comes, and it cannot have the lock: its timeout key is
    // another lock's.
    crowd.ok("RLOCK {k} a 60000");
    crowd.ok("WLOCK k h 60000");
    let mut waiter = crowd.waits("RLOCK k a 60000 BLOCK 0");
    let (_, sent) = stream.during(&mut crowd.con, |con| {
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "h")), 1);
    });
    waiter.fails("ERR key clash");
    assert_eq!(effects(&sent), ["DEL k"]);
    assert_eq!(int(crowd.plain("EXISTS k")), 0);
    // Nobody is granted anything while memory is used up.
    crowd.ok("WLOCK k h 60000");
    let mut waiter = crowd.waits("WLOCK k b 60000 BLOCK 0");
    crowd.plain("CONFIG SET maxmemory 1");
    crowd.gives("UNLOCK k h", 1);
    assert_eq!(int(crowd.plain("EXISTS k")), 0);
    crowd.plain("CONFIG SET maxmemory 0");
    waiter.granted();
    assert_eq!(crowd.holders("k"), "b write");
}

/// Three wait for `k`, and the one that is granted it is not the one that
/// holds it in the end.
#[test]
fn who_holds_a_lock_that_others_changed_is_what_its_keys_say() {
    let server = Server::builder().start();
    for foreign in
        ["HSET k mode write x:write 1", "HSET k mode write x:write 2 x 1", "HSET k mode read x 1"]
    {
        let mut crowd = Crowd::on(&server);
        crowd.ok("WLOCK k a 60000");
        let mut b = crowd.waits("WLOCK k b 60000 BLOCK 0");
        let mut c = crowd.waits("WLOCK k c 60000 BLOCK 0");
        crowd.gives("UNLOCK k a", 1);
        b.granted();
        // In the place of `b`, whom those who come now would believe to hold it.
        crowd.plain("MULTI");
        for command in
            ["DEL k", foreign, "PEXPIRE k 50000", "SET {k}:x:rwlock_timeout:1 k PX 50000"]
        {
            crowd.plain(command);
        }
        crowd.plain("EXEC");
        let left = crowd.refused("WLOCK k d 60000");
        assert!((1..=50_000).contains(&left), "{foreign}: {left}");
        let x = crowd.holders("k");
        assert!(!x.is_empty() && x.split(", ").all(|one| one.starts_with("x ")), "{foreign}: {x}");
        // Nor is a circle overlooked through the one who holds it, or found
        // through the one who does not.
        crowd.ok("WLOCK other e 60000");
        let mut waits = crowd.waits("WLOCK other x 60000 BLOCK 0");
        let mut deceived = crowd.client();
        deceived.send("WLOCK k e 60000 BLOCK 0");
        deceived.fails("DEADLOCK");
        crowd.gives("UNLOCK other e", 1);
        waits.granted();
        crowd.ok("WLOCK third f 60000");
        let mut waits = crowd.waits("WLOCK third b 60000 BLOCK 0");
        let f = crowd.waits("WLOCK k f 60000 BLOCK 0");
        assert_eq!(crowd.queue("k"), "c write, f write");
        drop(f);
        wait_until("f is gone", || crowd.queue("k") == "c write");
        crowd.plain("DEL k");
        c.granted();
        crowd.plain("DEL third");
        waits.granted();
        assert_ok(call!(crowd.con, "FLUSHALL"));
        wait_until("all is forgotten", || server.info("rwlock")["rwlock_waiters"] == "0");
    }
}
