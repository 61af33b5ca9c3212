//! Session holds: which holds are bound to which connection.
//!
//! A binding names one hold: the read hold with a number, or one of an owner's
//! write holds, which have no numbers. It ends with that hold.

use super::memory::LockId;
use crate::core::{Kind, Millis, OwnerId, Token};
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// Names a binding.
pub type BindingId = u64;

/// A hold, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its kind.
    pub kind: Kind,
    /// Its number; 0 for a write hold.
    pub number: u64,
}

impl Bound {
    /// The read hold of this number is gone: those above it move down.
    pub fn close_gap(&mut self, gone: u64) {
        if self.kind == Kind::Read && self.number > gone {
            self.number -= 1;
        }
    }
}

/// What a request was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The hold.
    pub hold: Bound,
    /// Whether the owner had it not before, and nobody relies on it since; with
    /// ONCE either may be.
    pub is_new: bool,
    /// The fencing token that came with it.
    pub token: Option<Token>,
    /// What binds it to its connection.
    pub binding: Option<BindingId>,
}

/// A hold that is bound to a connection.
#[derive(Clone, Debug)]
pub struct Binding {
    pub client: u64,
    pub lock: LockId,
    pub owner: OwnerId,
    pub hold: Bound,
    pub lease: Millis,
    /// When it is to be renewed.
    pub due: Millis,
    /// Whether the client has been told of it.
    pub told: bool,
}

/// All bindings.
#[derive(Default)]
pub struct Sessions {
    last: BindingId,
    bindings: HashMap<BindingId, Binding>,
    of_client: HashMap<u64, BTreeSet<BindingId>>,
    of_lock: HashMap<LockId, HashMap<OwnerId, Vec<BindingId>>>,
}

impl Sessions {
    /// Whether there are none, so that nobody need look.
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Adds one.
    pub fn add(&mut self, binding: Binding) -> BindingId {
        self.last += 1;
        let id = self.last;
        self.of_client.entry(binding.client).or_default().insert(id);
        let owners = self.of_lock.entry(binding.lock.clone()).or_default();
        owners.entry(binding.owner.clone()).or_default().push(id);
        self.bindings.insert(id, binding);
        id
    }

    /// One of them.
    pub fn get(&self, id: BindingId) -> Option<&Binding> {
        self.bindings.get(&id)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: BindingId) -> Option<&mut Binding> {
        self.bindings.get_mut(&id)
    }

    /// The client does not know of a hold yet.
    pub fn keep_from(&mut self, grant: &Grant) {
        if let Some(binding) = grant.binding.and_then(|id| self.bindings.get_mut(&id)) {
            binding.told = false;
        }
    }

    /// Now it does.
    pub fn tell(&mut self, grant: Option<Grant>) {
        let id = grant.and_then(|grant| grant.binding);
        if let Some(binding) = id.and_then(|id| self.bindings.get_mut(&id)) {
            binding.told = true;
        }
    }

    /// Ends one.
    pub fn remove(&mut self, id: BindingId) -> Option<Binding> {
        let binding = self.bindings.remove(&id)?;
        if let Some(ids) = self.of_client.get_mut(&binding.client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_client.remove(&binding.client);
            }
        }
        if let Some(owners) = self.of_lock.get_mut(&binding.lock) {
            if let Some(ids) = owners.get_mut(&binding.owner) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    owners.remove(&binding.owner);
                }
            }
            if owners.is_empty() {
                self.of_lock.remove(&binding.lock);
            }
        }
        Some(binding)
    }

    /// The bindings of a connection.
    pub fn of_client(&self, client: u64) -> Vec<BindingId> {
        self.of_client.get(&client).into_iter().flatten().copied().collect()
    }

    /// The bindings of an owner's holds on a lock.
    pub fn of_owner(&self, lock: &LockId, owner: &[u8]) -> &[BindingId] {
        self.of_lock.get(lock).and_then(|owners| owners.get(owner)).map_or(&[], Vec::as_slice)
    }

    /// Ends all bindings of a lock; gives them back.
    pub fn drop_lock(&mut self, lock: &LockId) -> Vec<(BindingId, Binding)> {
        let owners = self.of_lock.get(lock);
        let ids: Vec<BindingId> =
            owners.into_iter().flat_map(HashMap::values).flatten().copied().collect();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }
}
