//! What COMMAND and HELP know of the commands.

use std::collections::BTreeSet;

use redis::{Connection, Value};

use crate::access::rights::Categories;
use support::{assert_error, assert_ok, call, int, list, map, text, Server};

/// A command as it shall be known.
pub struct Known {
    pub name: &'static str,
    /// As HELP writes it.
    syntax: &'static str,
    pub arity: i64,
    flags: &'static str,
    /// Beside `rwlock`, which all are in.
    pub categories: &'static str,
    /// What it does with its key; empty without one.
    pub key: &'static str,
    /// Where its keys are, if it has any.
    place: Place,
}

/// Where the keys of a command are; its name has position 0.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    First,
    /// All arguments from this one on.
    From(i64),
    /// A number and as many keys behind each of these words, which stand from there on.
    Clauses(i64, &'static [&'static str]),
}

pub const COMMANDS: [Known; 16] = [
    Known {
        name: "rwlock.rlock",
        syntax: "key owner lease [BLOCK timeout] [SESSION] [ONCE]",
        arity: -4,
        flags: "write denyoom blocking",
        categories: "write slow blocking",
        key: "RW access update",
        place: Place::First,
    },
    Known {
        name: "rwlock.wlock",
        syntax: "key owner lease [BLOCK timeout] [SESSION] [ONCE] [FENCE] [RESERVE milliseconds]",
        arity: -4,
        flags: "write denyoom blocking",
        categories: "write slow blocking",
        key: "RW access update",
        place: Place::First,
    },
    Known {
        name: "rwlock.unlock",
        syntax: "key owner [READ | WRITE | ALL]",
        arity: -3,
        flags: "write fast",
        categories: "write fast",
        key: "RW access delete",
        place: Place::First,
    },
    Known {
        name: "rwlock.renew",
        syntax: "key owner lease",
        arity: 4,
        flags: "write fast",
        categories: "write fast",
        key: "RW access update",
        place: Place::First,
    },
    Known {
        name: "rwlock.upgrade",
        syntax: "key owner lease [BLOCK timeout] [SESSION] [ONCE] [FENCE]",
        arity: -4,
        flags: "write denyoom blocking",
        categories: "write slow blocking",
        key: "RW access update",
        place: Place::First,
    },
    Known {
        name: "rwlock.downgrade",
        syntax: "key owner lease",
        arity: 4,
        flags: "write fast",
        categories: "write fast",
        key: "RW access update",
        place: Place::First,
    },
    Known {
        name: "rwlock.mlock",
        syntax: "owner lease [READ numkeys key [key ...]] [WRITE numkeys key [key ...]] \
                 [BLOCK timeout] [SESSION] [ONCE] [FENCE]",
        arity: -6,
        flags: "write denyoom blocking movablekeys",
        categories: "write slow blocking",
        key: "RW access update incomplete",
        place: Place::Clauses(3, &["READ", "WRITE"]),
    },
    Known {
        name: "rwlock.munlock",
        syntax: "owner [READ numkeys key [key ...]] [WRITE numkeys key [key ...]] \
                 [ALL numkeys key [key ...]]",
        arity: -5,
        flags: "write movablekeys",
        categories: "write slow",
        key: "RW access delete incomplete",
        place: Place::Clauses(2, &["READ", "WRITE", "ALL"]),
    },
    Known {
        name: "rwlock.mrenew",
        syntax: "owner lease key [key ...]",
        arity: -4,
        flags: "write",
        categories: "write slow",
        key: "RW access update",
        place: Place::From(3),
    },
    Known {
        name: "rwlock.forceunlock",
        syntax: "key [READ | WRITE]",
        arity: -2,
        flags: "write",
        categories: "write slow dangerous",
        key: "RW access delete",
        place: Place::First,
    },
    Known {
        name: "rwlock.inspect",
        syntax: "key [COUNT count]",
        arity: -2,
        flags: "readonly",
        categories: "read slow",
        key: "RO access",
        place: Place::First,
    },
    Known {
        name: "rwlock.list",
        syntax: "cursor [MATCH pattern] [HELD milliseconds] [COUNT count]",
        arity: -2,
        flags: "readonly",
        categories: "read slow",
        key: "",
        place: Place::First,
    },
    Known {
        name: "rwlock.queues",
        syntax: "[COUNT count]",
        arity: -1,
        flags: "readonly",
        categories: "read slow",
        key: "",
        place: Place::First,
    },
    Known {
        name: "rwlock.log",
        syntax: "[COUNT count | RESET]",
        arity: -1,
        flags: "readonly",
        categories: "read slow",
        key: "",
        place: Place::First,
    },
    Known {
        name: "rwlock.hotlocks",
        syntax: "[COUNT count | RESET]",
        arity: -1,
        flags: "readonly",
        categories: "read slow",
        key: "",
        place: Place::First,
    },
    Known {
        name: "rwlock.help",
        syntax: "",
        arity: 1,
        flags: "loading stale fast",
        categories: "fast",
        key: "",
        place: Place::First,
    },
];

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn texts(value: &Value) -> BTreeSet<String> {
    list(value).iter().map(text).collect()
}

/// An argument of COMMAND DOCS, written as HELP would.
fn syntax(argument: &Value) -> String {
    let argument = map(argument);
    let name = text(&argument["name"]);
    let kind = text(&argument["type"]);
    let token = argument.get("token").map(text);
    let inner = match (kind.as_str(), token) {
        ("pure-token", Some(token)) => token,
        ("oneof", None) => {
            let choices = list(&argument["arguments"]);
            choices.iter().map(syntax).collect::<Vec<_>>().join(" | ")
        }
        ("key", None) => {
            assert_eq!(name, "key");
            name.clone()
        }
        ("block", Some(token)) => {
            let within = list(&argument["arguments"]);
            let within: Vec<_> = within.iter().map(syntax).collect();
            format!("{token} {}", within.join(" "))
        }
        ("string", None) => {
            assert_eq!(name, "owner");
            name.clone()
        }
        ("integer", None) => {
            assert!(["lease", "numkeys", "cursor"].contains(&name.as_str()), "{name}");
            name.clone()
        }
        ("integer" | "pattern", Some(token)) => format!("{token} {name}"),
        other => panic!("argument {name} is {other:?}"),
    };
    let mut flags = argument.get("flags").map(texts).unwrap_or_default();
    let inner = if flags.remove("multiple") { format!("{inner} [{inner} ...]") } else { inner };
    if flags.contains("optional") {
        assert_eq!(flags.len(), 1);
        format!("[{inner}]")
    } else {
        assert!(flags.is_empty(), "{name}: {flags:?}");
        inner
    }
}

fn info(con: &mut Connection, name: &str) -> Vec<Value> {
    list(&list(call!(con, "COMMAND", "INFO", name))[0])
}

#[test]
fn command_docs_tells_the_syntax_that_help_shows() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let help: Vec<String> = list(call!(con, "RWLOCK.HELP")).iter().map(text).collect();
    assert_eq!(help.len(), COMMANDS.len(), "a line for each command");
    for command in &COMMANDS {
        for spelling in [command.name.to_owned(), command.name.to_uppercase()] {
            let docs = map(call!(con, "COMMAND", "DOCS", spelling));
            let docs = map(&docs[command.name]);
            let summary = text(&docs["summary"]);
            assert!(summary.starts_with(char::is_uppercase), "{summary}");
            assert!(!summary.ends_with('.') && !summary.contains('\n'), "{summary}");
            assert!(text(&docs["complexity"]).starts_with("O("));
            assert_eq!(text(&docs["since"]), "0.1.0");
            assert_eq!(text(&docs["group"]), "module");
            assert_eq!(text(&docs["module"]), "rwlock");
            let arguments = docs.get("arguments").map(list).unwrap_or_default();
            let told: Vec<String> = arguments.iter().map(syntax).collect();
            assert_eq!(told.join(" "), command.syntax, "{}", command.name);

            let start = format!("{} {}", command.name.to_uppercase(), command.syntax);
            let lines = help.iter().filter(|line| line.starts_with(start.trim_end()));
            // RLOCK's line also starts like a shorter command's would.
            let line = lines.min_by_key(|line| line.len()).expect("a line of HELP");
            assert!(line.contains(&summary), "{line}");
        }
    }
    let total = list(call!(con, "COMMAND", "LIST", "FILTERBY", "MODULE", "rwlock"));
    let mut names: BTreeSet<String> = total.iter().map(text).collect();
    if !server.version().at_least((7, 2), (8, 0)) {
        // There the module cannot ask the server without these; they do nothing.
        assert!(names.remove("rwlock.probe-read") && names.remove("rwlock.probe-write"));
    }
    assert_eq!(names, COMMANDS.iter().map(|command| command.name.to_owned()).collect());
}

#[test]
fn help_speaks_every_protocol_and_takes_no_arguments() {
    let server = Server::builder().start();
    let lines = list(call!(server.connection(), "RWLOCK.HELP"));
    assert_eq!(list(call!(server.connection_resp3(), "RWLOCK.HELP")), lines);
    for line in lines {
        // As the servers' own HELP subcommands answer.
        assert!(matches!(line, Value::SimpleString(_)), "{line:?}");
    }
    assert_error(call!(server.connection(), "RWLOCK.HELP", "me"), "ERR wrong number of arguments");
}

#[test]
fn command_info_tells_arity_flags_and_how_the_key_is_used() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for command in &COMMANDS {
        let info = info(&mut con, &command.name.to_uppercase());
        assert_eq!(text(&info[0]), command.name);
        assert_eq!(int(&info[1]), command.arity, "{}", command.name);
        let mut flags = texts(&info[2]);
        assert!(flags.remove("module"), "{flags:?}");
        assert_eq!(flags, words(command.flags), "{}", command.name);
        let categories = Categories::of(&server).of_command(command);
        assert_eq!(texts(&info[6]), categories, "{}", command.name);
        let keys = match command.place {
            _ if command.key.is_empty() => [0, 0, 0],
            Place::First => [1, 1, 1],
            Place::From(first) => [first, -1, 1],
            Place::Clauses(..) => [0, 0, 0],
        };
        assert_eq!([3, 4, 5].map(|at: usize| int(&info[at])), keys, "{}", command.name);

        let specs = list(&info[8]);
        if command.key.is_empty() {
            assert!(specs.is_empty());
            continue;
        }
        if let Place::Clauses(from, words) = command.place {
            check_clauses(command, &specs, from, words);
            continue;
        }
        assert_eq!(specs.len(), 1);
        let spec = map(&specs[0]);
        assert_eq!(texts(&spec["flags"]), words(command.key), "{}", command.name);
        let begin = map(&spec["begin_search"]);
        assert_eq!(text(&begin["type"]), "index");
        assert_eq!(int(&map(&begin["spec"])["index"]), keys[0]);
        let find = map(&spec["find_keys"]);
        assert_eq!(text(&find["type"]), "range");
        let range = map(&find["spec"]);
        let last = if command.place == Place::First { 0 } else { -1 };
        assert_eq!(
            [int(&range["lastkey"]), int(&range["keystep"]), int(&range["limit"])],
            [last, 1, 0]
        );
    }
}

/// A key spec for each word. They are said to be incomplete, so that clients ask the server:
/// a lock can have the name of a word.
fn check_clauses(command: &Known, specs: &[Value], from: i64, clauses: &[&str]) {
    assert_eq!(specs.len(), clauses.len(), "{}", command.name);
    for (spec, word) in specs.iter().map(map).zip(clauses) {
        assert_eq!(texts(&spec["flags"]), words(command.key), "{}", command.name);
        let begin = map(&spec["begin_search"]);
        assert_eq!(text(&begin["type"]), "keyword");
        let keyword = map(&begin["spec"]);
        assert_eq!((text(&keyword["keyword"]).as_str(), int(&keyword["startfrom"])), (*word, from));
        let find = map(&spec["find_keys"]);
        assert_eq!(text(&find["type"]), "keynum");
        let number = map(&find["spec"]);
        assert_eq!(["keynumidx", "firstkey", "keystep"].map(|name| int(&number[name])), [0, 1, 1]);
    }
}

#[test]
fn the_key_of_a_call_can_be_asked_for() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let key = b"\0\xffk";
    let with_key = |command: &&Known| !command.key.is_empty() && command.place == Place::First;
    for command in COMMANDS.iter().filter(with_key) {
        let name = command.name.to_uppercase();
        let keys = list(call!(con, "COMMAND", "GETKEYS", &name, key, "me", 60_000));
        // Those with a fixed arity have three arguments, the others at most.
        assert_eq!(keys, [Value::BulkString(key.to_vec())], "{name}");
        let flagged = list(call!(con, "COMMAND", "GETKEYSANDFLAGS", &name, key, "me", 60_000));
        let flagged = list(&flagged[0]);
        assert_eq!(flagged[0], Value::BulkString(key.to_vec()));
        assert_eq!(texts(&flagged[1]), words(command.key));
    }
    assert!(call!(con, "COMMAND", "GETKEYS", "RWLOCK.HELP").is_err(), "it has no key");
}

#[test]
fn every_documented_option_is_accepted_and_every_argument_needed() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for command in &COMMANDS {
        // The fixed arguments, and each optional part.
        let syntax = command.syntax.replace(" [key ...]", "");
        let (fixed, options) = match syntax.split_once('[') {
            Some((fixed, rest)) => (fixed, rest.trim_end_matches(']')),
            None => (syntax.as_str(), ""),
        };
        let value = |word: &str| match word {
            "key" => "k".to_owned(),
            "owner" => "me".to_owned(),
            "numkeys" => "1".to_owned(),
            "cursor" => "0".to_owned(),
            "lease" | "milliseconds" | "count" | "timeout" => "60000".to_owned(),
            word => word.to_owned(),
        };
        let fixed: Vec<String> =
            [command.name].into_iter().chain(fixed.split_whitespace()).map(value).collect();
        let parts = options.split("] [").flat_map(|part| part.split(" | "));
        for option in parts {
            let mut call: Vec<String> = fixed.clone();
            call.extend(option.split_whitespace().map(value));
            if matches!(command.place, Place::Clauses(..)) && !option.starts_with("WRITE") {
                call.extend(["WRITE", "1", "other"].map(str::to_owned));
            }
            if let Err(error) = support::send(&mut con, &call) {
                let error = support::error_text(&error);
                assert!(error.starts_with("NOTHELD"), "{call:?}: {error}");
            }
            assert_ok(call!(con, "FLUSHALL"));
        }
        if fixed.len() > 1 {
            let short = &fixed[..fixed.len() - 1];
            let result = support::send(&mut con, short);
            assert_error(result, "ERR wrong number of arguments");
        }
    }
}
