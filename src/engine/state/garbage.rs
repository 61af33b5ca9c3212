//! Memory that is given back in steps.

use super::memory::Locks;
use super::wheel::Wheel;

/// What was remembered of a database that is forgotten as a whole: to drop a
/// million locks at once would take long.
#[derive(Default)]
pub struct Garbage {
    locks: Vec<Box<Locks>>,
    wheels: Vec<Wheel>,
}

impl Garbage {
    pub fn add(&mut self, locks: Option<Box<Locks>>, wheel: Option<Box<Wheel>>) {
        self.locks.extend(locks);
        self.wheels.extend(wheel.map(|wheel| *wheel));
    }

    pub fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.wheels.is_empty()
    }

    pub fn drop_some(&mut self) {
        if let Some(locks) = self.locks.last_mut() {
            if !locks.drop_some() {
                self.locks.pop();
            }
        } else if let Some(wheel) = self.wheels.last_mut() {
            if !wheel.drop_some() {
                self.wheels.pop();
            }
        }
    }
}
