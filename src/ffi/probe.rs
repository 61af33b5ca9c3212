//! Asks the server whether it would run a command of the module now, and why not.
//!
//! From Redis 7.2 on the server has a dry run: it checks a command but does not run it. So the
//! question does not appear in statistics, MONITOR, key events or the slow log. It uses commands of
//! the module itself, because `rename-command` cannot remove them: it applies to the commands that
//! exist before the server loads modules.
//!
//! Redis 7.0 has no dry run. There the module registers two commands that do nothing, and
//! the server runs one of them: only COMMAND and `INFO commandstats` show them.

use super::key::Access;
use super::{api, guard, Ctx, MainThread, Text, Version};
use redis_module::raw;
use std::cell::Cell;
use std::ffi::{c_int, CStr};
use std::ptr::null_mut;

/// Why the server would not run a command on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The cluster is down.
    Down,
    /// The cluster is down, but configured to serve reads.
    DownForWrites,
    /// This node does not serve the key's slot, or the slot is moving.
    Slot,
    /// The server's role, its replicas or its disk do not allow a write.
    Write,
}

/// A question to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Whether the cluster allows a command that reads the key.
    Read,
    /// Whether the cluster allows a command that writes the key.
    Write,
    /// Whether the cluster and the server's role, replicas and disk allow a command that writes the
    /// key.
    WriteNow,
}

/// The first server version with a dry run.
const HAS_DRY_RUN: Version = Version { major: 7, minor: 2, patch: 0 };

/// The module's commands that are used for dry runs: one that writes, with two arguments, and one
/// that reads, with one argument.
const WRITES: &CStr = c"rwlock.unlock";
const READS: &CStr = c"rwlock.inspect";

/// The commands for Redis 7.0, which do nothing and have one argument.
const PROBE_WRITE: &CStr = c"rwlock.probe-write";
const PROBE_READ: &CStr = c"rwlock.probe-read";

/// Whether the server has a dry run.
static DRY_RUN: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Whether the server is a node of a cluster.
static IN_CLUSTER: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// A context without a client. In a cluster it is created at the first question, outside of one it
/// stays null. The flags of a client (ASKING, READONLY) would allow a command in a slot that this
/// node does not fully serve.
static NEUTRAL: MainThread<Cell<*mut raw::RedisModuleCtx>> = MainThread::new(Cell::new(null_mut()));

impl Ctx<'_> {
    /// Prepares the questions. To be called when the module is loaded. The error is a text for the
    /// log.
    pub fn prepare_probes(self) -> Result<(), String> {
        DRY_RUN.set(self.version().is_some_and(|version| version >= HAS_DRY_RUN));
        if !DRY_RUN.get() {
            for (name, flags) in [
                (PROBE_WRITE, c"write no-monitor no-slowlog"),
                (PROBE_READ, c"readonly no-monitor no-slowlog"),
            ] {
                let status = self.create_command(name, Some(nothing), flags, 1);
                if status != raw::REDISMODULE_OK as c_int {
                    return Err(format!("cannot create command {name:?}"));
                }
            }
        }
        IN_CLUSTER.set(self.is_cluster());
        Ok(())
    }

    /// Whether the cluster would allow a command with this access to a key in the slot of `absent`,
    /// which must not exist. The error says why not. Outside of a cluster the result is always Ok.
    pub fn would_serve(self, absent: &Text, access: Access) -> Result<(), Refusal> {
        match access {
            Access::Write => self.ask(self.neutral(), Question::Write, absent),
            Access::Read if self.situation().primary => {
                self.ask(self.neutral(), Question::Read, absent)
            }
            // A replica serves only clients that have sent READONLY.
            Access::Read => self.ask(self.raw(), Question::Read, absent),
        }
    }

    /// Whether the server would take a write of the module to a key in the slot of `absent`, which
    /// must not exist: its role, its disk, its replicas and the slot allow it. The error says why
    /// not.
    pub fn would_write(self, absent: &Text) -> Result<(), Refusal> {
        self.ask(self.neutral(), Question::WriteNow, absent)
    }

    /// The context without a client. Outside of a cluster it is this context.
    fn neutral(self) -> *mut raw::RedisModuleCtx {
        if NEUTRAL.get().is_null() && IN_CLUSTER.get() {
            // SAFETY: the context lives as long as `self` and names the module to which the new
            // one belongs. `drop_probes` frees that.
            NEUTRAL.set(unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(self.raw()) });
        }
        match NEUTRAL.get() {
            neutral if neutral.is_null() => self.raw(),
            neutral => neutral,
        }
    }

    /// Asks the question. The format `E` (included in `D`) makes the server return a refusal as a
    /// reply, because in script mode (`S`) Valkey 9.1 crashes without one.
    fn ask(
        self,
        ctx: *mut raw::RedisModuleCtx,
        question: Question,
        absent: &Text,
    ) -> Result<(), Refusal> {
        let key = absent.raw();
        // SAFETY: `ctx` is this context or the neutral one, which lives until `drop_probes`.
        // Each `s` stands for a string, and `absent` is lent for the call.
        let reply = unsafe {
            let call = api!(RedisModule_Call);
            match (DRY_RUN.get(), question) {
                (true, Question::Read) => call(ctx, READS.as_ptr(), c"Ds".as_ptr(), key),
                (true, Question::Write) => call(ctx, WRITES.as_ptr(), c"Dss".as_ptr(), key, key),
                (true, Question::WriteNow) => {
                    call(ctx, WRITES.as_ptr(), c"SDss".as_ptr(), key, key)
                }
                (false, Question::Read) => call(ctx, PROBE_READ.as_ptr(), c"Es".as_ptr(), key),
                (false, Question::Write) => call(ctx, PROBE_WRITE.as_ptr(), c"Es".as_ptr(), key),
                (false, Question::WriteNow) => {
                    call(ctx, PROBE_WRITE.as_ptr(), c"SEs".as_ptr(), key)
                }
            }
        };
        // The reason for a refusal. A call that succeeds may not change it.
        let errno = std::io::Error::last_os_error().raw_os_error();
        if reply.is_null() {
            // A dry run without a refusal has no reply.
            return if DRY_RUN.get() { Ok(()) } else { Err(Refusal::Write) };
        }
        // SAFETY: the call above made the reply for its caller, who frees it here.
        let kind = unsafe {
            let kind = api!(RedisModule_CallReplyType)(reply);
            api!(RedisModule_FreeCallReply)(reply);
            kind
        };
        if kind != raw::REDISMODULE_REPLY_ERROR as c_int {
            return Ok(());
        }
        Err(match errno {
            Some(libc::ENETDOWN) => Refusal::Down,
            Some(libc::EROFS) => Refusal::DownForWrites,
            Some(libc::EPERM) => Refusal::Slot,
            _ => Refusal::Write,
        })
    }
}

/// Frees the context without a client. To be called before the module is unloaded.
pub fn drop_probes() {
    let neutral = NEUTRAL.replace(null_mut());
    if !neutral.is_null() {
        // SAFETY: `Ctx::neutral` made it, and only `NEUTRAL` had it.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(neutral) };
    }
}

/// The command that does nothing.
unsafe extern "C" fn nothing(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server lends the context for this call.
    let replied = guard::guarded(|| unsafe { api!(RedisModule_ReplyWithLongLong)(ctx, 0) });
    replied.unwrap_or(raw::REDISMODULE_ERR as c_int)
}
