//! The waiters of one owner.

use super::WaiterId;
use std::collections::BTreeMap;

/// The waiters of one owner, in the order of arrival, each with what else there
/// is to know of it. Most owners have one, which takes no memory of its own.
#[derive(Debug)]
pub enum Arrivals<T> {
    /// The only one.
    One(WaiterId, T),
    /// Several, or once there were.
    More(BTreeMap<WaiterId, T>),
}

impl<T: Copy> Arrivals<T> {
    /// Adds one.
    pub fn insert(&mut self, id: WaiterId, what: T) {
        match self {
            Arrivals::One(first, of_first) => {
                *self = Arrivals::More(BTreeMap::from([(*first, *of_first), (id, what)]));
            }
            Arrivals::More(all) => {
                all.insert(id, what);
            }
        }
    }

    /// Removes one. How many are left; where that is none, it is for the caller
    /// to let go of the whole.
    pub fn remove(&mut self, id: WaiterId) -> usize {
        match self {
            Arrivals::One(one, _) => usize::from(*one != id),
            Arrivals::More(all) => {
                all.remove(&id);
                all.len()
            }
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (WaiterId, T)> + '_ {
        let (one, more) = match self {
            Arrivals::One(id, what) => (Some((*id, *what)), None),
            Arrivals::More(all) => (None, Some(all)),
        };
        one.into_iter().chain(more.into_iter().flatten().map(|(&id, &what)| (id, what)))
    }
}
