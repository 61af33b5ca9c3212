//! Who may do what: the ACL categories of the commands, and what the user
//! whose command runs may see.

use super::{api, CommandDocs, Ctx, Str, Text};
use redis_module::raw;
use std::ffi::{c_int, CString};
use std::io;
use std::marker::PhantomData;

/// The ACL category that all commands are in.
const CATEGORY: &str = "rwlock";

impl<'a> Ctx<'a> {
    /// Adds the category of this module, where the server takes any (Redis
    /// 7.4, Valkey 8.0). It outlives the module, and is found there when that
    /// is loaded again. What is wrong is said in the error.
    pub fn add_acl_category(self) -> Result<(), String> {
        let failed = |why: String| format!("cannot add the ACL category {CATEGORY}: {why}");
        let name = CString::new(CATEGORY).map_err(|error| failed(error.to_string()))?;
        // SAFETY: the context lives as long as `self`, and the server copies the name.
        let status = unsafe {
            match raw::RedisModule_AddACLCategory {
                Some(add) => add(self.raw(), name.as_ptr()),
                None => return Ok(()),
            }
        };
        let error = io::Error::last_os_error();
        if status == raw::REDISMODULE_OK as c_int || error.raw_os_error() == Some(libc::EBUSY) {
            Ok(())
        } else {
            Err(failed(error.to_string()))
        }
    }

    /// Puts a command that was just made into its categories, as far as the
    /// server has them: none before Redis 7.2, the server's own in 7.2.
    pub(super) fn categorize(
        self,
        command: *mut raw::RedisModuleCommand,
        docs: &CommandDocs,
    ) -> bool {
        // SAFETY: nothing writes to the pointers after the load.
        let (set, add) =
            unsafe { (raw::RedisModule_SetCommandACLCategories, raw::RedisModule_AddACLCategory) };
        let own = if add.is_some() { CATEGORY } else { "" };
        match (set, CString::new(format!("{own} {}", docs.categories).trim_start())) {
            // SAFETY: the server keeps a command as long as its module is loaded, and copies
            // the names.
            (Some(set), Ok(names)) => unsafe {
                set(command, names.as_ptr()) == raw::REDISMODULE_OK as c_int
            },
            (None, _) => true,
            (Some(_), Err(_)) => false,
        }
    }

    /// Whether this module cannot be unloaded without harm, as a user's rule
    /// names one of its commands. From Redis 7.2 on the server applies all
    /// rules anew then, and crashes at one that names a command which is gone
    /// (valkey-io/valkey#2797; Valkey 9.1 refuses by itself).
    pub fn acl_names_commands(self) -> bool {
        // SAFETY: nothing writes to the pointer after the load.
        let applies_anew = unsafe { raw::RedisModule_SetCommandACLCategories };
        let named = |rules: &Vec<u8>| {
            let rules = String::from_utf8_lossy(rules).to_ascii_lowercase();
            // `user <name> <rule> <rule>…`
            let mut rules = rules.split(' ').skip(2);
            rules.any(|rule| rule.starts_with("+rwlock.") || rule.starts_with("-rwlock."))
        };
        applies_anew.is_some() && self.acl_list().iter().any(named)
    }

    /// The rules of each user.
    fn acl_list(self) -> Vec<Vec<u8>> {
        // SAFETY: the context lives as long as `self`. `c` stands for one C string. The reply
        // owns its elements and texts, which are copied before it is freed.
        unsafe {
            let reply = api!(RedisModule_Call)(
                self.raw(),
                c"ACL".as_ptr(),
                c"c".as_ptr(),
                c"LIST".as_ptr(),
            );
            if reply.is_null() {
                return Vec::new();
            }
            let users = api!(RedisModule_CallReplyLength)(reply);
            let rules = |at| {
                let mut len = 0;
                let user = api!(RedisModule_CallReplyArrayElement)(reply, at);
                let text = api!(RedisModule_CallReplyStringPtr)(user, &mut len);
                (!text.is_null())
                    .then(|| std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec())
            };
            let all = (0..users).filter_map(rules).collect();
            api!(RedisModule_FreeCallReply)(reply);
            all
        }
    }

    /// The user whose command runs.
    pub fn user(self) -> User<'a> {
        if !self.has_user() {
            return User::Anybody;
        }
        // SAFETY: the context lives as long as `self` and has a user, as was asked above. The
        // name that the server makes is the caller's.
        let found = unsafe {
            Text::adopt(api!(RedisModule_GetCurrentUserName)(self.raw()))
                .map(|name| api!(RedisModule_GetModuleUserFromUserName)(name.raw()))
        };
        found
            .filter(|user| !user.is_null())
            .map_or(User::Nobody, |user| User::Named(Named(user, PhantomData)))
    }

    /// Whether there is one: the server crashes when it is asked for the name
    /// of none. A call as that user is refused first of all when there is none;
    /// this one is refused in any case, as it has no arguments.
    fn has_user(self) -> bool {
        // SAFETY: the context lives as long as `self`. `C` stands for no argument.
        unsafe {
            let reply = api!(RedisModule_Call)(self.raw(), c"GET".as_ptr(), c"C".as_ptr());
            let refusal = io::Error::last_os_error().raw_os_error();
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply)(reply);
            }
            refusal != Some(libc::ENOTSUP)
        }
    }
}

/// A user of the server, as far as its key permissions go.
pub enum User<'a> {
    /// None: what runs is not bound by any ACL.
    Anybody,
    /// One of the server's users.
    Named(Named<'a>),
    /// One that the server does not know.
    Nobody,
}

impl User<'_> {
    /// Whether the user may read this key.
    pub fn may_read(&self, key: &[u8]) -> bool {
        match self {
            User::Anybody => true,
            User::Named(user) => user.may_read(&Text::new(key)),
            User::Nobody => false,
        }
    }
}

/// A user's handle, good while the command runs.
pub struct Named<'a>(*mut raw::RedisModuleUser, PhantomData<&'a ()>);

impl Named<'_> {
    fn may_read(&self, key: &Str) -> bool {
        let reading = raw::REDISMODULE_CMD_KEY_ACCESS as c_int;
        // SAFETY: the server keeps a user as long as a command of it runs, and `Named` does not
        // outlive the command.
        let status =
            unsafe { api!(RedisModule_ACLCheckKeyPermissions)(self.0, key.raw(), reading) };
        status == raw::REDISMODULE_OK as c_int
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        // SAFETY: `user` got the handle, and a drop happens once. The user itself stays.
        unsafe { api!(RedisModule_FreeModuleUser)(self.0) };
    }
}
