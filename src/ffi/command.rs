//! Registers commands, with the texts for COMMAND DOCS and COMMAND INFO.

use super::{api, guard, Ctx, Reply, Str};
use redis_module::raw;
use std::ffi::{c_int, CString, NulError};
use std::ptr::{null, null_mut};

/// What a command does when it is called with `args`, its own name first.
pub trait Run {
    /// Runs the command.
    fn run(ctx: Ctx<'_>, args: &[&Str]) -> Reply;
}

/// How a command uses its one key, which is its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// The command has no key.
    None,
    /// The command reads the key.
    Read,
    /// The command reads and changes the key.
    Update,
    /// The command reads the key and may delete it.
    Delete,
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// The key.
    Key,
    /// Any bytes.
    Text,
    /// An integer.
    Integer,
    /// A fixed word.
    Word,
    /// One of the arguments within.
    OneOf(&'static [Arg]),
}

/// An argument, as COMMAND DOCS shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// The name.
    pub name: &'static str,
    /// The kind.
    pub kind: ArgKind,
    /// The word before the argument; for [`ArgKind::Word`], the word itself.
    pub token: Option<&'static str>,
    /// Whether the argument is optional.
    pub optional: bool,
}

/// The description of a command for the server.
#[derive(Clone, Copy, Debug)]
pub struct CommandDocs {
    /// The name in lower case, like the names of the server's commands.
    pub name: &'static str,
    /// A summary of one sentence.
    pub summary: &'static str,
    /// The complexity in O notation.
    pub complexity: &'static str,
    /// The first version of the module with this command.
    pub since: &'static str,
    /// The flags of RedisModule_CreateCommand.
    pub flags: &'static str,
    /// The command's ACL categories, without the category of all commands of the module.
    pub categories: &'static str,
    /// The number of arguments, the name included; -n: at least n.
    pub arity: i32,
    /// How the command uses its key.
    pub key: KeyUse,
    /// The arguments of the command.
    pub args: &'static [Arg],
}

impl Ctx<'_> {
    /// Registers a command. The error is a text for the log.
    pub fn register<C: Run>(self, docs: &CommandDocs) -> Result<(), String> {
        let failed = |what: &str| format!("cannot {what} command {}", docs.name);
        let strings = Strings::of(docs).map_err(|_| failed("name"))?;
        let first_key = c_int::from(docs.key != KeyUse::None);
        let ok = raw::REDISMODULE_OK as c_int;
        if self.create_command(&strings.name, Some(entry::<C>), &strings.flags, first_key) != ok {
            return Err(failed("create"));
        }
        // SAFETY: the context lives as long as `self`, and the command was made above. The
        // strings and arrays outlive the call, and the server copies them.
        let (command, status) = unsafe {
            let command = api!(RedisModule_GetCommand)(self.raw(), strings.name.as_ptr());
            let mut args = arg_infos(&strings.args);
            let mut specs = key_specs(docs.key);
            let info = raw::RedisModuleCommandInfo {
                version: &INFO_VERSION,
                summary: strings.summary.as_ptr(),
                complexity: strings.complexity.as_ptr(),
                since: strings.since.as_ptr(),
                history: null_mut(),
                tips: null(),
                arity: docs.arity,
                key_specs: specs.as_mut_ptr(),
                args: args.infos.as_mut_ptr(),
            };
            (command, api!(RedisModule_SetCommandInfo)(command, &info))
        };
        if status != ok {
            return Err(failed("document"));
        }
        if self.categorize(command, docs) {
            Ok(())
        } else {
            Err(failed("categorize"))
        }
    }
}

/// The function that the server calls.
unsafe extern "C" fn entry<C: Run>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server lends us the context for this call.
    let Some(ctx) = (unsafe { Ctx::new(ctx) }).map(Ctx::of_command) else {
        return raw::REDISMODULE_ERR as c_int;
    };
    let reply = guard::callback(|| {
        // SAFETY: the server hands over `argc` strings that live until the command is
        // over, and `&Str` has the layout of a pointer to a string.
        let args: &[&Str] = unsafe {
            std::slice::from_raw_parts(argv.cast_const().cast(), argc.unsigned_abs() as usize)
        };
        C::run(ctx, args)
    })
    .unwrap_or_else(|panic| Reply::internal_error(&panic));
    ctx.reply_or_error(&reply);
    raw::REDISMODULE_OK as c_int
}

/// What the header's REDISMODULE_COMMAND_INFO_VERSION points to.
static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// The texts of a [`CommandDocs`] as C wants them.
struct Strings {
    name: CString,
    summary: CString,
    complexity: CString,
    since: CString,
    flags: CString,
    args: Vec<ArgStrings>,
}

struct ArgStrings {
    name: CString,
    token: Option<CString>,
    arg: Arg,
    within: Vec<ArgStrings>,
}

impl Strings {
    fn of(docs: &CommandDocs) -> Result<Strings, NulError> {
        Ok(Strings {
            name: CString::new(docs.name)?,
            summary: CString::new(docs.summary)?,
            complexity: CString::new(docs.complexity)?,
            since: CString::new(docs.since)?,
            flags: CString::new(docs.flags)?,
            args: docs.args.iter().map(ArgStrings::of).collect::<Result<_, _>>()?,
        })
    }
}

impl ArgStrings {
    fn of(arg: &Arg) -> Result<ArgStrings, NulError> {
        let within = match arg.kind {
            ArgKind::OneOf(args) => args.iter().map(ArgStrings::of).collect::<Result<_, _>>()?,
            _ => Vec::new(),
        };
        let token = arg.token.map(CString::new).transpose()?;
        Ok(ArgStrings { name: CString::new(arg.name)?, token, arg: *arg, within })
    }
}

/// An array of arguments, ended by one of zeros, and the arrays within it.
struct ArgInfos {
    infos: Vec<raw::RedisModuleCommandArg>,
    _within: Vec<ArgInfos>,
}

fn arg_infos(strings: &[ArgStrings]) -> ArgInfos {
    let mut within: Vec<ArgInfos> = strings.iter().map(|arg| arg_infos(&arg.within)).collect();
    let mut infos: Vec<_> = strings
        .iter()
        .zip(&mut within)
        .map(|(strings, within)| {
            let kind = strings.arg.kind;
            let optional = if strings.arg.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { 0 };
            raw::RedisModuleCommandArg {
                name: strings.name.as_ptr(),
                type_: type_of(kind),
                key_spec_index: if kind == ArgKind::Key { 0 } else { -1 },
                token: strings.token.as_ref().map_or(null(), |token| token.as_ptr()),
                flags: optional as c_int,
                subargs: match kind {
                    ArgKind::OneOf(_) => within.infos.as_mut_ptr(),
                    _ => null_mut(),
                },
                ..no_arg()
            }
        })
        .collect();
    infos.push(no_arg());
    ArgInfos { infos, _within: within }
}

fn type_of(kind: ArgKind) -> raw::RedisModuleCommandArgType {
    match kind {
        ArgKind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
    }
}

fn no_arg() -> raw::RedisModuleCommandArg {
    // SAFETY: pointers and integers may be zero.
    unsafe { std::mem::zeroed() }
}

/// The one key spec, and the zeros that end the array.
fn key_specs(key: KeyUse) -> [raw::RedisModuleCommandKeySpec; 2] {
    // SAFETY: pointers, integers and unions of these may be zero.
    let mut specs: [raw::RedisModuleCommandKeySpec; 2] = unsafe { std::mem::zeroed() };
    let flags = match key {
        KeyUse::None => return specs,
        KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::Delete => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_DELETE
        }
    };
    let spec = &mut specs[0];
    spec.flags = u64::from(flags);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range.lastkey = 0;
    spec.fk.range.keystep = 1;
    spec.fk.range.limit = 0;
    specs
}
