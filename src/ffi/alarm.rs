//! One alarm for all that the module does by the clock.
//!
//! On Linux it is a timer of the kernel's in the server's event loop, which goes by
//! the clock that nobody sets. The server's own timers go by the wall clock, and a
//! server does not unload a module that has one.

use super::{api, guard, Ctx};
use redis_module::raw;

/// What to do when the alarm rings.
pub trait OnAlarm {
    /// Runs between commands. Keys must not be written here: nothing would be
    /// propagated before the next command is.
    fn wake(ctx: Ctx<'_>);
}

/// The alarm: at most one time at which it rings.
pub struct Alarm {
    /// A context that belongs to no command, for callbacks that get none.
    ctx: *mut raw::RedisModuleCtx,
    clock: clock::Clock,
}

impl Alarm {
    /// Sets it up, silent. What is wrong is said in the error.
    pub fn new<H: OnAlarm>(ctx: Ctx<'_>) -> Result<Alarm, String> {
        // SAFETY: a valid context; the new one is freed with the alarm, or here.
        let own = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
        let clock = clock::Clock::new::<H>(own).inspect_err(|_| {
            // SAFETY: made above, used by nobody.
            unsafe { api!(RedisModule_FreeThreadSafeContext)(own) }
        })?;
        Ok(Alarm { ctx: own, clock })
    }

    /// Rings in `ms` milliseconds, 0: as soon as the event loop goes on, and no
    /// more at what was set before.
    pub fn set(&mut self, ms: u64) {
        self.clock.set(self.ctx, ms);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clock.stop(self.ctx);
        // SAFETY: made once, freed once; the clock no longer uses it.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(self.ctx) };
    }
}

/// Calls `H` with the context that belongs to no command.
///
/// # Safety
/// The main thread, and a valid context of this module.
unsafe fn wake<H: OnAlarm>(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the caller's promise.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        // A panic is in the log already.
        let _ = guard::guarded(|| H::wake(ctx));
    }
}

#[cfg(target_os = "linux")]
mod clock {
    use super::{wake, OnAlarm};
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

        pub fn set(&mut self, _ctx: *mut raw::RedisModuleCtx, ms: u64) {
            let value = libc::timespec {
                tv_sec: (ms / 1000) as libc::time_t,
                // Of 0 the kernel makes never.
                tv_nsec: (ms % 1000 * 1_000_000).max(1) as libc::c_long,
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
        // SAFETY: the server calls us on its main thread, with the context that it
        // was given for this.
        unsafe { wake::<H>(ctx.cast()) };
    }
}

#[cfg(not(target_os = "linux"))]
mod clock {
    use super::{wake, OnAlarm};
    use crate::ffi::api;
    use redis_module::raw;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    /// The server's own timer, which goes by the wall clock. While one is set the
    /// module cannot be unloaded.
    pub(super) struct Clock {
        rang: raw::RedisModuleTimerProc,
        timer: Option<raw::RedisModuleTimerID>,
    }

    impl Clock {
        pub fn new<H: OnAlarm>(_ctx: *mut raw::RedisModuleCtx) -> Result<Clock, String> {
            Ok(Clock { rang: Some(rang::<H>), timer: None })
        }

        pub fn set(&mut self, ctx: *mut raw::RedisModuleCtx, ms: u64) {
            self.stop(ctx);
            // SAFETY: a context of this module; no data.
            let timer =
                unsafe { api!(RedisModule_CreateTimer)(ctx, ms as i64, self.rang, null_mut()) };
            self.timer = Some(timer);
        }

        pub fn stop(&mut self, ctx: *mut raw::RedisModuleCtx) {
            if let Some(timer) = self.timer.take() {
                // SAFETY: a context of this module. A timer that ran is unknown
                // to the server by now, which then does nothing.
                unsafe { api!(RedisModule_StopTimer)(ctx, timer, null_mut()) };
            }
        }
    }

    unsafe extern "C" fn rang<H: OnAlarm>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
        // SAFETY: the server calls us on its main thread with a context.
        unsafe { wake::<H>(ctx) };
    }
}
