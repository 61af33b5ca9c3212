//! Registers commands, with the texts for COMMAND DOCS and COMMAND INFO.

use super::{api, guard, Ctx, Reply, Str};
use redis_module::raw;
use std::ffi::{c_int, CStr, CString, NulError};
use std::ptr::{null, null_mut};

/// What a command does when it is called with `args`, its own name first.
pub trait Run {
    /// Where its keys are.
    const KEYS: Keys;

    /// Runs the command.
    fn run(ctx: Ctx<'_>, args: &[&Str]) -> Reply;

    /// The positions of the keys among `args`, for [`Keys::Clauses`]. None: the arguments are
    /// wrong, and the command will say so.
    fn key_positions(args: &[&Str]) -> Option<Vec<usize>>;
}

/// Where the keys of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The command has no key.
    None,
    /// The first argument.
    First(KeyUse),
    /// All arguments from this one on. The command's name has position 0.
    From(i32, KeyUse),
    /// A number and as many keys behind each of these words, from this argument on.
    Clauses(i32, &'static [&'static CStr], KeyUse),
}

/// How a command uses its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
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
    /// A key, found by the key spec with this index.
    Key(i32),
    /// Any bytes.
    Text,
    /// An integer.
    Integer,
    /// A pattern of names.
    Pattern,
    /// A fixed word.
    Word,
    /// One of the arguments within.
    OneOf(&'static [Arg]),
    /// All of the arguments within, one after the other.
    Block(&'static [Arg]),
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
    /// Whether there may be more than one of it.
    pub multiple: bool,
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
    /// The keys of the command.
    pub keys: Keys,
    /// The arguments of the command.
    pub args: &'static [Arg],
}

impl Ctx<'_> {
    /// Registers a command. The error is a text for the log.
    pub fn register<C: Run>(self, docs: &CommandDocs) -> Result<(), String> {
        let failed = |what: &str| format!("cannot {what} command {}", docs.name);
        let strings = Strings::of(docs).map_err(|_| failed("name"))?;
        let first_key = c_int::from(matches!(docs.keys, Keys::First(_)));
        let ok = raw::REDISMODULE_OK as c_int;
        let entry = match docs.keys {
            Keys::Clauses(..) => entry_that_reports_keys::<C>,
            _ => entry::<C>,
        };
        if self.create_command(&strings.name, Some(entry), &strings.flags, first_key) != ok {
            return Err(failed("create"));
        }
        // SAFETY: the context lives as long as `self`, and the command was made above. The
        // strings and arrays outlive the call, and the server copies them.
        let (command, status) = unsafe {
            let command = api!(RedisModule_GetCommand)(self.raw(), strings.name.as_ptr());
            let mut args = arg_infos(&strings.args);
            let mut specs = key_specs(docs.keys);
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

/// The function that the server calls for a command whose keys it cannot find by itself. The
/// server calls it as well to ask where the keys are.
unsafe extern "C" fn entry_that_reports_keys<C: Run>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server lends us the context for this call.
    let is_question = unsafe { api!(RedisModule_IsKeysPositionRequest)(ctx) } != 0;
    if !is_question {
        // SAFETY: the arguments are those of the server's call.
        return unsafe { entry::<C>(ctx, argv, argc) };
    }
    let found = guard::callback(|| {
        // SAFETY: as in `entry`.
        let args: &[&Str] = unsafe {
            std::slice::from_raw_parts(argv.cast_const().cast(), argc.unsigned_abs() as usize)
        };
        C::key_positions(args).unwrap_or_default()
    });
    let Keys::Clauses(_, _, key_use) = C::KEYS else {
        return raw::REDISMODULE_ERR as c_int;
    };
    let flags = flags_of(key_use) as c_int;
    for position in found.unwrap_or_default() {
        // SAFETY: the context is valid for this call, and the position is that of an argument.
        unsafe { api!(RedisModule_KeyAtPosWithFlags)(ctx, position as c_int, flags) };
    }
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
            ArgKind::OneOf(args) | ArgKind::Block(args) => {
                args.iter().map(ArgStrings::of).collect::<Result<_, _>>()?
            }
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
            let multiple = if strings.arg.multiple { raw::REDISMODULE_CMD_ARG_MULTIPLE } else { 0 };
            raw::RedisModuleCommandArg {
                name: strings.name.as_ptr(),
                type_: type_of(kind),
                key_spec_index: if let ArgKind::Key(spec) = kind { spec } else { -1 },
                token: strings.token.as_ref().map_or(null(), |token| token.as_ptr()),
                flags: (optional | multiple) as c_int,
                subargs: match kind {
                    ArgKind::OneOf(_) | ArgKind::Block(_) => within.infos.as_mut_ptr(),
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
        ArgKind::Key(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::Pattern => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN,
        ArgKind::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        ArgKind::Block(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
    }
}

fn no_arg() -> raw::RedisModuleCommandArg {
    // SAFETY: pointers and integers may be zero.
    unsafe { std::mem::zeroed() }
}

/// How many key specs a command has at most.
const MAX_SPECS: usize = 3;

/// The key specs, and the zeros that end the array.
fn key_specs(keys: Keys) -> [raw::RedisModuleCommandKeySpec; MAX_SPECS + 1] {
    // SAFETY: pointers, integers and unions of these may be zero.
    let mut specs: [raw::RedisModuleCommandKeySpec; MAX_SPECS + 1] = unsafe { std::mem::zeroed() };
    let (first, last, key_use) = match keys {
        Keys::None => return specs,
        Keys::First(key_use) => (1, 0, key_use),
        Keys::From(first, key_use) => (first, -1, key_use),
        Keys::Clauses(from, words, key_use) => {
            for (spec, word) in specs.iter_mut().take(MAX_SPECS).zip(words) {
                // A lock can have the name of a word. So the server is told to ask the command.
                spec.flags = u64::from(flags_of(key_use) | raw::REDISMODULE_CMD_KEY_INCOMPLETE);
                spec.begin_search_type =
                    raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
                spec.bs.keyword.keyword = word.as_ptr();
                spec.bs.keyword.startfrom = from;
                spec.find_keys_type =
                    raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
                spec.fk.keynum.keynumidx = 0;
                spec.fk.keynum.firstkey = 1;
                spec.fk.keynum.keystep = 1;
            }
            return specs;
        }
    };
    let spec = &mut specs[0];
    spec.flags = u64::from(flags_of(key_use));
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = first;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range.lastkey = last;
    spec.fk.range.keystep = 1;
    spec.fk.range.limit = 0;
    specs
}

fn flags_of(key_use: KeyUse) -> u32 {
    match key_use {
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
    }
}
