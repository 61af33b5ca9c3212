//! Which node of a cluster serves a slot.

use crate::ffi::Ctx;

/// The node that serves a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    /// This one, though the slot may be on its way.
    Myself,
    /// Another one: the error that sends a client there.
    Other(String),
    /// None.
    Nobody,
}

/// Who serves the slot of this key.
pub fn slot_owner(ctx: Ctx<'_>, key: &[u8]) -> SlotOwner {
    let nodes = ctx.cluster_nodes().unwrap_or_default();
    owner_in(&String::from_utf8_lossy(&nodes), slot(key))
}

/// The owner of a slot, as the text of CLUSTER NODES tells it.
fn owner_in(nodes: &str, slot: u16) -> SlotOwner {
    for line in nodes.lines() {
        let mut words = line.split(' ');
        let (address, flags) = (words.nth(1).unwrap_or(""), words.next().unwrap_or(""));
        if !words.skip(5).any(|range| covers(range, slot)) {
            continue;
        }
        if flags.split(',').any(|flag| flag == "myself") {
            return SlotOwner::Myself;
        }
        let host = address.split('@').next().unwrap_or("");
        return SlotOwner::Other(format!("MOVED {slot} {host}"));
    }
    SlotOwner::Nobody
}

/// Whether a range (`7`, `0-5460`) has the slot. One on its way (`[7->-id]`)
/// is no range.
fn covers(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&slot),
        _ => false,
    }
}

/// The slot of a key, by the cluster's rule: CRC16 (XMODEM) of its hash tag,
/// or of the whole key, modulo 16384.
fn slot(key: &[u8]) -> u16 {
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

    #[test]
    fn the_owner_of_a_slot_is_found() {
        let nodes = "a 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-99 [100->-b]\n\
                     b 127.0.0.1:2@12,host master - 0 0 2 connected 100 200-300\n\
                     c 127.0.0.1:3@13 slave b 0 0 2 connected\n";
        assert_eq!(owner_in(nodes, 99), SlotOwner::Myself);
        assert_eq!(owner_in(nodes, 100), SlotOwner::Other("MOVED 100 127.0.0.1:2".into()));
        assert_eq!(owner_in(nodes, 250), SlotOwner::Other("MOVED 250 127.0.0.1:2".into()));
        assert_eq!(owner_in(nodes, 301), SlotOwner::Nobody);
    }
}
