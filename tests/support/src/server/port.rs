//! Ports that no two test servers share, also across test processes.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::{env, io};

/// The distance from a server's port to that of its cluster bus.
const BUS: u16 = 10_000;

/// A port, and the one of its cluster bus, kept for their owner until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The lock on this file is the claim; closing it gives the port back.
    _lock: File,
}

impl Port {
    /// Claims a free port.
    pub fn claim() -> Self {
        let range = Self::range();
        let width = u64::from(range.end - range.start);
        // A random start keeps processes out of each other's way, and a port
        // that was just given back from being used again at once.
        let start = RandomState::new().build_hasher().finish() % width;
        (0..width)
            .map(|step| (start + step) % width)
            .filter_map(|offset| u16::try_from(offset).ok())
            .find_map(|offset| Self::try_claim(range.start + offset))
            .unwrap_or_else(|| panic!("no free port in {range:?}"))
    }

    /// Claims this port, unless another test has it or anybody listens on it.
    pub fn try_claim(number: u16) -> Option<Self> {
        let lock = lock_file(number).unwrap_or_else(|error| {
            panic!("cannot create the lock file of port {number}: {error}")
        });
        if !try_lock(&lock) {
            return None;
        }
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        (free(number) && free(number + BUS)).then_some(Self { number, _lock: lock })
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// Where ports are taken from.
    ///
    /// These ports and the bus ports right above them lie below the ports that
    /// the system gives to outgoing connections: one of those could otherwise
    /// take a port between a server's stop and its restart. Where there is no
    /// room below, the check by bind has to do.
    pub fn range() -> Range<u16> {
        let ephemeral = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
            .ok()
            .and_then(|line| line.split_whitespace().next()?.parse::<u16>().ok())
            .unwrap_or(32_768);
        let first =
            ephemeral.checked_sub(2 * BUS).filter(|first| *first >= 1_024).unwrap_or(20_000);
        first..first + BUS
    }
}

/// One file for each port. They stay behind, empty: deleting a lock file while
/// another process opens it would let both hold "the" lock.
fn lock_file(number: u16) -> io::Result<File> {
    let dir = lock_dir();
    fs::create_dir_all(&dir)?;
    OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(number.to_string()))
}

/// Takes the lock on the file, if nobody has it. It ends when the file is closed;
/// servers do not inherit it, files opened by Rust being close-on-exec.
fn try_lock(file: &File) -> bool {
    // SAFETY: flock touches no memory, and `file` keeps its descriptor open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// One directory for each user: the files of another one could not be opened.
fn lock_dir() -> PathBuf {
    // SAFETY: getuid has no preconditions and cannot fail.
    let user = unsafe { libc::getuid() };
    env::temp_dir().join(format!("redis-test-ports-{user}"))
}
