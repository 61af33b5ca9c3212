//! A wall clock of a server's own, which the test sets: see `clock.c`.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{fence, AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::data_dir::DataDir;

/// The files in a clock's directory.
const LIBRARY: &str = "clock.so";
const FACE: &str = "face";

/// What `clock.c` reads.
#[repr(C)]
struct Face {
    turn: AtomicU64,
    offset: AtomicI64,
    since: AtomicI64,
    drift: AtomicI64,
}

/// The wall clock of the servers that are started with it. Their clock that only
/// goes forward stays true.
#[derive(Debug)]
pub struct Clock {
    dir: DataDir,
    face: *mut Face,
}

// SAFETY: the mapping lives as long as this, and holds atomics only.
unsafe impl Send for Clock {}
// SAFETY: the same.
unsafe impl Sync for Clock {}

impl Clock {
    /// One that goes right.
    pub fn make() -> Clock {
        let dir = DataDir::new(None);
        let (source, path) = (dir.path().join("clock.c"), dir.path().join(FACE));
        fs::write(&source, include_str!("clock.c")).expect("write clock.c");
        let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let status = Command::new(cc)
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .args([&dir.path().join(LIBRARY), &source])
            .status()
            .expect("run the C compiler");
        assert!(status.success(), "clock.c does not compile");
        fs::write(&path, [0; size_of::<Face>()]).expect("write the clock's file");
        let file = File::options().read(true).write(true).open(&path).expect("open it");
        // SAFETY: a new mapping of an open file of that size, which the kernel
        // places.
        let map = unsafe {
            libc::mmap(
                null_mut(),
                size_of::<Face>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert!(map != libc::MAP_FAILED, "map the clock's file");
        Clock { dir, face: map.cast() }
    }

    /// How far it is ahead of this machine's clock, in µs.
    pub fn ahead(&self) -> i64 {
        let face = self.face();
        let gone = steady_micros() - face.since.load(Ordering::Relaxed);
        let drift = face.drift.load(Ordering::Relaxed);
        face.offset.load(Ordering::Relaxed) + gone * drift / 1_000_000
    }

    /// How many µs it gains in each second.
    pub fn drifts(&self) -> i64 {
        self.face().drift.load(Ordering::Relaxed)
    }

    /// The time that it shows, a unix time in µs.
    pub fn micros(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
        i64::try_from(now.as_micros()).expect("a time in this age") + self.ahead()
    }

    /// The same in ms.
    pub fn now(&self) -> i64 {
        self.micros() / 1_000
    }

    /// Sets it forward by so many ms, or back.
    pub fn step(&self, ms: i64) {
        self.set(self.ahead() + ms * 1_000, self.drifts());
    }

    /// Has it gain so many µs in each second from now on, or lose them.
    pub fn drift(&self, ppm: i64) {
        self.set(self.ahead(), ppm);
    }

    /// Only one thread sets a clock.
    fn set(&self, offset: i64, drift: i64) {
        let face = self.face();
        face.turn.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        face.offset.store(offset, Ordering::Relaxed);
        face.since.store(steady_micros(), Ordering::Relaxed);
        face.drift.store(drift, Ordering::Relaxed);
        face.turn.fetch_add(1, Ordering::SeqCst);
    }

    fn face(&self) -> &Face {
        // SAFETY: mapped in `new`, unmapped in `drop`.
        unsafe { &*self.face }
    }

    /// The environment of a server that goes by it.
    pub(super) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let file = |name| self.dir.path().join(name);
        [("LD_PRELOAD", file(LIBRARY)), ("RWLOCK_TEST_CLOCK", file(FACE))]
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, with this size, and borrowed by nobody.
        unsafe { libc::munmap(self.face.cast(), size_of::<Face>()) };
    }
}

/// What CLOCK_MONOTONIC says, in µs.
fn steady_micros() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}
