//! The context of a running command.

use super::{api, Key, Str, Text};
use crate::ffi::key::Access;
use redis_module::raw;
use std::ffi::{c_char, c_int, CStr};
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};
use std::time::{SystemTime, UNIX_EPOCH};

/// The context that the server hands to a callback.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: NonNull<raw::RedisModuleCtx>,
    /// Whether the callback is a command's.
    command: bool,
    callback: PhantomData<&'a ()>,
}

/// The version of a server, as far as Redis compatibility goes. Valkey tells
/// 7.2.4 here, from its fork on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u8,
    /// The second.
    pub minor: u8,
    /// The third.
    pub patch: u8,
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `ctx` is the context of a callback that runs for all of `'a`, on the
    /// server's main thread.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Option<Ctx<'a>> {
        NonNull::new(ctx).map(|raw| Ctx { raw, command: false, callback: PhantomData })
    }

    /// The same context, of a callback that is a command's.
    pub(super) fn of_command(self) -> Ctx<'a> {
        Ctx { command: true, ..self }
    }

    /// The same context as `redis-module` knows it, where a module is loaded or
    /// unloaded.
    pub fn of_load(context: &'a redis_module::Context) -> Option<Ctx<'a>> {
        // SAFETY: `redis-module` borrows it to the function that loads us.
        unsafe { Ctx::new(context.ctx) }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    /// The time by which the server judges expiry, in unix ms: frozen while a
    /// command, a transaction or a script runs. Redis 7.0 does not tell it,
    /// there it is the clock's, which is never behind.
    pub fn now(self) -> i64 {
        // SAFETY: no arguments; the pointers are set at load.
        unsafe {
            match raw::RedisModule_CachedMicroseconds {
                Some(cached) => cached() / 1000,
                None => api!(RedisModule_Milliseconds)(),
            }
        }
    }

    /// The time as it is, in unix ms.
    pub fn clock(self) -> i64 {
        // SAFETY: no arguments.
        unsafe { api!(RedisModule_Milliseconds)() }
    }

    /// The same in µs, which Redis 7.0 does not tell.
    pub fn clock_micros(self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    /// The server's version; None on one that is too old to tell (before 6.0.9).
    pub fn version(self) -> Option<Version> {
        // SAFETY: no arguments; the pointer is set at load, or stays None.
        let version = unsafe { raw::RedisModule_GetServerVersion.map(|tell| tell()) }?;
        let [_, major, minor, patch] = version.to_be_bytes();
        Some(Version { major, minor, patch })
    }

    /// What is going on around the command that runs.
    pub fn situation(self) -> Situation {
        // SAFETY: a valid context.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw()) };
        let has = |bits: u32| flags & bits as c_int != 0;
        Situation {
            primary: has(raw::REDISMODULE_CTX_FLAGS_MASTER),
            loading: has(raw::REDISMODULE_CTX_FLAGS_LOADING),
            script: has(raw::REDISMODULE_CTX_FLAGS_LUA),
            may_block: !has(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
                | raw::REDISMODULE_CTX_FLAGS_LUA
                | raw::REDISMODULE_CTX_FLAGS_MULTI),
            out_of_memory: has(raw::REDISMODULE_CTX_FLAGS_OOM),
        }
    }

    /// Whether writes are paused (CLIENT PAUSE, FAILOVER): what writes all the
    /// same would end the server.
    pub fn writes_are_paused(self) -> bool {
        // SAFETY: no arguments.
        unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// The database that the command works on.
    pub fn db(self) -> i32 {
        // SAFETY: a valid context.
        unsafe { api!(RedisModule_GetSelectedDb)(self.raw()) }
    }

    /// Goes over to another database.
    pub fn select(self, db: i32) -> bool {
        // SAFETY: a valid context.
        let status = unsafe { api!(RedisModule_SelectDb)(self.raw(), db) };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Whether a key can be opened for reading without a trace: Redis 7.0 counts
    /// a miss of one that is not there, and tells of it.
    pub fn looks_unseen(self) -> bool {
        // SAFETY: the pointer is set at load, or stays None.
        let tell = unsafe { raw::RedisModule_GetOpenKeyModesAll };
        tell.is_some()
    }

    /// How many keys the selected database has.
    pub fn key_count(self) -> u64 {
        // SAFETY: a valid context.
        unsafe { api!(RedisModule_DbSize)(self.raw()) }
    }

    /// The id of the client whose command runs. None for one that is none: a
    /// call from another module, a replayed file.
    pub fn client_id(self) -> Option<u64> {
        // SAFETY: a valid context; a null info asks only whether it is there.
        unsafe {
            let id = api!(RedisModule_GetClientId)(self.raw());
            let known = api!(RedisModule_GetClientInfoById)(null_mut(), id);
            (known == raw::REDISMODULE_OK as c_int).then_some(id)
        }
    }

    /// Closes a client's connection, if it is still there.
    pub fn close_client(self, id: u64) {
        // SAFETY: a valid context.
        unsafe { api!(RedisModule_DeauthenticateAndCloseClient)(self.raw(), id) };
    }

    /// Whether the server would take a write that needs memory to a key in
    /// this key's slot from us now: its role, its disk, its replicas, its
    /// memory and the slot allow it. SETRANGE of nothing on an absent key
    /// writes nothing.
    ///
    /// Memory is looked at as it is now: outside of a command the server would
    /// go by what it was before the last one. And refusals are asked for as
    /// replies, as Valkey 9.1 crashes where there is none in script mode.
    pub fn would_write(self, absent: &Text) -> bool {
        if self.situation().out_of_memory {
            return false;
        }
        // SAFETY: valid context and strings, as the format says; the reply is
        // freed.
        unsafe {
            let reply = api!(RedisModule_Call)(
                self.raw(),
                c"SETRANGE".as_ptr(),
                c"SEscc".as_ptr(),
                absent.raw(),
                c"0".as_ptr(),
                c"".as_ptr(),
            );
            if reply.is_null() {
                return false;
            }
            let kind = api!(RedisModule_CallReplyType)(reply);
            api!(RedisModule_FreeCallReply)(reply);
            kind != raw::REDISMODULE_REPLY_ERROR as c_int
        }
    }

    /// Whether the server is part of a cluster. It never changes while it runs.
    pub fn is_cluster(self) -> bool {
        // SAFETY: a valid context.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw()) };
        flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER as c_int != 0
    }

    /// Whether the server keeps an AOF, or begins to.
    pub fn has_aof(self) -> bool {
        // SAFETY: a valid context.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw()) };
        flags & raw::REDISMODULE_CTX_FLAGS_AOF as c_int != 0
    }

    /// A line in the server's log, level `warning`.
    pub fn warn(self, line: &str) {
        redis_module::logging::log_warning(line);
    }

    /// Keys that are opened for writing are from now on not taken for modified
    /// when closed: [`Ctx::signal_modified`] says so instead. Thus a request
    /// that is refused breaks nobody's WATCH.
    pub fn signal_explicitly(self) {
        let option = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
        // SAFETY: a valid context.
        unsafe { api!(RedisModule_SetModuleOptions)(self.raw(), option) };
    }

    /// Opens a key. None only when it is opened for reading and not there.
    pub fn open(self, name: &Str, access: Access) -> Option<Key<'a>> {
        // SAFETY: a valid context and name; the server counts its own reference
        // of the name.
        let key = unsafe { api!(RedisModule_OpenKey)(self.raw(), name.raw(), access.mode()) };
        // SAFETY: just opened, closed by `Key` alone, within `'a`.
        unsafe { Key::new(key) }
    }

    /// Tells WATCH and client-side caches that a key was changed.
    pub fn signal_modified(self, name: &Str) {
        // SAFETY: a valid context and name.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.raw(), name.raw()) };
    }

    /// Propagates a command to the replicas and the AOF, or, `"A"` in
    /// `modifiers`, to the replicas only.
    pub fn replicate(self, command: &CStr, modifiers: Propagate, args: &[&Str]) {
        let format = |everywhere: &'static CStr, replicas_only: &'static CStr| match modifiers {
            Propagate::Everywhere => everywhere.as_ptr(),
            Propagate::ReplicasOnly => replicas_only.as_ptr(),
        };
        let (ctx, name) = (self.raw(), command.as_ptr());
        // SAFETY: a string for each `s`; for `v` a pointer to strings (`&Str`
        // is one) and their number. The server takes references of its own.
        // The short forms are there because it sizes `v` by reallocation, which
        // costs a good part of a short command.
        let status = unsafe {
            let replicate = api!(RedisModule_Replicate);
            match *args {
                [a] => replicate(ctx, name, format(c"s", c"As"), a.raw()),
                [a, b] => replicate(ctx, name, format(c"ss", c"Ass"), a.raw(), b.raw()),
                [a, b, c] => {
                    replicate(ctx, name, format(c"sss", c"Asss"), a.raw(), b.raw(), c.raw())
                }
                [a, b, c, d] => {
                    let format = format(c"ssss", c"Assss");
                    replicate(ctx, name, format, a.raw(), b.raw(), c.raw(), d.raw())
                }
                [a, b, c, d, e] => {
                    let format = format(c"sssss", c"Asssss");
                    replicate(ctx, name, format, a.raw(), b.raw(), c.raw(), d.raw(), e.raw())
                }
                _ => replicate(ctx, name, format(c"v", c"Av"), args.as_ptr(), args.len()),
            }
        };
        if status != raw::REDISMODULE_OK as c_int {
            self.warn(&format!("rwlock: bug: cannot propagate {command:?}"));
        }
    }

    /// Has the server count a change that nobody shall hear of: for its save
    /// points. Only while there are no replicas, no backlog and no AOF: else
    /// they would get the command that runs, as it was called. False outside of
    /// a command, which has none.
    pub fn count_change(self) -> bool {
        if self.command {
            // SAFETY: a valid context of a command.
            unsafe { api!(RedisModule_ReplicateVerbatim)(self.raw()) };
        }
        self.command
    }

    /// Publishes to the subscribers of a channel; in a cluster to those of
    /// all nodes.
    pub fn publish(self, channel: &Str, message: &Str) {
        // SAFETY: a valid context and strings.
        unsafe { api!(RedisModule_PublishMessage)(self.raw(), channel.raw(), message.raw()) };
    }

    /// Publishes to the subscribers of a shard channel, on the nodes of the
    /// shard.
    pub fn publish_to_shard(self, channel: &Str, message: &Str) {
        // SAFETY: a valid context and strings.
        unsafe { api!(RedisModule_PublishMessageShard)(self.raw(), channel.raw(), message.raw()) };
    }

    /// Whether the server would run EXISTS on these two keys for us: not in a
    /// cluster whose node does not (or no longer, or not yet fully) serve
    /// their slot.
    pub fn can_serve(self, first: &Text, second: &Text) -> bool {
        // SAFETY: valid context and strings, as the format says; the reply is
        // freed, and null is how a refusal looks.
        unsafe {
            let reply = api!(RedisModule_Call)(
                self.raw(),
                c"EXISTS".as_ptr(),
                c"ss".as_ptr(),
                first.raw(),
                second.raw(),
            );
            if reply.is_null() {
                return false;
            }
            let kind = api!(RedisModule_CallReplyType)(reply);
            api!(RedisModule_FreeCallReply)(reply);
            kind != raw::REDISMODULE_REPLY_ERROR as c_int
        }
    }

    /// The text of CLUSTER NODES; None when the server gives none.
    pub fn cluster_nodes(self) -> Option<Vec<u8>> {
        // SAFETY: valid context and strings, as the format says; the text is
        // copied before the reply is freed.
        unsafe {
            let reply = api!(RedisModule_Call)(
                self.raw(),
                c"CLUSTER".as_ptr(),
                c"c".as_ptr(),
                c"NODES".as_ptr(),
            );
            if reply.is_null() {
                return None;
            }
            let mut len = 0;
            let text = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
            let nodes =
                (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast(), len).to_vec());
            api!(RedisModule_FreeCallReply)(reply);
            nodes
        }
    }

    /// Registers a command without keys or flags known yet; see
    /// [`super::CommandDocs`].
    pub(super) fn create_command(
        self,
        name: &CStr,
        run: raw::RedisModuleCmdFunc,
        flags: &CStr,
        first_key: c_int,
    ) -> c_int {
        let flags: *const c_char = flags.as_ptr();
        // SAFETY: a valid context; the server copies the strings.
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

/// What is going on around a command or a callback.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The server is a primary.
    pub primary: bool,
    /// It is loading a file.
    pub loading: bool,
    /// A script runs.
    pub script: bool,
    /// The client may be blocked: no transaction, no script.
    pub may_block: bool,
    /// Memory is used up.
    pub out_of_memory: bool,
}

/// Where a command is propagated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagate {
    /// The replicas and the AOF.
    Everywhere,
    /// The replicas: what is no change of data.
    ReplicasOnly,
}
