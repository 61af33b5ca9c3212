//! The name of a lock among the locks that were waited for longest.

use super::memory::LockId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The longest name that is kept whole, in bytes. So the counters take no more memory than
/// `docs/commands/hotlocks.md` says, however long the names are.
pub const MAX_HOT_NAME: usize = 1_024;

/// A lock that was waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HotLock {
    /// The database in which the lock was waited for.
    pub db: i32,
    /// The name, or the first [`MAX_HOT_NAME`] bytes of it.
    pub name: Arc<[u8]>,
    /// The rest of a longer name.
    pub rest: Option<NameRest>,
}

/// What is kept of the rest of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameRest {
    /// Its length in bytes.
    pub len: usize,
    /// Its hash, so that names with the same beginning and length are told apart.
    hash: u64,
}

impl From<&LockId> for HotLock {
    fn from(LockId { db, name }: &LockId) -> HotLock {
        let Some((kept, rest)) = name.split_at_checked(MAX_HOT_NAME).filter(|(_, r)| !r.is_empty())
        else {
            return HotLock { db: *db, name: name.clone(), rest: None };
        };
        let mut hasher = DefaultHasher::new();
        rest.hash(&mut hasher);
        let rest = NameRest { len: rest.len(), hash: hasher.finish() };
        HotLock { db: *db, name: kept.into(), rest: Some(rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Event, EventEnd, HotLocks};

    fn hot(name: &[u8]) -> HotLock {
        HotLock::from(&LockId { db: 0, name: name.into() })
    }

    #[test]
    fn long_names_are_cut_and_still_told_apart() {
        let whole = hot(&[b'x'; MAX_HOT_NAME]);
        assert_eq!((whole.name.len(), whole.rest), (MAX_HOT_NAME, None));
        let names =
            [vec![b'x'; 2_000], vec![b'x'; 2_001], [[b'x'; 1_999].as_slice(), b"y"].concat()];
        let cut = names.each_ref().map(|name| hot(name));
        assert_eq!(cut[0], hot(&names[0]));
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            assert_ne!(cut[one], cut[other]);
            assert_eq!(cut[one].name, cut[other].name);
        }
        assert_eq!(cut[1].rest.map(|rest| rest.len), Some(2_001 - MAX_HOT_NAME));
    }

    #[test]
    fn they_take_no_more_memory_than_the_docs_say() {
        let mut locks: HotLocks<HotLock> = HotLocks::default();
        for number in 0..3_000 {
            let name = [number.to_string().as_bytes(), &[b'x'; 5_000]].concat();
            locks.add(&hot(&name), Event { waited: Some(7), end: EventEnd::Other });
        }
        let kept = locks.longest_first();
        assert_eq!(kept.len(), 1_000);
        let names: usize =
            kept.iter().map(|hot| hot.lock.name.len() + 2 * size_of::<usize>()).sum();
        // docs/commands/hotlocks.md: at most 1.5 MB.
        assert!(names + locks.table_bytes() < 1_500_000, "{names} + {}", locks.table_bytes());
        assert!(locks.table_bytes() < 300_000, "{}", locks.table_bytes());
    }
}
