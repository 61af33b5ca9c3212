//! Leases end on time after a restart and after a promotion, and only a primary
//! ends them.

use redis::{Connection, Value};

use support::observe::{ends_at, run, Subscriber};
use support::{
    assert_error, assert_ok, assert_prompt, call, int, list, local_clock, processor_wait, text,
    wait_synced, wait_until, Builder, Client, Cluster, Server,
};

/// How late a lapse may be, in ms.
const LIMIT: i64 = 10;

/// Each round is a lock that nobody touches.
const ROUNDS: i64 = 9;

/// Takes locks `read-n` and `write-n` that end one after the other, and two
/// that will be touched, and waited for. All their ends.
fn take(con: &mut Connection, tag: &str, lease: i64) -> Vec<(String, i64)> {
    let locks = (0..ROUNDS)
        .flat_map(|round| {
            [("RLOCK", format!("read-{round}")), ("WLOCK", format!("write-{round}"))]
                .map(|(command, lock)| (command, lock, lease + 120 * round))
        })
        .chain([("WLOCK", "touched".to_owned(), lease), ("RLOCK", "waited".to_owned(), lease)]);
    locks
        .map(|(command, lock, lease)| {
            let lock = format!("{tag}{lock}");
            assert_ok(run(con, &format!("RWLOCK.{command} {lock} a {lease}")));
            let end = ends_at(con, &lock);
            (lock, end)
        })
        .collect()
}

fn channel(lock: &str) -> String {
    match lock.contains('{') {
        true => format!("redisson_rwlock:{lock}"),
        false => format!("redisson_rwlock:{{{lock}}}"),
    }
}

/// The holds end on time on this server, which has just become a primary. The
/// server does not remove them by itself: whatever goes, the module ends it.
fn end_on_time(server: &Server, tag: &str, ends: &[(String, i64)]) {
    let mut con = server.connection();
    assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    let channels: Vec<String> = ends.iter().map(|(lock, _)| channel(lock)).collect();
    let mut subscriber = if tag.is_empty() {
        Subscriber::pattern(server, b"redisson_rwlock:*")
    } else {
        // In a cluster announcements are sharded, and there are no patterns.
        Subscriber::shard_channels(server, &channels)
    };
    assert!(int(run(&mut con, &format!("RWLOCK.RLOCK {tag}touched b 60000"))) > 0);
    let mut waiter = Client::sends(server, &format!("WLOCK {tag}waited b 60000 BLOCK 0"));
    assert!(local_clock() < ends[0].1, "took too long to get here");
    let mut late = Vec::new();
    // A stall of the machine makes all late that end meanwhile: it counts as a whole.
    let before = processor_wait();
    for _ in ends {
        let (heard, payload) = subscriber.message();
        let at = channels.iter().position(|channel| channel.as_bytes() == heard);
        let (lock, end) = &ends[at.unwrap_or_else(|| panic!("{heard:?}"))];
        let reads = ["read", "waited"].iter().any(|name| lock[tag.len()..].starts_with(name));
        assert_eq!(payload, if reads { "0" } else { "1" }, "{lock}");
        late.push(local_clock() - end - 1);
    }
    let stalls = (processor_wait() - before).as_millis();
    let limit = LIMIT + i64::try_from(stalls).expect("a short while");
    assert_prompt("a lapse", limit, &late);
    waiter.granted();
    assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {tag}waited b"))), 1);
    assert_eq!(list(run(&mut con, "KEYS *")), []);
    assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 1));
}

#[test]
fn leases_end_on_time_after_a_restart() {
    let with: [fn(Builder) -> Builder; 2] = [Builder::aof, Builder::save_rdb];
    for with in with {
        let mut server = with(Server::builder()).start();
        let ends = take(&mut server.connection(), "", 2_500);
        if server.info("persistence")["aof_enabled"] == "1" {
            server.kill9();
        }
        server.restart();
        end_on_time(&server, "", &ends);
    }
}

#[test]
fn what_lapsed_while_the_server_was_down_is_gone_when_it_is_up() {
    let with: [fn(Builder) -> Builder; 2] = [Builder::aof, Builder::save_rdb];
    for with in with {
        let mut server = with(Server::builder()).start();
        let mut con = server.connection();
        assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 300"));
        assert_ok(run(&mut con, "RWLOCK.RLOCK lock b 60000"));
        assert_ok(run(&mut con, "RWLOCK.WLOCK write a 300"));
        let end = ends_at(&mut con, "write");
        server.stop();
        while local_clock() <= end {
            std::thread::yield_now();
        }
        server.restart();
        let mut con = server.connection();
        assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
        // Nobody touches them: the sweep meets them.
        wait_until("what lapsed is gone", || int(run(&mut con, "HLEN lock")) == 2);
        wait_until("what lapsed is gone", || int(run(&mut con, "DBSIZE")) == 2);
    }
}

#[test]
fn leases_end_on_time_after_a_promotion_and_not_before() {
    let mut primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    let ends = take(&mut con, "", 4_000);
    // Paused, the primary ends none of them, however late it is killed.
    let lapsing = [
        "RWLOCK.RLOCK lapsed a 300",
        "RWLOCK.RLOCK lapsed a 60000",
        "RWLOCK.WLOCK lapsed-write a 300",
        "CLIENT PAUSE 600000 WRITE",
    ];
    assert_ok(run(&mut con, "MULTI"));
    for command in lapsing {
        assert_eq!(text(run(&mut con, command)), "QUEUED");
    }
    assert_eq!(list(run(&mut con, "EXEC")), [Value::Okay, Value::Okay, Value::Okay, Value::Okay]);
    let lapse = ends_at(&mut con, "lapsed-write");
    wait_synced(&primary, &replica);
    let keys = |con: &mut Connection| int(run(con, "DBSIZE"));
    let before = keys(&mut replica.connection());
    primary.kill9();

    // A replica ends nothing.
    let mut con = replica.connection();
    let mut subscriber = Subscriber::pattern(&replica, b"redisson_rwlock:*");
    while local_clock() <= lapse + 200 {
        assert_eq!(keys(&mut con), before);
    }
    assert_eq!(text(run(&mut con, "HGET lapsed a")), "2");
    call!(con, "PUBLISH", "redisson_rwlock:{x}", "end").expect("mark the end");
    assert_eq!(subscriber.until("end"), [] as [&str; 0]);

    assert_ok(run(&mut con, "REPLICAOF NO ONE"));
    // What had lapsed goes at once, for the sweep meets it.
    wait_until("the lapsed hold is gone", || text(run(&mut con, "HGET lapsed a")) == "1");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lapsed a")), 1);
    end_on_time(&replica, "", &ends);
}

#[test]
fn leases_end_on_time_after_a_failover() {
    let first = Server::builder().start();
    let second = Server::builder().replica_of(&first).start();
    wait_synced(&first, &second);
    let ends = take(&mut first.connection(), "", 4_000);
    wait_synced(&first, &second);
    assert_ok(run(&mut first.connection(), "FAILOVER"));
    wait_until("they have changed roles", || {
        second.info("replication")["role"] == "master"
            && first.info("replication")["role"] == "slave"
    });
    end_on_time(&second, "", &ends);
    wait_synced(&second, &first);
    wait_until("nothing is left", || int(run(&mut first.connection(), "DBSIZE")) == 0);
    assert_error(run(&mut first.connection(), "RWLOCK.UNLOCK touched a"), "READONLY");
}

#[test]
fn leases_end_on_time_after_a_cluster_failover() {
    let cluster = Cluster::start(1, 1);
    let (primary, replica) = (cluster.node(0), cluster.node(1));
    let ends = take(&mut primary.connection(), "{tag}", 6_000);
    wait_synced(primary, replica);
    assert_ok(run(&mut replica.connection(), "CLUSTER FAILOVER"));
    wait_until("the replica takes over", || {
        replica.info("replication")["role"] == "master"
            && primary.info("replication")["role"] == "slave"
    });
    cluster.wait_ok();
    end_on_time(replica, "{tag}", &ends);
}
