//! One alarm for all that the module does by the clock.
//!
//! On Linux it is a timer of the kernel's in the server's event loop, and only
//! when it rings does a timer of the server's follow, at once, whose callback
//! may write and propagate. A server does not unload a module that has a timer
//! of its own, however far away; so there is none but in that moment.

use super::{api, guard, Ctx};
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to do when the alarm rings.
pub trait OnAlarm {
    /// Runs where writing is allowed, outside of any command.
    fn ring(ctx: Ctx<'_>);
}

/// Whether the server's own timer is about to run.
static RINGING: AtomicBool = AtomicBool::new(false);

/// Has `H` called as soon as the server is done with what it does now.
fn ring_now<H: OnAlarm>(ctx: *mut raw::RedisModuleCtx) {
    if !RINGING.swap(true, Ordering::Relaxed) {
        // SAFETY: a context of this module; no data.
        unsafe { api!(RedisModule_CreateTimer)(ctx, 0, Some(rang::<H>), null_mut()) };
    }
}

unsafe extern "C" fn rang<H: OnAlarm>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    RINGING.store(false, Ordering::Relaxed);
    // SAFETY: the server calls us on its main thread with a context.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        let _ = guard::guarded(|| H::ring(ctx));
    }
}

/// Nobody is told when the clock of the server is set: so it is looked at as
/// often as this, in ms.
const MAX_MS: u64 = 1_000;

/// The alarm: at most one time at which it rings.
pub struct Alarm {
    /// A context that belongs to no command, for callbacks that get none.
    ctx: *mut raw::RedisModuleCtx,
    clock: clock::Clock,
}

impl Alarm {
    /// Sets it up, silent. What is wrong is said in the error.
    pub fn new<H: OnAlarm>(ctx: Ctx<'_>) -> Result<Alarm, String> {
        // SAFETY: a valid context; the new one is freed with the alarm.
        let own = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
        Ok(Alarm { ctx: own, clock: clock::Clock::new::<H>(own)? })
    }

    /// Rings in `ms` milliseconds, or after a second if that is earlier, and no
    /// more at what was set before.
    pub fn set<H: OnAlarm>(&mut self, ms: u64) {
        if ms == 0 {
            ring_now::<H>(self.ctx);
        } else {
            self.clock.set::<H>(self.ctx, ms.min(MAX_MS));
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: made once, freed once; the clock no longer uses it.
        unsafe {
            self.clock.stop(self.ctx);
            api!(RedisModule_FreeThreadSafeContext)(self.ctx);
        }
    }
}

#[cfg(target_os = "linux")]
mod clock {
    use super::{ring_now, OnAlarm};
    use crate::ffi::api;
    use redis_module::raw;
    use std::ffi::{c_int, c_void};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::ptr::null_mut;

    pub(super) struct Clock(OwnedFd);

    impl Clock {
        pub fn new<H: OnAlarm>(ctx: *mut raw::RedisModuleCtx) -> Result<Clock, String> {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            // SAFETY: no pointers; a new descriptor is ours.
            let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
            if fd < 0 {
                return Err(format!("no timer: {}", std::io::Error::last_os_error()));
            }
            // SAFETY: just made, owned by nobody else.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: the descriptor is taken out of the loop before it is
            // closed; the context lives as long as the alarm.
            let status = unsafe {
                api!(RedisModule_EventLoopAdd)(
                    fd.as_raw_fd(),
                    raw::REDISMODULE_EVENTLOOP_READABLE as c_int,
                    Some(readable::<H>),
                    ctx.cast(),
                )
            };
            if status != raw::REDISMODULE_OK as c_int {
                return Err("the event loop takes no timer".into());
            }
            Ok(Clock(fd))
        }

        pub fn set<H: OnAlarm>(&mut self, _ctx: *mut raw::RedisModuleCtx, ms: u64) {
            let value = libc::timespec {
                tv_sec: (ms / 1000) as libc::time_t,
                tv_nsec: (ms % 1000 * 1_000_000) as libc::c_long,
            };
            let interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let time = libc::itimerspec { it_interval: interval, it_value: value };
            // SAFETY: an open descriptor and a time that is read only.
            unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &time, null_mut()) };
        }

        pub fn stop(&mut self, _ctx: *mut raw::RedisModuleCtx) {
            // SAFETY: the descriptor was added, and is still open.
            unsafe {
                api!(RedisModule_EventLoopDel)(
                    self.0.as_raw_fd(),
                    raw::REDISMODULE_EVENTLOOP_READABLE as c_int,
                );
            }
        }
    }

    unsafe extern "C" fn readable<H: OnAlarm>(fd: c_int, ctx: *mut c_void, _mask: c_int) {
        let mut rings = [0_u8; 8];
        // SAFETY: an open descriptor that does not block, and room for its
        // eight bytes.
        unsafe { libc::read(fd, rings.as_mut_ptr().cast(), rings.len()) };
        let _ = crate::ffi::guard::guarded(|| ring_now::<H>(ctx.cast()));
    }
}

#[cfg(not(target_os = "linux"))]
mod clock {
    use super::{rang, OnAlarm};
    use crate::ffi::api;
    use redis_module::raw;
    use std::ptr::null_mut;

    /// The server's own timer. While one is set the module cannot be unloaded.
    pub(super) struct Clock(Option<raw::RedisModuleTimerID>);

    impl Clock {
        pub fn new<H: OnAlarm>(_ctx: *mut raw::RedisModuleCtx) -> Result<Clock, String> {
            Ok(Clock(None))
        }

        pub fn set<H: OnAlarm>(&mut self, ctx: *mut raw::RedisModuleCtx, ms: u64) {
            self.stop(ctx);
            // SAFETY: a context of this module; no data.
            let timer = unsafe {
                api!(RedisModule_CreateTimer)(ctx, ms as i64, Some(rang::<H>), null_mut())
            };
            self.0 = Some(timer);
        }

        pub fn stop(&mut self, ctx: *mut raw::RedisModuleCtx) {
            if let Some(timer) = self.0.take() {
                // SAFETY: a context of this module. A timer that ran is unknown
                // to the server by now, which then does nothing.
                unsafe { api!(RedisModule_StopTimer)(ctx, timer, null_mut()) };
            }
        }
    }
}
