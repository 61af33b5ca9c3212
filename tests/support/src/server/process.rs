//! Server processes that never outlive the test process.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{channel, Sender};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::wait::POLL;

type Order = (Command, Sender<io::Result<Child>>);

/// The thread that starts all servers.
///
/// A process with `PR_SET_PDEATHSIG` dies with the *thread* that started it.
/// This one lives as long as the test process, so a server may outlive the
/// thread that asked for it.
static STARTER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    thread::Builder::new()
        .name("server-starter".to_owned())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // Nobody listens only when the asking thread is gone: nothing to tell.
                drop(answer.send(command.spawn()));
            }
        })
        .expect("start the thread that starts servers");
    orders
});

/// Starts `command`; the kernel kills it when this process ends, however it ends
/// (on Linux; elsewhere only `Drop` does).
pub(super) fn spawn(mut command: Command) -> io::Result<Child> {
    #[cfg(target_os = "linux")]
    die_with_parent(&mut command);
    let (answer, child) = channel();
    STARTER.send((command, answer)).expect("the starter thread never ends");
    child.recv().expect("the starter thread answers every order")
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    let parent = pid(std::process::id());
    // SAFETY: the closure runs in the child between fork and exec, where only
    // async-signal-safe calls are allowed; prctl and getppid are, and neither
    // of the two errors allocates.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the line above took effect.
            if libc::getppid() != parent {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            Ok(())
        });
    }
}

/// Sends a signal to a child that has not been waited for.
pub(super) fn signal(child: &Child, signal: libc::c_int) {
    let pid = pid(child.id());
    // SAFETY: kill touches no memory of this process. `child` has not been
    // reaped, so its pid names this child and nobody else.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "signal {signal} to {pid}: {}", io::Error::last_os_error());
}

/// How `child` ended, or `None` if it still runs after `limit`.
pub(super) fn wait_for_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        let last_look = started.elapsed() >= limit;
        let status = child.try_wait().expect("ask for the state of the server");
        if status.is_some() || last_look {
            return status;
        }
        thread::sleep(POLL);
    }
}

/// A process id as the C library has it.
fn pid(id: u32) -> libc::pid_t {
    libc::pid_t::try_from(id).expect("process ids are positive numbers of 31 bits")
}

/// SIGKILL, and wait until it is gone.
pub(super) fn kill(child: &mut Child) {
    child.kill().expect("kill the server");
    child.wait().expect("wait for the killed server");
}
