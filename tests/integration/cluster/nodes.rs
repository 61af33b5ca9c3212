//! The module in a cluster: where a command is carried out, and which names
//! are refused.

use redis::Connection;

use support::observe::run;
use support::{assert_error, assert_ok, bytes, call, int, list, send, slot, text, Cluster, Server};

/// Carried out in this order they all succeed, and leave nothing behind.
const LINES: [&str; 16] = [
    "RWLOCK.RLOCK K a 60000",
    "RWLOCK.RLOCK K a 60000",
    "RWLOCK.RLOCK K b 60000",
    "RWLOCK.INSPECT K",
    "RWLOCK.WLOCK K c 60000 RESERVE 60000",
    "RWLOCK.RENEW K a 70000",
    "RWLOCK.UNLOCK K b",
    "RWLOCK.UPGRADE K a 60000",
    "RWLOCK.UNLOCK K a WRITE",
    "RWLOCK.UNLOCK K a ALL",
    "RWLOCK.WLOCK K c 60000",
    "RWLOCK.WLOCK K b 60000 ONCE RESERVE 60000",
    "RWLOCK.DOWNGRADE K c 60000",
    "RWLOCK.FORCEUNLOCK K",
    "RWLOCK.RLOCK K b 60000",
    "RWLOCK.UNLOCK K b",
];

fn words(line: &str, lock: &[u8]) -> Vec<Vec<u8>> {
    line.split(' ')
        .map(|word| if word == "K" { lock.to_vec() } else { word.as_bytes().to_vec() })
        .collect()
}

/// Every key of this node.
fn keys(con: &mut Connection) -> Vec<Vec<u8>> {
    list(run(con, "KEYS *")).into_iter().map(bytes).collect()
}

/// Sends a command as a cluster client does: to the node that serves the first
/// of the keys that the command names.
fn routed(cluster: &Cluster, words: &[Vec<u8>]) -> redis::RedisResult<redis::Value> {
    let mut any = cluster.node(0).connection();
    let getkeys = [&b"COMMAND"[..], b"GETKEYS"];
    let found: Vec<Vec<u8>> =
        list(send(&mut any, getkeys.into_iter().chain(words.iter().map(Vec::as_slice))))
            .into_iter()
            .map(bytes)
            .collect();
    assert_eq!(found, [words[1].clone()], "{words:?}");
    send(&mut cluster.primary_for(&found[0]).connection(), words)
}

#[test]
fn a_cluster_serves_each_lock_with_all_its_keys_at_one_node() {
    let cluster = Cluster::start(3, 0);
    let locks: [&[u8]; 6] = [b"stock", b"{order}:7", b"x{tag}y", b"a}b{c}", b"{{a}", b"\xff\0"];
    for lock in locks {
        let home = cluster.primary_for(lock);
        let mut con = home.connection();
        for line in LINES {
            let words = words(line, lock);
            for other in cluster.nodes().iter().filter(|node| node.port() != home.port()) {
                let moved = assert_error(send(&mut other.connection(), &words), "MOVED");
                assert_eq!(moved, format!("MOVED {} 127.0.0.1:{}", slot(lock), home.port()));
            }
            routed(&cluster, &words).unwrap_or_else(|error| panic!("{line}: {error}"));
            for key in keys(&mut con) {
                let found = int(call!(con, "CLUSTER", "KEYSLOT", &key));
                assert_eq!(found, i64::from(slot(lock)), "{}", key.escape_ascii());
            }
            if line.contains("INSPECT") {
                assert_eq!(keys(&mut con).len(), 4, "the hash and three timeouts");
            }
        }
        assert_eq!(keys(&mut con), [] as [Vec<u8>; 0]);
    }
    names_with_a_broken_tag_are_refused(&cluster);
    a_script_and_a_transaction_work_at_the_right_node(&cluster);
}

fn names_with_a_broken_tag_are_refused(cluster: &Cluster) {
    let names: [&[u8]; 9] = [b"a{b", b"a{}b", b"a}b", b"}", b"", b"{", b"{}", b"{}{a}", b"a}{}"];
    for lock in names {
        let mut con = cluster.primary_for(lock).connection();
        for line in LINES {
            assert_error(send(&mut con, words(line, lock)), "CROSSSLOT");
        }
        assert_eq!(keys(&mut con), [] as [Vec<u8>; 0]);
    }
}

fn a_script_and_a_transaction_work_at_the_right_node(cluster: &Cluster) {
    let mut con = cluster.primary_for(b"stock").connection();
    let script = "redis.call('RWLOCK.RLOCK', KEYS[1], 'a', 60000) \
                  return redis.call('RWLOCK.UNLOCK', KEYS[1], 'a')";
    assert_eq!(int(call!(con, "EVAL", script, 1, "stock")), 1);
    assert_ok(run(&mut con, "MULTI"));
    assert_eq!(text(run(&mut con, "RWLOCK.WLOCK stock a 60000")), "QUEUED");
    assert_eq!(text(run(&mut con, "RWLOCK.UNLOCK stock a")), "QUEUED");
    let replies = list(run(&mut con, "EXEC"));
    assert_ok(&replies[0]);
    assert_eq!(int(&replies[1]), 1);
}

#[test]
fn outside_a_cluster_any_name_will_do() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let names: [&[u8]; 9] = [b"a{b", b"a{}b", b"a}b", b"}", b"", b"{", b"{}", b"{}{a}", b"a}{}"];
    for lock in names {
        for line in LINES {
            let reply = send(&mut con, words(line, lock));
            reply.unwrap_or_else(|error| panic!("{line} {}: {error}", lock.escape_ascii()));
        }
        assert_eq!(keys(&mut con), [] as [Vec<u8>; 0], "{}", lock.escape_ascii());
    }
}
