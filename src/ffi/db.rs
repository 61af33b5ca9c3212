//! A database of the server, and the only way to its keys.

use super::{api, Ctx, Key, Str};
use crate::ffi::key::Access;
use redis_module::raw;
use std::ffi::{c_int, CStr};

/// A database, in the context of a callback. The name of a key has no meaning without its database,
/// so only a `Db` opens keys and signals their changes. A `Db` selects its database for each use,
/// and then selects the client's own database again. So the caller can use more than one `Db` in
/// turn.
#[derive(Clone, Copy)]
pub struct Db<'a> {
    ctx: Ctx<'a>,
    number: i32,
    /// The database that is selected between two uses.
    selected: i32,
}

impl<'a> Ctx<'a> {
    /// The database that the client has selected.
    pub fn db(self) -> Db<'a> {
        let selected = self.selected();
        Db { ctx: self, number: selected, selected }
    }

    /// The database of this number.
    pub fn in_db(self, number: i32) -> Db<'a> {
        Db { ctx: self, number, selected: self.selected() }
    }

    /// The database of this number; None: the server has no such database.
    pub fn find_db(self, number: i32) -> Option<Db<'a>> {
        let db = self.in_db(number);
        let is_there = self.select(number);
        self.select(db.selected);
        is_there.then_some(db)
    }

    fn selected(self) -> i32 {
        // SAFETY: the context lives as long as `self`.
        unsafe { api!(RedisModule_GetSelectedDb)(self.raw()) }
    }

    /// Selects a database, also for the client. False: the server has no such database.
    pub(super) fn select(self, number: i32) -> bool {
        // SAFETY: the context lives as long as `self`.
        let status = unsafe { api!(RedisModule_SelectDb)(self.raw(), number) };
        status == raw::REDISMODULE_OK as c_int
    }
}

impl<'a> Db<'a> {
    /// The context.
    pub fn ctx(self) -> Ctx<'a> {
        self.ctx
    }

    /// The number of the database.
    pub fn number(self) -> i32 {
        self.number
    }

    /// Selects this database, until the result is dropped.
    pub(super) fn enter(self) -> Entered<'a> {
        if self.number != self.selected {
            self.ctx.select(self.number);
        }
        Entered(self)
    }

    /// The number of keys in the database.
    pub fn key_count(self) -> u64 {
        let here = self.enter();
        // SAFETY: the context lives as long as `here`.
        unsafe { api!(RedisModule_DbSize)(here.raw()) }
    }

    /// Opens a key. None: the access is for reading, and the key does not exist.
    ///
    /// The caller must not have another open handle of this key. Only `store` calls this, and it
    /// ensures that: a `Store` opens the lock's own key once. `Store::open_derived` opens derived
    /// keys, whose names differ from the lock's, and reuses a handle that is open. No code opens
    /// the key of a lock for writing while a `Store` of the lock exists. Builds with debug
    /// assertions panic at a second handle.
    pub fn open(self, name: &Str, access: Access) -> Option<Key<'a>> {
        let here = self.enter();
        #[cfg(debug_assertions)]
        let open = super::open_keys::Open::new(self.number, name.bytes());
        // SAFETY: the context runs as long as `here` lives, and the server takes a reference
        // of its own of the name, which `name` keeps alive until then.
        let key = unsafe { api!(RedisModule_OpenKey)(here.raw(), name.raw(), access.mode()) };
        // SAFETY: the key was opened in the line above and nobody else has the handle; `'a`
        // is that of the context.
        unsafe {
            Key::new(
                key,
                #[cfg(debug_assertions)]
                open,
            )
        }
    }

    /// Signals to WATCH and client-side caches that a key of this database was changed.
    pub fn signal_modified(self, name: &Str) {
        let here = self.enter();
        // SAFETY: the context lives as long as `here`, and the name as long as it is lent.
        unsafe { api!(RedisModule_SignalModifiedKey)(here.raw(), name.raw()) };
    }

    /// Propagates a command in this database. The server sends it when the running command or
    /// callback ends.
    pub fn replicate(self, command: &CStr, modifiers: Propagate, args: &[&Str]) {
        let here = self.enter();
        let format = |everywhere: &'static CStr, replicas_only: &'static CStr| match modifiers {
            Propagate::Everywhere => everywhere.as_ptr(),
            Propagate::ReplicasOnly => replicas_only.as_ptr(),
        };
        let (ctx, name) = (here.raw(), command.as_ptr());
        // The short forms avoid `v`, for which the server allocates an array again and again.
        // That is a large part of the cost of a short command.
        // SAFETY: each `s` stands for a string, `v` for an array of strings, which `&Str` is laid
        // out as, and its length. The server takes references of its own.
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
            self.ctx.warn(&format!("rwlock: bug: cannot propagate {command:?}"));
        }
    }
}

/// A database while it is selected. Selects the client's own again when it is
/// dropped.
pub(super) struct Entered<'a>(Db<'a>);

impl Entered<'_> {
    pub(super) fn raw(&self) -> *mut raw::RedisModuleCtx {
        self.0.ctx.raw()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.0.number != self.0.selected {
            self.0.ctx.select(self.0.selected);
        }
    }
}

/// The destination of a propagated command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagate {
    /// The replicas and the AOF.
    Everywhere,
    /// The replicas only, for a command that changes no data.
    ReplicasOnly,
}
