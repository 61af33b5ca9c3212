//! Memory that is freed in steps.

use super::memory::Locks;
use super::wheel::Wheel;

/// What was remembered of emptied databases. Freeing a million locks at once would block the
/// server, so each step frees a part.
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
