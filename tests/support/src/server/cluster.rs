//! Clusters of servers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex, PoisonError};

use redis::Connection;

use super::builder::Builder;
use super::connect::info_fields;
use super::replica::wait_synced;
use super::running::Server;
use super::slot::{slot, SLOTS};
use crate::wait::wait_until;
use crate::{assert_ok, call, text};

/// Which nodes there are, as one of them sees it, by their ids. Those that it
/// takes for failed are left out.
type View = BTreeMap<String, Node>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    /// Whose replica it is.
    primary: Option<String>,
    /// What it serves: `0-5460`, `7`.
    slots: Vec<String>,
}

/// A cluster whose nodes agree that all slots are served.
#[derive(Debug)]
pub struct Cluster {
    /// Before the place: the next cluster starts when these nodes are gone.
    nodes: Vec<Server>,
    _place: Place,
}

/// One of the few clusters that may run at a time in this process. The nodes of many would
/// keep each other from the processor, until one takes another for failed.
#[derive(Debug)]
struct Place;

/// How many places are free.
static PLACES: Mutex<usize> = Mutex::new(4);
static PLACE_IS_FREE: Condvar = Condvar::new();

impl Place {
    /// Waits until there is one.
    fn take() -> Self {
        let free = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = PLACE_IS_FREE
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *PLACES.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        PLACE_IS_FREE.notify_one();
    }
}

impl Cluster {
    /// Starts `primaries` nodes that share the slots evenly, and as many
    /// replicas of each as told. Primaries are the first nodes; replica `r` of
    /// primary `p` is node `primaries * (r + 1) + p`.
    #[track_caller]
    pub fn start(primaries: usize, replicas_per_primary: usize) -> Self {
        Self::start_with(primaries, replicas_per_primary, |node| node)
    }

    /// [`Cluster::start`] with nodes to one's liking:
    /// `|node| node.config("cluster-node-timeout", 2000)`.
    #[track_caller]
    pub fn start_with(
        primaries: usize,
        replicas_per_primary: usize,
        configure: impl Fn(Builder) -> Builder,
    ) -> Self {
        let place = Place::take();
        let count = primaries * (1 + replicas_per_primary);
        let nodes =
            (0..count).map(|_| configure(Server::builder().cluster_enabled()).start()).collect();
        let cluster = Self { nodes, _place: place };
        cluster.share_slots(primaries);
        cluster.meet();
        cluster.replicate(primaries);
        wait_until("all nodes agree on the primaries and their replicas", || {
            cluster.common_view().is_some_and(|view| {
                let replicas = view.values().filter(|node| node.primary.is_some());
                view.len() == count && replicas.count() == count - primaries
            })
        });
        for (index, replica) in cluster.nodes.iter().enumerate().skip(primaries) {
            wait_synced(&cluster.nodes[index % primaries], replica);
        }
        cluster
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// To kill, stop or restart it.
    pub fn node_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// The node that says of itself that it serves this key's slot as a primary.
    #[track_caller]
    pub fn primary_for(&self, key: &[u8]) -> &Server {
        let slot = slot(key);
        self.running()
            .find(|node| {
                let mut con = node.connection();
                let id = node_id(&mut con);
                view(&mut con).get(&id).is_some_and(|node| covers(&node.slots, slot))
            })
            .unwrap_or_else(|| panic!("no running node serves slot {slot}"))
    }

    /// Waits until every running node reports `cluster_state:ok` and all agree
    /// on who is there, whose replica it is and which slots it serves.
    ///
    /// After a kill, wait for its consequence first: until the others notice,
    /// they agree on a cluster where nothing happened.
    #[track_caller]
    pub fn wait_ok(&self) {
        wait_until("all nodes report cluster_state:ok and agree on the rest", || {
            self.common_view().is_some()
        });
    }

    /// The view that all running nodes share, if all is well.
    fn common_view(&self) -> Option<View> {
        let mut common = None;
        for node in self.running() {
            let mut con = node.connection();
            let info = info_fields(&text(call!(con, "CLUSTER", "INFO")));
            let view = view(&mut con);
            if info["cluster_state"] != "ok" || *common.get_or_insert_with(|| view.clone()) != view
            {
                return None;
            }
        }
        common
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn share_slots(&self, primaries: usize) {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut con = node.connection();
            // Distinct epochs spare the nodes the resolution of conflicts.
            assert_ok(call!(con, "CLUSTER", "SET-CONFIG-EPOCH", index + 1));
            if index < primaries {
                let slots = share(index, primaries);
                assert_ok(call!(con, "CLUSTER", "ADDSLOTSRANGE", slots.start(), slots.end()));
            }
        }
    }

    /// Introduces every node to every other: quicker than leaving it to gossip.
    fn meet(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut con = node.connection();
            for other in &self.nodes[index + 1..] {
                assert_ok(call!(con, "CLUSTER", "MEET", "127.0.0.1", other.port()));
            }
        }
        wait_until("all nodes know each other", || {
            self.nodes.iter().all(|node| view(&mut node.connection()).len() == self.nodes.len())
        });
    }

    fn replicate(&self, primaries: usize) {
        for (index, node) in self.nodes.iter().enumerate().skip(primaries) {
            let primary = node_id(&mut self.nodes[index % primaries].connection());
            assert_ok(call!(node.connection(), "CLUSTER", "REPLICATE", primary));
        }
    }
}

/// The slots of one of `primaries` that share all of them.
fn share(index: usize, primaries: usize) -> RangeInclusive<usize> {
    let slots = usize::from(SLOTS);
    index * slots / primaries..=(index + 1) * slots / primaries - 1
}

pub(super) fn node_id(con: &mut Connection) -> String {
    text(call!(con, "CLUSTER", "MYID"))
}

/// Reads CLUSTER NODES. CLUSTER SLOTS would leave out replicas that have
/// nothing to replicate yet.
fn view(con: &mut Connection) -> View {
    text(call!(con, "CLUSTER", "NODES"))
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [id, _, flags, primary, _, _, _, _, slots @ ..] = &fields[..] else {
                panic!("a line of CLUSTER NODES: {line:?}");
            };
            let left_out = ["fail", "fail?", "handshake", "noaddr"];
            if flags.split(',').any(|flag| left_out.contains(&flag)) {
                return None;
            }
            let node = Node {
                primary: (*primary != "-").then(|| (*primary).to_owned()),
                slots: slots
                    .iter()
                    // Only the two nodes concerned see a slot's migration.
                    .filter(|slot| !slot.starts_with('['))
                    .map(|slot| (*slot).to_owned())
                    .collect(),
            };
            Some(((*id).to_owned(), node))
        })
        .collect()
}

/// Is this slot in one of these ranges?
fn covers(ranges: &[String], slot: u16) -> bool {
    let number = |text: &str| -> u16 {
        text.parse().unwrap_or_else(|error| panic!("slot {text:?}: {error}"))
    };
    ranges.iter().any(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        (number(from)..=number(to)).contains(&slot)
    })
}
