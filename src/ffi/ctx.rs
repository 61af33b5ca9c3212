//! The context of a running command.

use super::{api, log, Str};
use redis_module::raw;
use std::ffi::{c_char, c_int, CStr};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::{SystemTime, UNIX_EPOCH};

/// The option of a module that keeps what it knows right while slots move atomically
/// (`VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION`).
const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// The context that the server lends to a callback, on its main thread and for as long as
/// the callback runs: a `Ctx` can neither leave that thread nor outlive it.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: NonNull<raw::RedisModuleCtx>,
    /// Whether the callback runs a command.
    command: bool,
    callback: PhantomData<&'a ()>,
}

/// The Redis version with which a server is compatible. All versions of Valkey return 7.2.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major number.
    pub major: u8,
    /// The minor number.
    pub minor: u8,
    /// The patch number.
    pub patch: u8,
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `ctx` is the context of a callback that runs for all of `'a`, on the
    /// server's main thread.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Option<Ctx<'a>> {
        NonNull::new(ctx).map(|raw| Ctx { raw, command: false, callback: PhantomData })
    }

    /// The same context, marked as that of a command.
    pub(super) fn of_command(self) -> Ctx<'a> {
        Ctx { command: true, ..self }
    }

    /// The context of a module that is being loaded or unloaded, which happens on the main thread.
    /// None: the server gave none.
    pub fn of_load(context: &'a redis_module::Context) -> Option<Ctx<'a>> {
        super::main_thread::is_here();
        // SAFETY: `redis-module` lends the context to the function that loads or unloads us,
        // for as long as that runs, on the main thread.
        unsafe { Ctx::new(context.ctx) }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    /// The time by which the server judges expiry, in unix ms. The server freezes it while a
    /// command, a transaction or a script runs. Redis 7.0 hides it; there this is the wall clock,
    /// which is never behind the frozen time.
    pub fn now(self) -> i64 {
        // SAFETY: the functions have no arguments, and nothing writes to the pointers after the
        // load.
        unsafe {
            match raw::RedisModule_CachedMicroseconds {
                Some(cached) => cached() / 1000,
                None => api!(RedisModule_Milliseconds)(),
            }
        }
    }

    /// Whether the server judges expiry by a frozen time that [`Ctx::now`] cannot read. This is so
    /// on Redis 7.0 in a script or a transaction.
    #[cold]
    pub fn has_hidden_frozen_time(self) -> bool {
        // SAFETY: nothing writes to the pointer after the load.
        let cached = unsafe { raw::RedisModule_CachedMicroseconds };
        cached.is_none() && !self.situation().may_block
    }

    /// The wall clock, in unix ms.
    pub fn clock(self) -> i64 {
        // SAFETY: the function has no arguments.
        unsafe { api!(RedisModule_Milliseconds)() }
    }

    /// The wall clock, in unix µs. It comes from the system, because Redis 7.0 has no function for
    /// it.
    pub fn clock_micros(self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    /// The steady clock, in µs. It cannot be set, and only measures how much time passes.
    pub fn steady_micros(self) -> i64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` has room for the answer.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
    }

    /// The server's version; None: the server has no function for it (before 6.0.9).
    pub fn version(self) -> Option<Version> {
        // SAFETY: the function has no arguments.
        let version = unsafe { raw::RedisModule_GetServerVersion.map(|tell| tell()) }?;
        let [_, major, minor, patch] = version.to_be_bytes();
        Some(Version { major, minor, patch })
    }

    /// The state of the server and of the command that runs.
    pub fn situation(self) -> Situation {
        // SAFETY: the context lives as long as `self`.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw()) };
        let has = |bits: u32| flags & bits as c_int != 0;
        Situation {
            primary: has(raw::REDISMODULE_CTX_FLAGS_MASTER),
            loading: has(
                raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
            ),
            script: has(raw::REDISMODULE_CTX_FLAGS_LUA),
            may_block: !has(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
                | raw::REDISMODULE_CTX_FLAGS_LUA
                | raw::REDISMODULE_CTX_FLAGS_MULTI),
            out_of_memory: has(raw::REDISMODULE_CTX_FLAGS_OOM)
                && !has(raw::REDISMODULE_CTX_FLAGS_EVICT),
        }
    }

    /// Whether writes are paused (CLIENT PAUSE, FAILOVER). A write in spite of that would crash the
    /// server.
    pub fn writes_are_paused(self) -> bool {
        // SAFETY: the function has no arguments.
        unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Whether opening a key for reading leaves no trace. Redis 7.0 counts a miss for a key that
    /// does not exist, and raises a key event for it.
    pub fn reads_leave_no_trace(self) -> bool {
        // SAFETY: nothing writes to the pointer after the load.
        let tell = unsafe { raw::RedisModule_GetOpenKeyModesAll };
        tell.is_some()
    }

    /// Whether the server is a node of a cluster. This does not change while the server runs.
    pub fn is_cluster(self) -> bool {
        // SAFETY: the context lives as long as `self`.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw()) };
        flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER as c_int != 0
    }

    /// Whether the server writes an AOF, or begins to.
    pub fn has_aof(self) -> bool {
        // SAFETY: the context lives as long as `self`.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw()) };
        flags & raw::REDISMODULE_CTX_FLAGS_AOF as c_int != 0
    }

    /// Writes a line to the server's log, at level `warning`.
    pub fn warn(self, line: &str) {
        log::write(self.raw(), c"warning", line);
    }

    /// Writes a line to the server's log, at level `notice`.
    pub fn notice(self, line: &str) {
        log::write(self.raw(), c"notice", line);
    }

    /// Declares the options of the module:
    ///
    /// - A key that was opened for writing no longer counts as modified when it is closed.
    ///   [`super::Db::signal_modified`] signals a change instead. So a refused request does not
    ///   break a WATCH.
    /// - A replica may serve its old data while it loads new data (`repl-diskless-load swapdb`).
    ///   The server does that only if all its modules allow it.
    /// - Slots may move atomically, where the server can do that. It, too, asks all its modules.
    pub fn declare_options(self) {
        let mut options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
            | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
        if self.moves_slots_atomically() {
            options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        }
        // SAFETY: the context lives as long as `self`.
        unsafe { api!(RedisModule_SetModuleOptions)(self.raw(), options as c_int) };
    }

    /// Makes the server count a change for its save points, without propagating it. To be called
    /// only while there are no replicas, no backlog and no AOF: they would get the running command
    /// as the client sent it. False: no command runs, so nothing is counted.
    pub fn count_change(self) -> bool {
        if self.command {
            // SAFETY: the context lives as long as `self`, and is a command's: the server copies
            // the arguments of its client.
            unsafe { api!(RedisModule_ReplicateVerbatim)(self.raw()) };
        }
        self.command
    }

    /// Publishes to the subscribers of a channel on this server, and in a cluster on all nodes.
    pub fn publish(self, channel: &Str, message: &Str) {
        // SAFETY: the context lives as long as `self`, and the strings as long as they are lent.
        unsafe { api!(RedisModule_PublishMessage)(self.raw(), channel.raw(), message.raw()) };
    }

    /// Publishes to the subscribers of a shard channel, on all nodes of the shard.
    pub fn publish_to_shard(self, channel: &Str, message: &Str) {
        // SAFETY: the context lives as long as `self`, and the strings as long as they are lent.
        unsafe { api!(RedisModule_PublishMessageShard)(self.raw(), channel.raw(), message.raw()) };
    }

    /// Creates a command with the flags of RedisModule_CreateCommand. Its only key is argument
    /// `first_key`; 0: it has no key. Returns REDISMODULE_OK if the name was not used.
    pub(super) fn create_command(
        self,
        name: &CStr,
        run: raw::RedisModuleCmdFunc,
        flags: &CStr,
        first_key: c_int,
    ) -> c_int {
        let flags: *const c_char = flags.as_ptr();
        // SAFETY: the context lives as long as `self`, and the server copies the strings. It
        // forgets a command with its module, and so never calls what is gone.
        unsafe {
            api!(RedisModule_CreateCommand)(
                self.raw(),
                name.as_ptr(),
                run,
                flags,
                first_key,
                first_key,
                first_key,
            )
        }
    }
}

/// The state of the server, and of the command or the callback that runs.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The server is a primary.
    pub primary: bool,
    /// The server is loading data. It may serve its old data meanwhile.
    pub loading: bool,
    /// A script runs.
    pub script: bool,
    /// The client may be blocked. This is not so in a transaction or a script.
    pub may_block: bool,
    /// The memory limit is exceeded, and the server's policy evicts nothing. With an evicting
    /// policy this is always false, because a command evicts before it runs. That includes the rare
    /// case that the server finds nothing to evict.
    pub out_of_memory: bool,
}
