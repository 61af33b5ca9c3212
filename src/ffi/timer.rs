//! The one timer of the module.
//!
//! On Linux it is a kernel timer in the server's event loop, which goes by the steady clock. The
//! server's own timers go by the wall clock, and a server does not unload a module that has one.

use super::{api, guard, Ctx};
use redis_module::raw;

/// The callback of the timer.
pub trait OnTimer {
    /// Runs on the main thread, between commands. It must not write keys, because the changes
    /// would be propagated only with the next command.
    fn fired(ctx: Ctx<'_>);
}

/// The timer. It fires once after each [`Timer::set`].
pub struct Timer {
    /// A context that belongs to no command, for the callback, which gets none from the system.
    ctx: *mut raw::RedisModuleCtx,
    source: source::Source,
}

impl Timer {
    /// Creates a timer that is not set. The error is a text for the log.
    pub fn new<H: OnTimer>(ctx: Ctx<'_>) -> Result<Timer, String> {
        // SAFETY: `ctx` names this module, to which the new context belongs. It is freed when
        // the timer is dropped, or here.
        let own = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
        let source = source::Source::new::<H>(own).inspect_err(|_| {
            // SAFETY: it was made above, and no callback was left that uses it.
            unsafe { api!(RedisModule_FreeThreadSafeContext)(own) }
        })?;
        Ok(Timer { ctx: own, source })
    }

    /// Sets the timer to fire once in `ms` milliseconds (0: as soon as the event loop continues).
    /// This replaces the time that was set before.
    pub fn set(&mut self, ms: u64) {
        self.source.set(self.ctx, ms);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.source.stop(self.ctx);
        // SAFETY: `new` made it, a drop happens once, and the source, which has stopped, was
        // the only one to use it.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(self.ctx) };
    }
}

/// Calls `H` with the context that belongs to no command.
///
/// # Safety
/// It is called on the main thread, with a context of this module that lives for the call.
unsafe fn fire<H: OnTimer>(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the caller's promise.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        let _ = guard::callback(|| H::fired(ctx));
    }
}

#[cfg(target_os = "linux")]
mod source {
    use super::{fire, OnTimer};
    use crate::ffi::api;
    use redis_module::raw;
    use std::ffi::{c_int, c_void};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::ptr::null_mut;

    pub(super) struct Source(OwnedFd);

    impl Source {
        pub fn new<H: OnTimer>(ctx: *mut raw::RedisModuleCtx) -> Result<Source, String> {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            // SAFETY: it takes no pointers.
            let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
            if fd < 0 {
                return Err(format!("no timer: {}", std::io::Error::last_os_error()));
            }
            // SAFETY: the descriptor was opened above, and nobody else has it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: `stop` takes the descriptor out of the loop before it is closed and
            // before the context is freed.
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
            Ok(Source(fd))
        }

        pub fn set(&mut self, _ctx: *mut raw::RedisModuleCtx, ms: u64) {
            let value = libc::timespec {
                tv_sec: (ms / 1000) as libc::time_t,
                // To the kernel, 0 means never.
                tv_nsec: (ms % 1000 * 1_000_000).max(1) as libc::c_long,
            };
            let interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let time = libc::itimerspec { it_interval: interval, it_value: value };
            // SAFETY: `self` keeps the descriptor open; `time` lives for the call, and null
            // asks for no old value.
            unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &time, null_mut()) };
        }

        pub fn stop(&mut self, _ctx: *mut raw::RedisModuleCtx) {
            // SAFETY: `new` added the descriptor, and `self` keeps it open.
            unsafe {
                api!(RedisModule_EventLoopDel)(
                    self.0.as_raw_fd(),
                    raw::REDISMODULE_EVENTLOOP_READABLE as c_int,
                );
            }
        }
    }

    unsafe extern "C" fn readable<H: OnTimer>(fd: c_int, ctx: *mut c_void, _mask: c_int) {
        let mut count = [0_u8; 8];
        // SAFETY: the loop calls us for a descriptor that is open; `count` has room for what
        // is read.
        unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        // SAFETY: the loop runs on the main thread, and hands back the context of `new`, which
        // lives until the descriptor is taken out of the loop.
        unsafe { fire::<H>(ctx.cast()) };
    }
}

#[cfg(not(target_os = "linux"))]
mod source {
    use super::{fire, OnTimer};
    use crate::ffi::api;
    use redis_module::raw;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    /// A timer of the server, which goes by the wall clock. While it is set, the server does not
    /// unload the module.
    pub(super) struct Source {
        callback: raw::RedisModuleTimerProc,
        timer: Option<raw::RedisModuleTimerID>,
    }

    impl Source {
        pub fn new<H: OnTimer>(_ctx: *mut raw::RedisModuleCtx) -> Result<Source, String> {
            Ok(Source { callback: Some(callback::<H>), timer: None })
        }

        pub fn set(&mut self, ctx: *mut raw::RedisModuleCtx, ms: u64) {
            self.stop(ctx);
            // SAFETY: the timer keeps the context until it is dropped; there is no data.
            let timer =
                unsafe { api!(RedisModule_CreateTimer)(ctx, ms as i64, self.callback, null_mut()) };
            self.timer = Some(timer);
        }

        pub fn stop(&mut self, ctx: *mut raw::RedisModuleCtx) {
            if let Some(timer) = self.timer.take() {
                // SAFETY: the timer keeps the context until it is dropped. The server looks
                // the id up, and does nothing for one that has fired.
                unsafe { api!(RedisModule_StopTimer)(ctx, timer, null_mut()) };
            }
        }
    }

    unsafe extern "C" fn callback<H: OnTimer>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
        // SAFETY: the server runs timers on its main thread, and lends the context for the
        // call.
        unsafe { fire::<H>(ctx) };
    }
}
