//! Which slot of a cluster a key belongs to.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 of its hash tag, if it has one, else of all of it.
pub fn slot(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

/// What is between the first `{` and the first `}` after it, unless that is
/// nothing.
fn hashed_part(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close])
    });
    match tag {
        Some(tag) if !tag.is_empty() => tag,
        _ => key,
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}
