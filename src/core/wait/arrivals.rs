//! The waiters of one owner.

use super::WaiterId;
use std::collections::BTreeMap;

/// The waiters of one owner, in the order of arrival, each with a value. Most owners have
/// one waiter: it is stored inline, without an allocation.
#[derive(Debug)]
pub enum Arrivals<T> {
    /// One waiter.
    One(WaiterId, T),
    /// Any number of waiters. It stays a map when waiters are removed.
    More(BTreeMap<WaiterId, T>),
}

impl<T: Copy> Arrivals<T> {
    /// Adds a waiter.
    pub fn insert(&mut self, id: WaiterId, value: T) {
        match self {
            Arrivals::One(first, of_first) => {
                *self = Arrivals::More(BTreeMap::from([(*first, *of_first), (id, value)]));
            }
            Arrivals::More(all) => {
                all.insert(id, value);
            }
        }
    }

    /// Removes a waiter and returns how many remain. On 0 the caller must drop the whole
    /// value: [`Arrivals::One`] cannot be empty.
    pub fn remove(&mut self, id: WaiterId) -> usize {
        match self {
            Arrivals::One(one, _) => usize::from(*one != id),
            Arrivals::More(all) => {
                all.remove(&id);
                all.len()
            }
        }
    }

    /// All waiters, in the order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (WaiterId, T)> + '_ {
        let (one, more) = match self {
            Arrivals::One(id, value) => (Some((*id, *value)), None),
            Arrivals::More(all) => (None, Some(all)),
        };
        one.into_iter().chain(more.into_iter().flatten().map(|(&id, &value)| (id, value)))
    }
}
