//! `INFO rwlock`: each field is told of in `docs/monitoring.md`.

use super::{eviction, SERVER};
use crate::engine::{Engine, Progress};
use crate::ffi::{Ctx, Info, OnInfo};
use std::ffi::CStr;

/// The version of the module, in one place: the package's.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

struct Section;

impl OnInfo for Section {
    fn on_info(info: &mut Info<'_>) {
        info.text(c"version", VERSION);
        // Whoever asks in the middle of the engine's own work (the report of a
        // crash in it) is told no more than that.
        let Ok(server) = SERVER.try_borrow() else {
            return;
        };
        if let Some(server) = server.as_ref() {
            tell(info, &server.engine);
        }
        eviction::tell(info);
    }
}

fn tell(info: &mut Info<'_>, engine: &Engine) {
    let figures = &engine.figures;
    info.number(c"acquired", figures.acquired);
    info.number(c"refused", figures.refused);
    info.number(c"waited", figures.waited);
    info.number(c"granted_after_waiting", figures.granted_after_waiting);
    info.number(c"wait_ms_p50", figures.waits.percentile(50));
    info.number(c"wait_ms_p99", figures.waits.percentile(99));
    info.number(c"wait_ms_max", figures.waits.longest());
    info.number(c"timeouts", figures.timeouts);
    info.number(c"released", figures.released);
    info.number(c"lapsed", figures.lapsed);
    info.number(c"deadlocks", figures.deadlocks);
    info.number(c"disconnect_releases", figures.disconnect_releases);
    info.number(c"waiters", engine.waiters_now() as u64);
    info.number(c"queues", engine.queues_now() as u64);
    info.number(c"session_holds", engine.session_holds_now() as u64);
    let (sweep, percent) = match engine.progress() {
        Progress::Idle => (c"idle", 0),
        Progress::Running(percent) => (c"running", percent),
        Progress::Done => (c"done", 100),
    };
    info.text(c"sweep", sweep);
    info.number(c"sweep_percent", percent);
    info.number(c"pass_us_max", figures.longest_pass);
}

pub(super) fn write(ctx: Ctx<'_>) {
    ctx.write_info::<Section>();
}
