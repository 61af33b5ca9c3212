//! ACL: the categories of the commands, and the key permissions of the user that runs a command.

use super::{api, CallReply, CommandDocs, Ctx, Str, Text};
use redis_module::raw;
use std::ffi::{c_int, CString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::marker::PhantomData;

/// The ACL category of all commands of the module.
const CATEGORY: &str = "rwlock";

impl<'a> Ctx<'a> {
    /// Adds the module's ACL category, if the server supports that (from Redis 7.4 and Valkey 8.0
    /// on). A category that exists already is no error, because the server keeps it after the
    /// module is unloaded. The error is a text for the log.
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

    /// Sets the categories of a new command, as far as the server supports that: none before Redis
    /// 7.2, only the server's own categories in 7.2. False: the server refuses them.
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

    /// Whether a user's ACL rule names a command of the module, so that the server would crash
    /// after the module is unloaded. From Redis 7.2 on the server then applies all rules again, and
    /// crashes at a rule that names a removed command (valkey-io/valkey#2797). Valkey 9.1 itself
    /// refuses to unload the module.
    pub fn acl_names_commands(self) -> bool {
        // SAFETY: nothing writes to the pointer after the load.
        let applies_anew = unsafe { raw::RedisModule_SetCommandACLCategories };
        let named = |rules: &Vec<u8>| {
            let rules = String::from_utf8_lossy(rules).to_ascii_lowercase();
            // `user <name> <rule> <rule>…`
            let mut rules = rules.split(' ').skip(2);
            rules.any(|rule| rule.starts_with("+rwlock.") || rule.starts_with("-rwlock."))
        };
        applies_anew.is_some() && self.acl_list().is_none_or(|rules| rules.iter().any(named))
    }

    /// The ACL rules of each user, one line for each. None: the server does not tell, for example
    /// because ACL is renamed.
    fn acl_list(self) -> Option<Vec<Vec<u8>>> {
        let Some(CallReply::List(users)) = self.call(c"ACL", c"LIST", &[]) else {
            return None;
        };
        let rules = |user| match user {
            CallReply::Text(rules) => Some(rules),
            _ => None,
        };
        Some(users.into_iter().filter_map(rules).collect())
    }

    /// Whether the user that runs the command may run this one too, which takes one key, without
    /// regard to keys. No module function tells: the one for commands checks the keys as well, and
    /// newer servers refuse a command without its key
    /// ([redis#14847](https://github.com/redis/redis/pull/14847), also in Debian's Redis 8.0.2).
    pub fn may_run(self, command: &str) -> bool {
        let Some(user) = self.user_name() else {
            return true;
        };
        // The server tells of the key only if the command is allowed. A key that nobody can guess
        // is not in the name of the user or of a command.
        let key = unguessable();
        let words = [user.bytes(), command.as_bytes(), key.as_bytes()];
        match self.call(c"ACL", c"DRYRUN", &words) {
            Some(CallReply::Text(answer)) => {
                answer == b"OK" || String::from_utf8_lossy(&answer).contains(&key)
            }
            _ => false,
        }
    }

    /// The name of the user that runs the command; None: there is no user.
    pub fn user_name(self) -> Option<Text> {
        if !self.has_user() {
            return None;
        }
        // SAFETY: the context lives as long as `self` and has a user, as was asked above. The
        // name that the server makes is the caller's.
        unsafe { Text::adopt(api!(RedisModule_GetCurrentUserName)(self.raw())) }
    }

    /// The user that runs the command.
    pub fn user(self) -> User<'a> {
        let Some(name) = self.user_name() else {
            return User::Anybody;
        };
        // SAFETY: the name is a string.
        let user = unsafe { api!(RedisModule_GetModuleUserFromUserName)(name.raw()) };
        match user.is_null() {
            true => User::Nobody,
            false => User::Named(Named(user, PhantomData)),
        }
    }

    /// Whether the context has a user. Without one the server would crash when asked for the user's
    /// name. To find out, this calls GET as the user, without arguments. The call always fails, but
    /// if there is no user, it fails with ENOTSUP.
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

/// The user that runs a command, for the check of its key permissions.
pub enum User<'a> {
    /// No user, so no ACL applies.
    Anybody,
    /// A user of the server.
    Named(Named<'a>),
    /// A user that the server does not know, for example a deleted one.
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

    /// Whether the user may read a key of which only the beginning is known, whatever follows. To
    /// find out, this asks for a key that begins like it and ends in a number that nobody can
    /// guess. So a rule for single names, or for names with a certain end, does not allow it.
    pub fn may_read_all_from(&self, beginning: &[u8]) -> bool {
        self.may_read(&[beginning, unguessable().as_bytes()].concat())
    }
}

/// A text that nobody can guess.
fn unguessable() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// The handle of a user, valid while the command runs.
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
