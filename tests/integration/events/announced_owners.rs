//! On which channels an end is announced, and whose hold it says it was.

use support::observe::{run, Subscriber};
use support::{assert_ok, call, int, list, text, wait_synced, wait_until, Cluster, Crowd, Server};

/// What is done to the lock `k`, line by line split at `;`, and what that
/// announces of owners. `DEL a 1` ends a lease by hand, `PERSIST` keeps the
/// hash, `PASS` waits until the lock is free.
const ENDS: [(&str, &[&str]); 26] = [
    ("RLOCK k a 60000; UNLOCK k a", &["a_del_read"]),
    ("WLOCK k a 60000; UNLOCK k a", &["a_del_write"]),
    ("WLOCK k a 60000; WLOCK k a 60000; UNLOCK k a; UNLOCK k a", &["a_del_write"]),
    ("WLOCK k a 60000; RLOCK k a 60000; UNLOCK k a ALL", &["a_del_write"]),
    (
        "WLOCK k a 60000; RLOCK k a 60000; UNLOCK k a WRITE; UNLOCK k a",
        &["a_del_write", "a_del_read"],
    ),
    ("WLOCK k a 60000; DOWNGRADE k a 60000", &["a_del_write"]),
    ("RLOCK k a 60000; UPGRADE k a 60000; UNLOCK k a WRITE", &["a_del_write"]),
    // Whoever leaves last, not who came last or would have held it longest.
    ("RLOCK k a 60000; RLOCK k b 90000; UNLOCK k b; UNLOCK k a", &["a_del_read"]),
    ("RLOCK k a 60000; RLOCK k b 90000; UNLOCK k a; UNLOCK k b", &["b_del_read"]),
    // Forced: who would have held it longest; of a reservation its owner.
    ("RLOCK k a 60000; FORCEUNLOCK k", &["a_del_read"]),
    ("RLOCK k a 60000; RLOCK k b 90000; RLOCK k c 70000; FORCEUNLOCK k", &["b_del_read"]),
    ("RLOCK k a 60000; RLOCK k a 90000; RLOCK k c 70000; FORCEUNLOCK k READ", &["a_del_read"]),
    ("WLOCK k a 60000; RLOCK k a 60000; FORCEUNLOCK k", &["a_del_write"]),
    ("WLOCK k a 60000; WLOCK k b 60000 RESERVE 60000; FORCEUNLOCK k", &["a_del_write"]),
    (
        "WLOCK k a 60000; WLOCK k b 60000 RESERVE 60000; UNLOCK k a; FORCEUNLOCK k",
        &["a_del_write", "b_del_write"],
    ),
    // A lapse: the keys are gone, and it is known all the same.
    ("RLOCK k a 50; PASS", &["a_del_read"]),
    ("WLOCK k a 50; PASS", &["a_del_write"]),
    ("WLOCK k a 50; RLOCK k a 20; PASS", &["a_del_write"]),
    ("RLOCK k a 60; RLOCK k b 90; RLOCK k c 30; PASS", &["b_del_read"]),
    ("RLOCK k a 60; RLOCK k b 30; RENEW k b 120; PASS", &["b_del_read"]),
    ("RLOCK k a 60; RLOCK k b 60000; UNLOCK k b; PASS", &["a_del_read"]),
    ("RLOCK k a 60; UPGRADE k a 90; PASS", &["a_del_write"]),
    ("WLOCK k a 60; DOWNGRADE k a 90; PASS", &["a_del_write", "a_del_read"]),
    // Who was to be the last is gone by somebody else's hand.
    ("RLOCK k a 100; RLOCK k b 60000; DEL b 1; PASS", &["a_del_read"]),
    // One that the hash outlives.
    ("RLOCK k a 60000; PERSIST; DEL a 1; PASS", &["a_del_read"]),
    ("RLOCK k a 60000; RLOCK k b 90000; PERSIST; DEL b 1; UNLOCK k a", &["a_del_read"]),
];

fn perform(crowd: &mut Crowd<'_>, lines: &str) {
    // Leases that end in a certain order begin in the same moment.
    let (lines, passes) = match lines.strip_suffix("; PASS") {
        Some(lines) => (lines, true),
        None => (lines, false),
    };
    if passes {
        crowd.plain("MULTI");
    }
    for line in lines.split(';').map(str::trim) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["PERSIST"] => drop(crowd.plain("PERSIST k")),
            ["DEL", owner, number] => {
                drop(crowd.plain(&format!("DEL {{k}}:{owner}:rwlock_timeout:{number}")));
            }
            _ => drop(crowd.run(line).expect(line)),
        }
    }
    if passes {
        crowd.plain("EXEC");
        wait_until("it is over", || int(crowd.plain("EXISTS k")) == 0);
    }
}

#[test]
fn an_end_says_whose_hold_it_was() {
    let primary = Server::builder().module_arguments("events owner").start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut crowd = Crowd::on(&primary);
    let mut owners = [&primary, &replica].map(|server| Subscriber::channel(server, b"{k}:channel"));
    let mut redisson = Subscriber::pattern(&primary, b"redisson_rwlock:*");
    for (lines, expected) in ENDS {
        perform(&mut crowd, lines);
        for subscriber in &mut owners {
            for said in expected {
                assert_eq!(subscriber.message().1, *said, "{lines}");
            }
        }
        // And no more than that. What is flushed is not announced.
        crowd.plain("FLUSHALL");
        crowd.ok("WLOCK k end 60000");
        crowd.gives("UNLOCK k end", 1);
        for subscriber in &mut owners {
            assert_eq!(subscriber.until("end_del_write"), [] as [&str; 0], "{lines}");
        }
    }
    crowd.plain("PUBLISH redisson_rwlock:{k} end");
    assert_eq!(redisson.until("end"), [] as [&str; 0]);
}

#[test]
fn the_channel_of_owners_has_the_locks_hash_tag_and_owners_are_bytes() {
    let server = Server::builder().module_arguments("events owner").start();
    let mut con = server.connection();
    let names: [(&[u8], &[u8]); 4] = [
        (b"stock", b"{stock}:channel"),
        (b"{order}:7", b"{order}:7:channel"),
        (b"a{b", b"a{b:channel"),
        (b"\xff\0\r\n", b"{\xff\0\r\n}:channel"),
    ];
    for (lock, channel) in names {
        let mut subscriber = Subscriber::channel(&server, channel);
        assert_ok(call!(con, "RWLOCK.WLOCK", lock, "o w\r\n", 60_000));
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, "o w\r\n")), 1);
        assert_eq!(subscriber.message(), (channel.to_vec(), "o w\r\n_del_write".to_owned()));
    }
}

#[test]
fn the_last_of_many_readers_is_named() {
    let server = Server::builder().module_arguments("events owner").start();
    let mut con = server.connection();
    let mut subscriber = Subscriber::channel(&server, b"{k}:channel");
    // They lapse in an order that is not that of their names, and the one who
    // leaves was to be the last. Most servers begin all leases in the same moment;
    // Redis 7.0 does not, so the ends are asked for.
    let lease = |n: i32| 200 + n * 37 % 100 * 10;
    assert_ok(run(&mut con, "MULTI"));
    for n in 0..100 {
        run(&mut con, &format!("RWLOCK.RLOCK k r{n} {}", lease(n))).expect("queued");
    }
    run(&mut con, "RWLOCK.RLOCK k leaves 60000").expect("queued");
    run(&mut con, "RWLOCK.UNLOCK k leaves").expect("queued");
    for n in 0..100 {
        run(&mut con, &format!("PEXPIRETIME {{k}}:r{n}:rwlock_timeout:1")).expect("queued");
    }
    let replies = list(run(&mut con, "EXEC"));
    assert_eq!(int(&replies[101]), 0);
    let ends: Vec<i64> = replies[102..].iter().map(int).collect();
    let latest = ends.iter().max().expect("an end");
    let last = (0..100).filter(|n| ends[*n] == *latest);
    let last: Vec<String> = last.map(|n| format!("r{n}_del_read")).collect();
    let named = subscriber.message().1;
    assert!(last.contains(&named), "{named} instead of {last:?}");
}

#[test]
fn the_choice_of_channels_can_be_changed_at_any_time() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut redisson = Subscriber::channel(&server, b"redisson_rwlock:{k}");
    let mut owner = Subscriber::channel(&server, b"{k}:channel");
    let none: &[&str] = &[];
    let cases: [(&str, &[&str], &[&str]); 5] = [
        ("none", none, none),
        ("all", &["1", "0"], &["a_del_write", "b_del_read"]),
        ("owner", none, &["a_del_write", "b_del_read"]),
        ("redisson", &["1", "0"], none),
        ("none", none, none),
    ];
    for (events, to_redisson, to_owners) in cases {
        // Between the grant and the end: it is the end that counts.
        assert_ok(run(&mut con, "RWLOCK.WLOCK k a 60000"));
        assert_ok(run(&mut con, &format!("CONFIG SET rwlock.events {events}")));
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
        assert_ok(run(&mut con, "RWLOCK.RLOCK k b 60000"));
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k b")), 1);
        run(&mut con, "PUBLISH redisson_rwlock:{k} end").expect("mark the end");
        run(&mut con, "PUBLISH {k}:channel end").expect("mark the end");
        assert_eq!(redisson.until("end"), *to_redisson, "{events}");
        assert_eq!(owner.until("end"), *to_owners, "{events}");
    }
    // A lapse of a lock that was taken before owners were remembered. Without the log the lock is
    // not read before it ends.
    assert_ok(run(&mut con, "CONFIG SET rwlock.log-slower-than -1"));
    assert_ok(run(&mut con, "MULTI"));
    run(&mut con, "RWLOCK.WLOCK k a 50").expect("queued");
    run(&mut con, "CONFIG SET rwlock.events owner").expect("queued");
    run(&mut con, "EXEC").expect("carry it out");
    assert_eq!(owner.message().1, "_del_write");
}

#[test]
fn after_a_restart_the_owner_is_found_in_the_keys() {
    let mut server = Server::builder().aof().module_arguments("events owner").start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK k a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK m b 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK m c 50000"));
    server.restart();
    let mut writer = Subscriber::channel(&server, b"{k}:channel");
    let mut readers = Subscriber::channel(&server, b"{m}:channel");
    let mut con = server.connection();
    assert_ok(run(&mut con, "MULTI"));
    for (key, left) in [
        ("k", 1_000),
        ("{m}:c:rwlock_timeout:1", 500),
        ("{m}:b:rwlock_timeout:1", 1_000),
        ("m", 1_000),
    ] {
        run(&mut con, &format!("PEXPIRE {key} {left}")).expect("queued");
    }
    run(&mut con, "EXEC").expect("shorten the leases");
    assert_eq!(writer.message().1, "a_del_write");
    assert_eq!(readers.message().1, "b_del_read");
}

#[test]
fn a_session_that_closes_is_named() {
    let server = Server::builder().module_arguments("events owner").start();
    let mut subscriber = Subscriber::channel(&server, b"{k}:channel");
    for (command, said) in [("RLOCK", "me_del_read"), ("WLOCK", "me_del_write")] {
        let mut crowd = Crowd::on(&server);
        crowd.ok(&format!("{command} k me 60000 SESSION"));
        drop(crowd);
        assert_eq!(subscriber.message().1, said);
    }
}

#[test]
fn a_cluster_publishes_to_the_shard_or_to_all() {
    let cluster = Cluster::start_with(2, 1, |node| node.module_arguments("events all"));
    let primary = cluster.primary_for(b"lock");
    let mut con = primary.connection();
    let channels: [&[u8]; 2] = [b"redisson_rwlock:{lock}", b"{lock}:channel"];
    let expected: [&[&str]; 2] = [&["1", "0"], &["a_del_write", "b_del_read"]];
    let none: &[&str] = &[];
    // Its replica, and a node of the other shard.
    let ours: Vec<&Server> = (0..2)
        .flat_map(|shard| [cluster.node(shard), cluster.node(shard + 2)].map(|node| (shard, node)))
        .filter(|(shard, _)| cluster.node(*shard).port() == primary.port())
        .map(|(_, node)| node)
        .collect();
    assert_eq!(ours.len(), 2);
    // Who has just come to the cluster, or to the shard, is not told yet.
    for node in cluster.nodes().iter().filter(|node| node.port() != primary.port()) {
        let shares = ours.iter().any(|ours| ours.port() == node.port());
        let commands = if shares { &["PUBLISH", "SPUBLISH"][..] } else { &["PUBLISH"] };
        for command in commands {
            let received = match *command {
                "SPUBLISH" => "messages_publishshard_received:",
                _ => "messages_publish_received:",
            };
            wait_until("the node hears what ours publishes", || {
                call!(con, command, "{lock}:hello", "hello").expect("publish");
                text(call!(node.connection(), "CLUSTER", "INFO")).contains(received)
            });
        }
    }
    for publish in ["sharded", "global", "sharded"] {
        assert_ok(run(&mut con, &format!("CONFIG SET rwlock.cluster-publish {publish}")));
        let mut heard: Vec<(u16, usize, bool, Subscriber)> = Vec::new();
        for (at, channel) in channels.iter().enumerate() {
            for node in cluster.nodes() {
                heard.push((node.port(), at, true, Subscriber::channel(node, channel)));
            }
            for node in &ours {
                heard.push((node.port(), at, false, Subscriber::shard_channel(node, channel)));
            }
        }
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
        assert_ok(run(&mut con, "RWLOCK.RLOCK lock b 60000"));
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock b")), 1);
        for channel in channels {
            call!(con, "PUBLISH", channel, "end").expect("mark the end");
            call!(con, "SPUBLISH", channel, "end").expect("mark the end");
        }
        for (port, at, is_global, mut subscriber) in heard {
            let hears = is_global == (publish == "global");
            let wanted = if hears { expected[at] } else { none };
            let who = format!("{publish}, port {port}, global {is_global}");
            assert_eq!(subscriber.until("end"), *wanted, "{who}");
        }
    }
}
