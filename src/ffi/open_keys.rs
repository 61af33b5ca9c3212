//! The keys that are open, in builds with debug assertions: a second handle of one key is a
//! bug, see [`Key`](super::Key).

use super::MainThread;
use std::cell::RefCell;

/// The database and the name of a key.
type OpenKey = (i32, Vec<u8>);

/// Each key that is open.
static OPEN: MainThread<RefCell<Vec<OpenKey>>> = MainThread::new(RefCell::new(Vec::new()));

/// Marks a key as open until it is dropped.
pub(super) struct Open(i32, Vec<u8>);

impl Open {
    pub fn new(db: i32, name: &[u8]) -> Open {
        let mut open = OPEN.borrow_mut();
        let key = (db, name.to_vec());
        assert!(!open.contains(&key), "{name:?} is open already");
        open.push(key.clone());
        Open(key.0, key.1)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.borrow_mut().retain(|(db, name)| (db, name) != (&self.0, &self.1));
    }
}
