//! The machine: which core is whose, what a process has used of it, what it is.

use std::fs;
use std::path::Path;

/// Who runs where. With one core there is nothing to choose.
#[derive(Clone, Copy)]
pub enum Layout {
    /// The servers have one core, the load generator has the other.
    Apart {
        load: usize,
        server: usize,
    },
    Together,
}

impl Layout {
    /// Chooses, and moves this process to its core.
    pub fn choose() -> Self {
        let cores = cores();
        let (Some(&load), Some(&server)) = (cores.first(), cores.last()) else {
            return Self::Together;
        };
        if load == server || !pin_thread(0, load) {
            return Self::Together;
        }
        Self::Apart { load, server }
    }

    /// Moves a server, with all its threads, to the servers' core.
    pub fn place_server(self, pid: u32) {
        if let Self::Apart { server, .. } = self {
            place(pid, server);
        }
    }

    /// Moves a process that is not measured to the load generator's core.
    pub fn place_aside(self, pid: u32) {
        if let Self::Apart { load, .. } = self {
            place(pid, load);
        }
    }

    /// Can the load generator look for replies without a pause? Alone on its
    /// core it can: what it takes to wake it is then in no figure.
    pub fn spins(self) -> bool {
        matches!(self, Self::Apart { .. })
    }

    pub fn describe(self) -> String {
        match self {
            Self::Apart { load, server } => {
                format!("servers pinned to core {server}, load generator to core {load}")
            }
            Self::Together => "servers and load generator share all cores".into(),
        }
    }
}

fn place(pid: u32, core: usize) {
    for process in family(pid) {
        for thread in numbers_in(&format!("/proc/{process}/task")) {
            // One that has just ended needs no place.
            pin_thread(thread, core);
        }
    }
}

/// How long the threads of this process and of its children have run, in ns.
pub fn cpu_time(pid: u32) -> f64 {
    let of_thread = |path: &Path| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    let of_process = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| of_thread(&task.path())).sum::<f64>()
    };
    family(pid).into_iter().map(of_process).sum()
}

/// How long a process has run, to the moment: [`cpu_time`] tells of what it does
/// just now only when it next sleeps.
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// That of a process, without its children.
    pub fn of(pid: u32) -> Self {
        let mut clock = 0;
        let pid = libc::pid_t::try_from(pid).expect("a pid");
        // SAFETY: writes the one number that it is given.
        let failed = unsafe { libc::clock_getcpuclockid(pid, &mut clock) };
        assert_eq!(failed, 0, "no clock of process {pid}");
        Self(clock)
    }

    /// The time, in ns.
    pub fn now(&self) -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the one time that it is given.
        let failed = unsafe { libc::clock_gettime(self.0, &mut time) };
        assert_eq!(failed, 0, "the process is gone");
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    for thread in numbers_in(&format!("/proc/{pid}/task")) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"));
        let children = children.unwrap_or_default();
        family.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    family
}

fn numbers_in(folder: &str) -> Vec<u32> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect()
}

/// The cores that this process may use.
#[cfg(target_os = "linux")]
fn cores() -> Vec<usize> {
    // SAFETY: a cpu_set_t is plain bits, for which zero is a value; the call
    // writes at most the size it is told.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        set
    };
    let most = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: the core is one of those that the set has room for.
    (0..most).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// Moves a thread (0: this one) to a core.
#[cfg(target_os = "linux")]
fn pin_thread(thread: u32, core: usize) -> bool {
    let Ok(thread) = libc::pid_t::try_from(thread) else { return false };
    // SAFETY: a cpu_set_t is plain bits, for which zero is a value; `core` came
    // out of such a set, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn cores() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn pin_thread(_: u32, _: usize) -> bool {
    false
}

/// As many open files as this process may have: a default of 1,024 is too few.
pub fn raise_file_limit() {
    // SAFETY: an rlimit is two numbers, which the first call fills in and the
    // second only reads.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            // If it is refused, connecting will say what is missing.
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// The load average of the last minute.
pub fn busy() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|average| average.parse().ok()).unwrap_or(0.0)
}

/// Processor, cores, memory and system, in one line.
pub fn describe() -> String {
    let value = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
        value.map_or_else(|| "unknown".into(), str::to_owned)
    };
    let memory = value("/proc/meminfo", "MemTotal");
    let kib = memory.split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let hypervisor = value("/proc/cpuinfo", "flags").contains("hypervisor");
    // This process is pinned to one of them.
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = processors.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{}, {cores} cores{}, {:.0} GiB of memory, Linux {}",
        value("/proc/cpuinfo", "model name"),
        if hypervisor { " (a virtual machine)" } else { "" },
        kib / 1_048_576.0,
        release.trim(),
    )
}
