//! `INFO rwlock`. `docs/monitoring.md` explains each field.

use super::eviction;
use super::state::SERVER;
use crate::engine::{Engine, Progress};
use crate::ffi::{Ctx, Info, OnInfo};
use std::cell::RefCell;
use std::ffi::CStr;

/// The version of the module, from `Cargo.toml`.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// The section of INFO.
struct Section;

impl OnInfo for Section {
    fn on_info(info: &mut Info<'_>) {
        info.text(c"version", VERSION);
        // A server that crashes writes INFO into its crash report. In the middle of the engine's
        // work, or on another thread, the statistics cannot be read, so they are left out.
        let Some(Ok(server)) = SERVER.try_get().map(RefCell::try_borrow) else {
            return;
        };
        if let Some(server) = server.as_ref() {
            write_statistics(info, &server.engine);
        }
        eviction::write_warning(info);
    }
}

fn write_statistics(info: &mut Info<'_>, engine: &Engine) {
    let statistics = &engine.statistics;
    info.number(c"acquired", statistics.acquired);
    info.number(c"refused", statistics.refused);
    info.number(c"waited", statistics.waited);
    info.number(c"granted_after_waiting", statistics.granted_after_waiting);
    info.number(c"wait_ms_p50", statistics.wait_times.percentile(50));
    info.number(c"wait_ms_p99", statistics.wait_times.percentile(99));
    info.number(c"wait_ms_max", statistics.wait_times.longest());
    info.number(c"timeouts", statistics.timeouts);
    info.number(c"released", statistics.released);
    info.number(c"lapsed", statistics.lapsed);
    info.number(c"deadlocks", statistics.deadlocks);
    info.number(c"disconnect_releases", statistics.disconnect_releases);
    info.number(c"held_locks", engine.held_locks_now() as u64);
    info.number(c"waiters", engine.waiters_now() as u64);
    info.number(c"queues", engine.queues_now() as u64);
    info.number(c"session_holds", engine.session_holds_now() as u64);
    info.number(c"hold_ms_p50", statistics.hold_times.percentile(50));
    info.number(c"hold_ms_p99", statistics.hold_times.percentile(99));
    info.number(c"hold_ms_max", statistics.hold_times.longest());
    let (sweep, percent) = match engine.progress() {
        Progress::Idle => (c"idle", 0),
        Progress::Running(percent) => (c"running", percent),
        Progress::Done => (c"done", 100),
    };
    info.text(c"sweep", sweep);
    info.number(c"sweep_percent", percent);
    info.number(c"pass_us_max", statistics.longest_pass);
}

/// Registers the section with the server.
pub(super) fn write(ctx: Ctx<'_>) {
    ctx.write_info::<Section>();
}
