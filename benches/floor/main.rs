//! The floor of a lock and its unlock: a module that makes only the calls of the server
//! which the contract cannot do without. No queue, no lapse, no statistics, no session, no
//! other holder: `make bench` and `make instructions` compare rwlock with it.
//!
//!     FLOOR.WLOCK key owner lease      FLOOR.UNLOCK key owner WRITE
//!     FLOOR.RLOCK key owner lease      FLOOR.UNLOCK key owner READ
//!
//! Keys, replies, announcements and propagated commands are those of rwlock.

#![expect(clippy::unwrap_used, reason = "a server without the call cannot run the benchmark")]

use redis_module::raw::{self, RedisModuleCtx as Ctx, RedisModuleKey as Key};
use smallvec::SmallVec;
use std::ffi::{c_char, c_int, CStr};
use std::ptr::null_mut;
use std::sync::OnceLock;

type Str = *mut raw::RedisModuleString;

const OK: c_int = raw::REDISMODULE_OK as c_int;
const NO_FLAGS: c_int = raw::REDISMODULE_HASH_NONE as c_int;
const READ: c_int = raw::REDISMODULE_READ as c_int;
const WRITE: c_int = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;

/// Calls a function of the module API.
macro_rules! api {
    ($name:ident $args:tt) => {
        // SAFETY: the server calls this module on its main thread, with pointers that are
        // valid until the command is over; all others are closed or freed by then.
        unsafe { raw::$name.unwrap() $args }
    };
}

/// Strings that never change.
struct Words {
    mode: Str,
    read: Str,
    write: Str,
    one: Str,
    zero: Str,
    pxat: Str,
    /// Whether changes are propagated: there is an AOF.
    propagates: bool,
}

// SAFETY: used on the main thread only.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

static WORDS: OnceLock<Words> = OnceLock::new();

/// Makes a string of these parts, to be freed.
fn string(parts: &[&[u8]]) -> Str {
    let mut whole = SmallVec::<[u8; 256]>::new();
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    api!(RedisModule_CreateString(null_mut(), whole.as_ptr().cast(), whole.len()))
}

fn free(strings: &[Str]) {
    for string in strings {
        api!(RedisModule_FreeString(null_mut(), *string));
    }
}

fn bytes<'a>(string: Str) -> &'a [u8] {
    let mut len = 0;
    let start = api!(RedisModule_StringPtrLen(string, &mut len));
    // SAFETY: the bytes of a string of the command, which lives until that is over.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// The value of a hash's field, compared.
fn has(key: *mut Key, field: Str, value: &[u8]) -> bool {
    let mut found: Str = null_mut();
    let end = null_mut::<c_char>();
    api!(RedisModule_HashGet(key, NO_FLAGS, field, &mut found as *mut Str, end));
    if found.is_null() {
        return false;
    }
    let same = bytes(found) == value;
    free(&[found]);
    same
}

fn is_kind(key: *mut Key, kind: isize) -> bool {
    api!(RedisModule_KeyType(key)) as isize == kind
}

fn refuse(ctx: *mut Ctx) -> c_int {
    api!(RedisModule_ReplyWithError(ctx, c"ERR the floor knows no other holders".as_ptr()))
}

/// What a command works on.
struct Lock<'a> {
    ctx: *mut Ctx,
    words: &'a Words,
    name: Str,
    owner: Str,
    hash: *mut Key,
}

impl Lock<'_> {
    fn timeout_key(&self) -> Str {
        string(&[b"{", bytes(self.name), b"}:", bytes(self.owner), b":rwlock_timeout:1"])
    }

    fn write_field(&self) -> Str {
        string(&[bytes(self.owner), b":write"])
    }

    fn open(&self, name: Str, how: c_int) -> *mut Key {
        api!(RedisModule_OpenKey(self.ctx, name, how))
    }

    fn changed(&self, name: Str, key: *mut Key) {
        api!(RedisModule_SignalModifiedKey(self.ctx, name));
        api!(RedisModule_CloseKey(key));
    }

    /// Takes a lock that is free.
    fn take(&self, kind: Kind, lease: i64) -> c_int {
        let Words { mode, read, write, one, pxat, .. } = *self.words;
        let reservation = string(&[b"{", bytes(self.name), b"}:wait_write"]);
        let reserved = self.open(reservation, READ);
        free(&[reservation]);
        if !is_kind(self.hash, raw::REDISMODULE_KEYTYPE_EMPTY) || !reserved.is_null() {
            return refuse(self.ctx);
        }
        let end = api!(RedisModule_Milliseconds()) + lease;
        let (value, field) = match kind {
            Kind::Read => (read, self.owner),
            Kind::Write => (write, self.write_field()),
        };
        let none = null_mut::<c_char>();
        api!(RedisModule_HashSet(self.hash, NO_FLAGS, mode, value, field, one, none));
        api!(RedisModule_SetAbsExpire(self.hash, end));
        self.changed(self.name, self.hash);
        self.propagate(|| {
            let at = api!(RedisModule_CreateStringFromLongLong(null_mut(), end));
            let (set, format, name) = (c"HSET".as_ptr(), c"sssss".as_ptr(), self.name);
            api!(RedisModule_Replicate(self.ctx, set, format, name, mode, value, field, one));
            let (expire, format) = (c"PEXPIREAT".as_ptr(), c"ss".as_ptr());
            api!(RedisModule_Replicate(self.ctx, expire, format, name, at));
            free(&[at]);
        });
        match kind {
            Kind::Read => self.set_timeout(end, pxat),
            Kind::Write => free(&[field]),
        }
        api!(RedisModule_ReplyWithSimpleString(self.ctx, c"OK".as_ptr()))
    }

    /// Makes the timeout key of the read hold.
    fn set_timeout(&self, end: i64, pxat: Str) {
        let name = self.timeout_key();
        let key = self.open(name, WRITE);
        if is_kind(key, raw::REDISMODULE_KEYTYPE_EMPTY) {
            api!(RedisModule_StringSet(key, self.name));
            api!(RedisModule_SetAbsExpire(key, end));
            if self.words.propagates {
                let at = api!(RedisModule_CreateStringFromLongLong(null_mut(), end));
                let (set, format) = (c"SET".as_ptr(), c"ssss".as_ptr());
                api!(RedisModule_Replicate(self.ctx, set, format, name, self.name, pxat, at));
                free(&[at]);
            }
        }
        self.changed(name, key);
        free(&[name]);
    }

    fn delete_timeout(&self, name: Str) {
        let key = self.open(name, WRITE);
        let mut len = 0;
        let value = api!(RedisModule_StringDMA(key, &mut len, READ));
        // SAFETY: the bytes of the key's value, which nobody changes meanwhile.
        let value: &[u8] = unsafe { std::slice::from_raw_parts(value.cast(), len) };
        if value == bytes(self.name) {
            api!(RedisModule_DeleteKey(key));
        }
        self.changed(name, key);
    }

    /// Propagates a change; while nobody listens it is only counted.
    fn propagate(&self, replicate: impl FnOnce()) {
        if self.words.propagates {
            replicate();
        } else {
            api!(RedisModule_ReplicateVerbatim(self.ctx));
        }
    }

    /// Gives back the only hold.
    fn give_back(&self, kind: Kind) -> c_int {
        let Words { mode, one, zero, .. } = *self.words;
        let (value, field): (&[u8], _) = match kind {
            Kind::Read => (b"read", self.owner),
            Kind::Write => (b"write", self.write_field()),
        };
        let is_held = is_kind(self.hash, raw::REDISMODULE_KEYTYPE_HASH)
            && has(self.hash, mode, value)
            && has(self.hash, field, b"1")
            && api!(RedisModule_ValueLength(self.hash)) == 2;
        if !is_held {
            return refuse(self.ctx);
        }
        api!(RedisModule_DeleteKey(self.hash));
        self.changed(self.name, self.hash);
        let delete = c"DEL".as_ptr();
        match kind {
            Kind::Read => {
                let timeout = self.timeout_key();
                self.delete_timeout(timeout);
                self.propagate(|| {
                    let format = c"ss".as_ptr();
                    api!(RedisModule_Replicate(self.ctx, delete, format, self.name, timeout));
                });
                free(&[timeout]);
            }
            Kind::Write => {
                free(&[field]);
                self.propagate(|| {
                    api!(RedisModule_Replicate(self.ctx, delete, c"s".as_ptr(), self.name));
                });
            }
        }
        let channel = string(&[b"redisson_rwlock:{", bytes(self.name), b"}"]);
        let message = if kind == Kind::Read { zero } else { one };
        api!(RedisModule_PublishMessage(self.ctx, channel, message));
        free(&[channel]);
        api!(RedisModule_ReplyWithLongLong(self.ctx, 1))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
}

fn run(
    ctx: *mut Ctx,
    args: *mut Str,
    count: c_int,
    work: impl FnOnce(&Lock<'_>, Str) -> c_int,
) -> c_int {
    // SAFETY: as many arguments as the server says.
    let args = unsafe { std::slice::from_raw_parts(args, count.unsigned_abs() as usize) };
    let (&[_, name, owner, last], Some(words)) = (args, WORDS.get()) else {
        return api!(RedisModule_WrongArity(ctx));
    };
    let hash = api!(RedisModule_OpenKey(ctx, name, WRITE));
    work(&Lock { ctx, words, name, owner, hash }, last)
}

fn take(ctx: *mut Ctx, args: *mut Str, count: c_int, kind: Kind) -> c_int {
    run(ctx, args, count, |lock, lease| {
        let mut ms = 0;
        api!(RedisModule_StringToLongLong(lease, &mut ms));
        lock.take(kind, ms)
    })
}

extern "C" fn rlock(ctx: *mut Ctx, args: *mut Str, count: c_int) -> c_int {
    take(ctx, args, count, Kind::Read)
}

extern "C" fn wlock(ctx: *mut Ctx, args: *mut Str, count: c_int) -> c_int {
    take(ctx, args, count, Kind::Write)
}

extern "C" fn unlock(ctx: *mut Ctx, args: *mut Str, count: c_int) -> c_int {
    run(ctx, args, count, |lock, kind| {
        lock.give_back(if bytes(kind) == b"READ" { Kind::Read } else { Kind::Write })
    })
}

/// Registers the commands.
#[no_mangle]
extern "C" fn RedisModule_OnLoad(ctx: *mut Ctx, _: *mut Str, _: c_int) -> c_int {
    // SAFETY: a valid context, at load.
    if unsafe { raw::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, 1) } != OK {
        return raw::REDISMODULE_ERR as c_int;
    }
    // Keys are taken for changed when the module says so, as rwlock does.
    let options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
    api!(RedisModule_SetModuleOptions(ctx, options));
    let flags = api!(RedisModule_GetContextFlags(ctx));
    WORDS.get_or_init(|| Words {
        mode: string(&[b"mode"]),
        read: string(&[b"read"]),
        write: string(&[b"write"]),
        one: string(&[b"1"]),
        zero: string(&[b"0"]),
        pxat: string(&[b"PXAT"]),
        propagates: flags & raw::REDISMODULE_CTX_FLAGS_AOF as c_int != 0,
    });
    let commands: [(&CStr, raw::RedisModuleCmdFunc, &CStr); 3] = [
        (c"floor.rlock", Some(rlock), c"write deny-oom fast"),
        (c"floor.wlock", Some(wlock), c"write deny-oom fast"),
        (c"floor.unlock", Some(unlock), c"write fast"),
    ];
    let made = commands.map(|(name, run, flags)| {
        api!(RedisModule_CreateCommand(ctx, name.as_ptr(), run, flags.as_ptr(), 1, 1, 1))
    });
    made.into_iter().max().unwrap()
}
