//! The context of a running command.

use super::{api, log, CallReply, Str, Text};
use redis_module::raw;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};
use std::sync::OnceLock;
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

    /// The id of the client that runs the command. None: there is no client, for example because
    /// another module calls the command, or the server loads an AOF.
    pub fn client_id(self) -> Option<u64> {
        // SAFETY: the context lives as long as `self`. With null the server only says whether
        // it has the client.
        unsafe {
            let id = api!(RedisModule_GetClientId)(self.raw());
            let known = api!(RedisModule_GetClientInfoById)(null_mut(), id);
            (known == raw::REDISMODULE_OK as c_int).then_some(id)
        }
    }

    /// The name of a client's connection, as CLIENT SETNAME set it. Empty: it has none, or the client
    /// is gone. Redis before 7.0.3 cannot tell, there it is always empty.
    pub fn client_name(self, id: u64) -> Vec<u8> {
        // SAFETY: nothing writes to the pointer after the load. The context lives as long as `self`,
        // and the reference to the string is the caller's.
        let name = unsafe {
            raw::RedisModule_GetClientNameById
                .and_then(|name_of| Text::adopt(name_of(self.raw(), id)))
        };
        name.map_or(Vec::new(), |name| name.bytes().to_vec())
    }

    /// The client among `clients` that called the running script; None: none of them. To be called
    /// only while a script runs. The module API has no function for it, so this reads CLIENT LIST:
    /// it shows memory for arguments only for a client that runs a command, or that has sent a part
    /// of its next command.
    pub fn script_caller(self, clients: &[u64]) -> Option<u64> {
        caller_in(&self.client_list(clients)?)
    }

    /// The lines of CLIENT LIST about these clients. None also when the context has no client, as
    /// after the client of an answer is gone: the server would crash in a call of a command.
    fn client_list(self, clients: &[u64]) -> Option<String> {
        // SAFETY: the context lives as long as `self`.
        if unsafe { api!(RedisModule_GetClientId)(self.raw()) } == 0 {
            return None;
        }
        let ids: Vec<String> = clients.iter().map(u64::to_string).collect();
        let mut words: Vec<&[u8]> = vec![b"ID"];
        words.extend(ids.iter().map(|id| id.as_bytes()));
        match self.call(c"CLIENT", c"LIST", &words)? {
            CallReply::Text(lines) => Some(String::from_utf8_lossy(&lines).into_owned()),
            _ => None,
        }
    }

    /// Closes the connection of a client, if it still exists.
    pub fn close_client(self, id: u64) {
        // SAFETY: the context lives as long as `self`.
        unsafe { api!(RedisModule_DeauthenticateAndCloseClient)(self.raw(), id) };
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

    /// The address of a client as CLIENT LIST shows it; None: the server has no such client.
    ///
    /// Valkey 9.1 also finds the clients of scripts and modules by their ids. They have no
    /// connection, and the server would crash when asked for its address. So there this reads
    /// CLIENT LIST, which leaves them out and takes some µs.
    pub fn client_address(self, id: u64) -> Option<String> {
        if finds_clients_without_connection() {
            let lines = self.client_list(&[id])?;
            return field(lines.lines().next()?, "addr").map(str::to_owned);
        }
        let mut info = raw::RedisModuleClientInfo {
            version: u64::from(raw::REDISMODULE_CLIENTINFO_VERSION),
            flags: 0,
            id: 0,
            addr: [0; 46],
            port: 0,
            db: 0,
        };
        // SAFETY: `info` is a struct of the version that it says, and the server writes into it
        // only for this call.
        let found = unsafe { api!(RedisModule_GetClientInfoById)((&raw mut info).cast(), id) };
        if found != raw::REDISMODULE_OK as c_int {
            return None;
        }
        let bytes = info.addr.map(|byte| byte as u8);
        let address = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy();
        Some(match address.contains(':') {
            true => format!("[{address}]:{}", info.port),
            false => format!("{address}:{}", info.port),
        })
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

/// Finds the client that runs a script in the lines of CLIENT LIST.
fn caller_in(lines: &str) -> Option<u64> {
    const RUN_SCRIPTS: [&str; 4] = ["eval", "evalsha", "fcall", "exec"];
    lines.lines().find_map(|line| {
        let field = |name| field(line, name);
        let is_script = RUN_SCRIPTS.contains(&field("cmd")?);
        let executes = field("argv-mem")? != "0" && !field("flags")?.contains('b');
        field("id")?.parse().ok().filter(|_| is_script && executes)
    })
}

/// The value of a field in a line of CLIENT LIST.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// Whether the server may find a client without a connection by its id. Valkey 9.1 does, and has
/// this function, which Valkey 8.1 and Redis do not have.
fn finds_clients_without_connection() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found: *mut c_void = null_mut();
        let name = c"ValkeyModule_ACLCheckKeyPrefixPermissions".as_ptr();
        // SAFETY: nothing writes to the pointer after the load. The server writes a function's
        // address into `found`, or nothing.
        unsafe {
            raw::RedisModule_GetApi.is_some_and(|get| get(name, (&raw mut found).cast()) == 0)
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_of_a_script_is_the_one_that_executes_one() {
        let idle = "id=1 addr=a:1 flags=N argv-mem=0 cmd=eval user=default\n";
        let waits = "id=2 addr=a:2 flags=b argv-mem=22 cmd=exec user=default\n";
        let reads = "id=3 addr=a:3 flags=N argv-mem=22 cmd=get user=default\n";
        let runs = "id=4 addr=a:4 flags=N argv-mem=10 cmd=evalsha user=default\n";
        assert_eq!(caller_in(&[idle, waits, reads].concat()), None);
        assert_eq!(caller_in(&[idle, waits, reads, runs].concat()), Some(4));
        assert_eq!(caller_in(""), None);
        assert_eq!(caller_in("nothing of the kind\n"), None);
    }
}
