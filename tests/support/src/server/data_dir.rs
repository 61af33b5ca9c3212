//! Directories for the servers' data.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process, thread};

/// A server's data directory.
///
/// One that was made for the server goes away with it, except when the test
/// panics; one that the test named is the test's.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    temporary: bool,
}

impl DataDir {
    pub(super) fn new(given: Option<&Path>) -> Self {
        let cannot =
            |path: &Path, error| -> ! { panic!("cannot create {}: {error}", path.display()) };
        if let Some(path) = given {
            fs::create_dir_all(path).unwrap_or_else(|error| cannot(path, error));
            return Self { path: path.to_owned(), temporary: false };
        }
        loop {
            let path = env::temp_dir().join(unique_name());
            match fs::create_dir(&path) {
                Ok(()) => return Self { path, temporary: true },
                // Left by a process that had the same id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => cannot(&path, error),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("kept the data directory {}", self.path.display());
        } else if self.temporary {
            if let Err(error) = fs::remove_dir_all(&self.path) {
                eprintln!("cannot remove {}: {error}", self.path.display());
            }
        }
    }
}

/// A name that tells whoever finds the directory which test left it.
fn unique_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let thread = thread::current();
    let test: String = thread
        .name()
        .unwrap_or("thread")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("redis-test-{test}-{}-{count}", process::id())
}
