//! Asking the server whether it would run a command of ours now, and why not.
//!
//! From 7.2 on the server has a dry run: it checks a command as if it were to run it, and
//! stops there. So no statistics, MONITOR, key event or slow log shows the question. The
//! command that is asked for is one of the module's own: `rename-command` works on the
//! commands that the server has before it loads modules, so it cannot take these away.
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
    /// The cluster is down, and set to serve reads all the same.
    DownForWrites,
    /// This node does not serve the key's slot, or it is on its way.
    Slot,
    /// Its role, its replicas or its disk do not allow it.
    Write,
}

/// What the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Whether a command that reads may go to the key.
    Read,
    /// Whether one that writes may, as far as the cluster goes.
    Write,
    /// The same, and whether its role, replicas and disk allow a write.
    WriteNow,
}

/// The first server with a dry run.
const HAS_DRY_RUN: Version = Version { major: 7, minor: 2, patch: 0 };

/// How the module's own commands are called that stand for all that write and read. The
/// first takes two arguments, the second one.
const WRITES: &CStr = c"rwlock.unlock";
const READS: &CStr = c"rwlock.inspect";

/// The commands of Redis 7.0 that do nothing with one argument.
const PROBE_WRITE: &CStr = c"rwlock.probe-write";
const PROBE_READ: &CStr = c"rwlock.probe-read";

/// Whether the server has a dry run.
static DRY_RUN: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Whether it is a node of a cluster.
static IN_CLUSTER: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// A context of no client, in a cluster, from the first question on: the flags of a client
/// (ASKING, READONLY) would let a command into a slot that is not fully this node's.
static NEUTRAL: MainThread<Cell<*mut raw::RedisModuleCtx>> = MainThread::new(Cell::new(null_mut()));

impl Ctx<'_> {
    /// Prepares the questions, when the module is loaded. What is wrong is said in the error.
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

    /// Whether the server would let a command read, or also write, a key in the slot of
    /// `absent`, which must not exist. The error says why not. Outside of a cluster it always
    /// would.
    pub fn would_serve(self, absent: &Text, access: Access) -> Result<(), Refusal> {
        match access {
            Access::Write => self.ask(self.neutral(), Question::Write, absent),
            Access::Read if self.situation().primary => {
                self.ask(self.neutral(), Question::Read, absent)
            }
            // A replica serves those clients that have said READONLY.
            Access::Read => self.ask(self.raw(), Question::Read, absent),
        }
    }

    /// Whether the server would take a write to a key in the slot of this one from us now:
    /// its role, its disk, its replicas and the slot allow it.
    pub fn would_write(self, absent: &Text) -> Result<(), Refusal> {
        self.ask(self.neutral(), Question::WriteNow, absent)
    }

    /// The context of no client; outside of a cluster any will do.
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

    /// Refusals come as replies (`E`, which `D` includes): Valkey 9.1 crashes where there
    /// is none in script mode.
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
        // The server tells the reason there. A call that succeeds may leave it as it was.
        let errno = std::io::Error::last_os_error().raw_os_error();
        if reply.is_null() {
            // A dry run that would go on has no reply.
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

/// Gives back what the questions need, before the module is unloaded.
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
