//! What happens to the cluster: one thing after the other, each until all is well again, so
//! that no shard loses both its nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::LOCKS;
use support::observe::run;
use support::{
    assert_ok, begin_to_move, call, error_text, id, list, migrate, send, set_slot, slot, text,
    wait_synced, wait_until, Cluster, Random, Server,
};

pub struct Faults {
    random: Random,
    /// How many there were of each kind.
    counts: BTreeMap<&'static str, u32>,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faults: {:?}", self.counts)
    }
}

/// The places of a primary and its replica among the nodes.
#[derive(Clone, Copy)]
struct Shard {
    primary: usize,
    replica: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    There,
    ThereAndBack,
    GivenUp,
}

fn is_primary(node: &Server) -> bool {
    node.info("replication")["role"] == "master"
}

/// The shards, while all is well.
fn shards(cluster: &Cluster) -> Vec<Shard> {
    let roles: Vec<_> = cluster.nodes().iter().map(|node| node.info("replication")).collect();
    let mut shards = Vec::new();
    for (replica, role) in roles.iter().enumerate() {
        if let Some(port) = role.get("master_port") {
            let port: u16 = port.parse().expect("a port");
            let primary = cluster.nodes().iter().position(|node| node.port() == port);
            shards.push(Shard { primary: primary.expect("one of them"), replica });
        }
    }
    shards
}

/// Shortens the locks of this slot that are read below the ends of their readers, as
/// Redisson's watchdog does. The node has to mend it.
fn shorten(node: &Server, number: u16) {
    let script = "if redis.call('HGET', KEYS[1], 'mode') ~= 'read' then return 0 end \
                  return redis.call('PEXPIRE', KEYS[1], 1000)";
    for lock in LOCKS.iter().filter(|lock| slot(lock.as_bytes()) == number) {
        call!(node.connection(), "EVAL", script, 1, lock).expect("it serves the lock");
    }
}

impl Faults {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), counts: BTreeMap::new() }
    }

    /// The next one.
    pub fn next(&mut self, cluster: &mut Cluster) {
        // A machine that stalls makes a node fail over by itself.
        self.settle(cluster);
        let shards = shards(cluster);
        let shard = shards[self.random.below_len(3)];
        let kind = match self.random.below(100) {
            0..15 => self.fail_over(cluster, shard),
            15..25 => self.crash(cluster, shard),
            25..35 => self.restart(cluster, shard.primary, "restart of a primary"),
            35..45 => self.restart(cluster, shard.replica, "restart of a replica"),
            45..60 => self.stall(cluster, shard),
            60..75 => self.move_slot(cluster, &shards, Move::There),
            75..90 => self.move_slot(cluster, &shards, Move::ThereAndBack),
            _ => self.move_slot(cluster, &shards, Move::GivenUp),
        };
        *self.counts.entry(kind).or_default() += 1;
        cluster.wait_ok();
        for Shard { primary, replica } in self::shards(cluster) {
            wait_synced(cluster.node(primary), cluster.node(replica));
        }
        thread::sleep(Duration::from_millis(self.random.below(400)));
    }

    /// The server may refuse it so soon after the last, or give up after 5 s.
    fn fail_over(&mut self, cluster: &Cluster, shard: Shard) -> &'static str {
        let (replica, primary) = (cluster.node(shard.replica), cluster.node(shard.primary));
        if send(&mut replica.connection(), ["CLUSTER", "FAILOVER"]).is_ok() {
            let begun = Instant::now();
            wait_until("they change roles, or it is given up", || {
                is_primary(replica) && !is_primary(primary)
                    || begun.elapsed() > Duration::from_secs(8)
            });
        }
        self.settle(cluster);
        if is_primary(replica) {
            "failover"
        } else {
            "failover given up"
        }
    }

    /// The primary dies, its replica takes over, and it comes back as a replica of that.
    fn crash(&mut self, cluster: &mut Cluster, shard: Shard) -> &'static str {
        cluster.node_mut(shard.primary).kill9();
        let replica = cluster.node(shard.replica);
        wait_until("the replica takes over", || is_primary(replica));
        thread::sleep(Duration::from_millis(self.random.below(500)));
        cluster.node_mut(shard.primary).restart();
        let node = cluster.node(shard.primary);
        wait_until("it is a replica", || !is_primary(node));
        "crash"
    }

    fn restart(&mut self, cluster: &mut Cluster, node: usize, kind: &'static str) -> &'static str {
        cluster.node_mut(node).restart();
        self.settle(cluster);
        kind
    }

    /// Stops a node: for so long that its replica takes over (a partition), or briefly
    /// (a stall).
    fn stall(&mut self, cluster: &Cluster, shard: Shard) -> &'static str {
        let node = if self.random.chance(80) { shard.primary } else { shard.replica };
        let long = self.random.chance(50);
        let ms =
            if long { self.random.between(3_500, 6_000) } else { self.random.between(1, 1_200) };
        cluster.node(node).signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(ms));
        cluster.node(node).signal(libc::SIGCONT);
        self.settle(cluster);
        match long {
            true => "partition",
            false => "stall",
        }
    }

    /// Waits until the nodes agree on three shards, of whoever is their primary now. Valkey
    /// 8.1 does not start with a file in which a replica is not yet of its primary's shard.
    fn settle(&self, cluster: &Cluster) {
        let knows_three =
            |node: &Server| list(run(&mut node.connection(), "CLUSTER SHARDS")).len() == 3;
        wait_until("there are three shards", || {
            cluster.wait_ok();
            shards(cluster).len() == 3 && cluster.nodes().iter().all(knows_three)
        });
    }

    /// A slot of the locks goes to another shard, key by key, and sometimes comes back. Or it
    /// is begun and given up, before a key has gone: from then on there is only forward.
    fn move_slot(&mut self, cluster: &Cluster, shards: &[Shard], how: Move) -> &'static str {
        let key = LOCKS[self.random.below_len(LOCKS.len())].as_bytes();
        let home = cluster.primary_for(key).port();
        let is_home = |shard: &&Shard| cluster.node(shard.primary).port() == home;
        let from = *shards.iter().find(is_home).expect("it is one of them");
        let others: Vec<&Shard> = shards.iter().filter(|shard| !is_home(shard)).collect();
        let to = *others[self.random.below_len(others.len())];
        let ways = match how {
            Move::ThereAndBack => [(from, to), (to, from)].to_vec(),
            _ => vec![(from, to)],
        };
        for (from, to) in ways {
            let (source, target) = (cluster.node(from.primary), cluster.node(to.primary));
            begin_to_move(key, source, target);
            self.pause();
            let state = if how == Move::GivenUp {
                vec!["STABLE".to_owned()]
            } else {
                self.carry(key, source, target);
                self.pause();
                vec!["NODE".to_owned(), id(target)]
            };
            let state: Vec<&str> = state.iter().map(String::as_str).collect();
            for node in [target, source] {
                assert_ok(set_slot(node, key, &state));
            }
            if how != Move::GivenUp {
                shorten(target, slot(key));
            }
            cluster.wait_ok();
            for Shard { primary, replica } in [from, to] {
                wait_synced(cluster.node(primary), cluster.node(replica));
            }
        }
        match how {
            Move::There => "move",
            Move::ThereAndBack => "move there and back",
            Move::GivenUp => "move given up",
        }
    }

    fn pause(&mut self) {
        if self.random.chance(50) {
            thread::sleep(Duration::from_millis(self.random.below(300)));
        }
    }

    /// Moves the slot's keys, one after the other.
    fn carry(&mut self, key: &[u8], from: &Server, to: &Server) {
        let mut con = from.connection();
        loop {
            let found = call!(con, "CLUSTER", "GETKEYSINSLOT", slot(key), 100);
            let keys: Vec<String> = list(found).into_iter().map(text).collect();
            if keys.is_empty() {
                return;
            }
            for key in &keys {
                // One that has lapsed meanwhile is answered with NOKEY.
                if let Err(error) = send(&mut con, migrate(to, std::slice::from_ref(key))) {
                    let text = error_text(&error);
                    // The server keeps its connection to a node that was restarted since.
                    assert!(text.starts_with("IOERR"), "{key}: {text}");
                }
            }
        }
    }
}
