//! Finds the node of a cluster that serves a slot, and checks whether this node serves it now.

use super::{Error, LockName};
use crate::ffi::{Access, CallReply, Ctx, Refusal, Text};
use lazy_static::lazy_static;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// The node that serves a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// This node. The slot may be moving to or from another node.
    Myself,
    /// Another node.
    Other(Redirect),
    /// No node.
    Nobody,
    /// The server does not say it.
    Unknown,
}

/// The address of the node that serves a slot, for the redirection of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    slot: u16,
    /// An IP address or a host name, by the setting `cluster-preferred-endpoint-type`. `?`: not
    /// known. Empty: the client is to use the host that it is connected to.
    endpoint: Vec<u8>,
    port: Option<i64>,
    tls_port: Option<i64>,
}

impl Redirect {
    /// The MOVED error that redirects a client to the node. `tls`: the client is connected by TLS.
    pub fn error(&self, tls: bool) -> String {
        let port = if tls { self.tls_port.or(self.port) } else { self.port.or(self.tls_port) };
        let endpoint = String::from_utf8_lossy(&self.endpoint);
        format!("MOVED {} {endpoint}:{}", self.slot, port.unwrap_or_default())
    }
}

/// The node that serves the slot of this key.
pub fn slot_owner(ctx: Ctx<'_>, key: &[u8]) -> SlotOwner {
    match (ctx.cluster_shards(), ctx.node_id()) {
        (Some(CallReply::List(shards)), Some(me)) => owner_in(&shards, &me, slot(key)),
        _ => SlotOwner::Unknown,
    }
}

/// The node that serves a slot, by the reply of CLUSTER SHARDS. `me`: the id of this node. The
/// other commands do not suffice: CLUSTER NODES has no preferred endpoint, CLUSTER SLOTS only one
/// port.
fn owner_in(shards: &[CallReply], me: &[u8], slot: u16) -> SlotOwner {
    let has_slot = |shard: &&CallReply| {
        let ranges = list(field(shard, "slots"));
        ranges.chunks_exact(2).any(|range| match range {
            [CallReply::Integer(first), CallReply::Integer(last)] => {
                (*first..=*last).contains(&i64::from(slot))
            }
            _ => false,
        })
    };
    let Some(shard) = shards.iter().find(has_slot) else {
        return SlotOwner::Nobody;
    };
    let primaries = list(field(shard, "nodes"));
    let mut primaries = primaries.iter().filter(|node| text(field(node, "role")) == b"master");
    let first = primaries.clone().next();
    // A failed primary stays in the shard, beside the primary that replaced it.
    let primary = primaries.find(|node| text(field(node, "health")) != b"fail").or(first);
    match primary {
        None => SlotOwner::Nobody,
        Some(node) if text(field(node, "id")) == me => SlotOwner::Myself,
        Some(node) => SlotOwner::Other(Redirect {
            slot,
            endpoint: text(field(node, "endpoint")).to_vec(),
            port: integer(field(node, "port")),
            tls_port: integer(field(node, "tls-port")),
        }),
    }
}

/// The value of this name in a list of names and values in turn, or `Nothing`.
fn field<'t>(map: &'t CallReply, name: &str) -> &'t CallReply {
    let pair = list(map).chunks_exact(2).find(|pair| text(&pair[0]) == name.as_bytes());
    pair.map_or(&CallReply::Nothing, |pair| &pair[1])
}

fn list(tree: &CallReply) -> &[CallReply] {
    match tree {
        CallReply::List(list) => list,
        _ => &[],
    }
}

fn text(tree: &CallReply) -> &[u8] {
    match tree {
        CallReply::Text(text) => text,
        _ => b"",
    }
}

fn integer(tree: &CallReply) -> Option<i64> {
    match tree {
        CallReply::Integer(number) => Some(*number),
        _ => None,
    }
}

/// The slot of a key: CRC16 (XMODEM) of its hash tag, or of the whole key if it has no tag, modulo
/// 16384.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % 16_384
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    match key[open + 1..].iter().position(|&byte| byte == b'}') {
        Some(len) if len > 0 => &key[open + 1..open + 1 + len],
        _ => key,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 != 0 {
                (crc << 1) ^ 0x1021
            } else {
                crc << 1
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_clusters() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}bar"), 12182);
        assert_eq!(slot(b"a{}foo"), slot(b"a{}foo"));
        assert_ne!(slot(b"{}foo"), slot(b"{}bar"));
    }

    fn word(word: &str) -> CallReply {
        CallReply::Text(word.into())
    }

    fn node(id: &str, role: &str, health: &str, ports: &[(&str, i64)]) -> CallReply {
        let mut fields = vec![word("id"), word(id), word("role"), word(role)];
        fields.extend([word("health"), word(health), word("endpoint"), word("host")]);
        for (name, port) in ports {
            fields.extend([word(name), CallReply::Integer(*port)]);
        }
        CallReply::List(fields)
    }

    fn shard(slots: &[i64], nodes: Vec<CallReply>) -> CallReply {
        let slots = CallReply::List(slots.iter().map(|slot| CallReply::Integer(*slot)).collect());
        CallReply::List(vec![word("slots"), slots, word("nodes"), CallReply::List(nodes)])
    }

    #[test]
    fn the_owner_of_a_slot_is_found() {
        let replica = node("r", "replica", "online", &[("port", 9)]);
        let failed = node("f", "master", "fail", &[("port", 8)]);
        let b = node("b", "master", "online", &[("port", 2), ("tls-port", 3)]);
        let shards = [
            shard(&[0, 99], vec![node("a", "master", "online", &[("port", 1)])]),
            shard(&[100, 100, 200, 300], vec![replica, failed, b]),
            shard(&[400, 400], vec![node("c", "master", "fail", &[("tls-port", 4)])]),
        ];
        let moved = |slot, tls| match owner_in(&shards, b"a", slot) {
            SlotOwner::Other(redirect) => redirect.error(tls),
            owner => format!("{owner:?}"),
        };
        assert_eq!(moved(99, false), "Myself");
        assert_eq!(moved(100, false), "MOVED 100 host:2");
        assert_eq!(moved(250, true), "MOVED 250 host:3");
        assert_eq!(moved(400, false), "MOVED 400 host:4");
        assert_eq!(moved(301, false), "Nobody");
    }
}

/// Checks that this node serves the lock's slot now. Fails also while the slot moves between nodes,
/// because then a lock's timeout keys may leave before its hash, or arrive after it. The check asks
/// the server about a command on a key that never exists: while a slot moves, the server refuses
/// commands on keys that do not exist here. Errors: [`Error::TryAgain`], [`Error::ClusterDown`].
pub(super) fn serves_slot(ctx: Ctx<'_>, name: LockName<'_>, access: Access) -> Result<(), Error> {
    ctx.would_serve(&probe(name), access).map_err(|refusal| match refusal {
        Refusal::Down => Error::ClusterDown("The cluster is down"),
        Refusal::DownForWrites => {
            Error::ClusterDown("The cluster is down and only accepts read commands")
        }
        Refusal::Slot | Refusal::Write => Error::TryAgain,
    })
}

/// A key in the lock's slot that does not exist: its name has a number that only this process
/// knows, so no client can write it.
pub(super) fn probe(name: LockName<'_>) -> Text {
    super::text(&name.probe(*SECRET))
}

lazy_static! {
    static ref SECRET: u64 = RandomState::new().build_hasher().finish();
}
