//! Which user may run which command: by category, by name, by
//! the lock's key.

use std::collections::BTreeSet;

use redis::{Connection, RedisResult, Value};

use crate::commands::introspection::{Known, COMMANDS};
use support::unchanged::assert_unchanged;
use support::{
    assert_error, assert_ok, call, error_text, every_command, int, library, list, map, send, text,
    unload, Server,
};

/// The ACL categories that a server has for a module's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Categories {
    None,
    /// Its own.
    Standard,
    /// Its own, and those that a module adds.
    All,
}

impl Categories {
    pub fn of(server: &Server) -> Self {
        let version = server.version();
        if version.at_least((7, 4), (8, 0)) {
            Self::All
        } else if version.at_least((7, 2), (8, 0)) {
            Self::Standard
        } else {
            Self::None
        }
    }

    /// Those of a command, as COMMAND INFO shows them.
    pub fn of_command(self, command: &Known) -> BTreeSet<String> {
        let own = command.categories.split(' ').filter(|_| self != Self::None);
        let added = Some("rwlock").filter(|_| self == Self::All);
        own.chain(added).map(|name| format!("@{name}")).collect()
    }
}

/// What gives a user every command of the module and nothing else.
pub fn all_commands(server: &Server) -> Vec<String> {
    match Categories::of(server) {
        Categories::All => vec!["+@rwlock".to_owned()],
        _ => COMMANDS.iter().map(|command| format!("+{}", command.name)).collect(),
    }
}

/// A connection of a new user with these rules.
#[track_caller]
pub fn user<R: AsRef<str>>(server: &Server, name: &str, rules: &[R]) -> Connection {
    let mut admin = server.connection();
    let rules = rules.iter().map(AsRef::as_ref);
    let words = ["ACL", "SETUSER", name, "reset", "on", ">pass"].into_iter().chain(rules);
    assert_ok(send(&mut admin, words));
    let mut con = server.connection();
    assert_ok(call!(con, "AUTH", name, "pass"));
    con
}

/// What comes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    NoCommand,
    NoKey,
    Runs,
}

fn outcome(result: RedisResult<Value>) -> Outcome {
    let Err(error) = result else {
        return Outcome::Runs;
    };
    let error = error_text(&error);
    match error.starts_with("NOPERM") {
        // The texts differ from server to server, but for these words.
        true if error.contains("to run the") => Outcome::NoCommand,
        true if error.contains("key") => Outcome::NoKey,
        _ => {
            assert!(error.starts_with("NOTHELD"), "{error}");
            Outcome::Runs
        }
    }
}

/// Every command in every form, with whether it has a key, and whether it
/// changes it.
fn walk() -> Vec<(Vec<Vec<u8>>, bool, bool)> {
    let keyed = |commands: &'static [every_command::Command], writes| {
        commands.iter().map(move |command| (command.words(b"lock", b"me"), true, writes))
    };
    let plain = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let keyless = [
        "RWLOCK.LIST 0",
        "RWLOCK.QUEUES",
        "RWLOCK.QUEUES COUNT 1",
        "RWLOCK.LOG",
        "RWLOCK.LOG COUNT 1",
        "RWLOCK.LOG RESET",
        "RWLOCK.HOTLOCKS",
        "RWLOCK.HOTLOCKS COUNT 1",
        "RWLOCK.HOTLOCKS RESET",
        "RWLOCK.HELP",
    ];
    let all: Vec<_> = keyed(&every_command::WRITING, true)
        .chain(keyed(&every_command::READING, false))
        .chain(keyless.map(|line| (plain(line), false, false)))
        .collect();
    let walked: BTreeSet<_> =
        all.iter().map(|(words, ..)| String::from_utf8_lossy(&words[0]).to_lowercase()).collect();
    assert_eq!(walked, COMMANDS.iter().map(|command| command.name.to_owned()).collect());
    all
}

#[test]
fn every_command_asks_for_the_right_to_it_and_to_the_lock() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    assert_ok(call!(admin, "RWLOCK.WLOCK", "lock", "other", 600_000));
    let commands = all_commands(&server);
    let and = |more: &[&str]| -> Vec<String> {
        commands.iter().cloned().chain(more.iter().map(|rule| (*rule).to_owned())).collect()
    };
    let nobody: [&str; 0] = [];
    let users = [
        ("nothing", user(&server, "nothing", &nobody)),
        ("keys", user(&server, "keys", &["~*", "&*"])),
        ("commands", user(&server, "commands", &commands)),
        ("others", user(&server, "others", &and(&["~other", "~{lock}*"]))),
        ("reads", user(&server, "reads", &and(&["%R~lock"]))),
        ("writes", user(&server, "writes", &and(&["%W~lock"]))),
        ("all", user(&server, "all", &and(&["~lock"]))),
    ];
    for (name, mut con) in users {
        for (words, has_key, writes) in walk() {
            let expected = match (name, has_key, writes) {
                ("nothing" | "keys", ..) => Outcome::NoCommand,
                ("all", ..) | (_, false, _) | ("reads", true, false) => Outcome::Runs,
                _ => Outcome::NoKey,
            };
            let line = words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>();
            if expected == Outcome::Runs {
                assert_eq!(outcome(send(&mut con, &words)), expected, "{name}: {line:?}");
            } else {
                assert_unchanged(&mut admin, |_| {
                    assert_eq!(outcome(send(&mut con, &words)), expected, "{name}: {line:?}");
                });
            }
        }
    }
}

/// The commands of the module that a user may run, if he may use the key.
fn allowed(admin: &mut Connection, name: &str) -> BTreeSet<&'static str> {
    let may_run = |command: &&Known| {
        let answer = match (command.key.is_empty(), command.arity.abs()) {
            (true, 2) => call!(admin, "ACL", "DRYRUN", name, command.name, 0),
            (true, _) => call!(admin, "ACL", "DRYRUN", name, command.name),
            (false, 6) => {
                call!(admin, "ACL", "DRYRUN", name, command.name, "me", 1, "READ", 1, "k")
            }
            (false, 5) => call!(admin, "ACL", "DRYRUN", name, command.name, "me", "READ", 1, "k"),
            (false, 2) => call!(admin, "ACL", "DRYRUN", name, command.name, "k"),
            (false, 3) => call!(admin, "ACL", "DRYRUN", name, command.name, "k", "me"),
            (false, _) => call!(admin, "ACL", "DRYRUN", name, command.name, "k", "me", 1),
        };
        text(answer) == "OK"
    };
    COMMANDS.iter().filter(may_run).map(|command| command.name).collect()
}

#[test]
fn a_category_gives_and_takes_the_commands_that_are_in_it() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    let all: BTreeSet<_> = COMMANDS.iter().map(|command| command.name).collect();
    let categories = Categories::of(&server);
    for category in ["read", "write", "fast", "slow", "blocking", "dangerous", "rwlock", "pubsub"] {
        if category == "rwlock" && categories != Categories::All {
            let result = call!(admin, "ACL", "SETUSER", "ann", "+@rwlock");
            assert_error(result, "ERR Error in ACL SETUSER modifier '+@rwlock'");
            continue;
        }
        let its: BTreeSet<_> = COMMANDS
            .iter()
            .filter(|command| categories.of_command(command).contains(&format!("@{category}")))
            .map(|command| command.name)
            .collect();
        drop(user(&server, "with", &["~*", &format!("+@{category}")]));
        assert_eq!(allowed(&mut admin, "with"), its, "+@{category}");
        drop(user(&server, "without", &["~*", "+@all", &format!("-@{category}")]));
        assert_eq!(allowed(&mut admin, "without"), &all - &its, "-@{category}");
    }
    if categories != Categories::None {
        // The rule that most administrators know.
        drop(user(&server, "most", &["~*", "+@all", "-@dangerous"]));
        assert_eq!(&all - &allowed(&mut admin, "most"), ["rwlock.forceunlock"].into());
    }
}

#[test]
fn a_right_to_one_command_on_some_locks_is_no_more_than_that() {
    let server = Server::builder().start();
    let mut con = user(&server, "ann", &["+rwlock.rlock", "~orders*"]);
    // What the module does for itself (other keys, a channel) needs no right.
    assert_ok(call!(con, "RWLOCK.RLOCK", "orders", "me", 60_000));
    assert_ok(call!(con, "rwlock.rlock", "orders:7", "me", 60_000));
    assert_error(call!(con, "RWLOCK.RLOCK", "others", "me", 60_000), "NOPERM");
    assert_error(call!(con, "RWLOCK.RLOCK", "{orders}", "me", 60_000), "NOPERM");
    assert_error(call!(con, "RWLOCK.WLOCK", "orders", "me", 60_000), "NOPERM");
    assert_error(call!(con, "RWLOCK.UNLOCK", "orders", "me"), "NOPERM");
    assert_error(call!(con, "RWLOCK.INSPECT", "orders"), "NOPERM");
    assert_error(call!(con, "RWLOCK.HELP"), "NOPERM");
    // And the derived keys are not his to read.
    assert_error(call!(con, "GET", "{orders}:me:rwlock_timeout:1"), "NOPERM");

    let mut con = user(&server, "bob", &["+rwlock.unlock", "%RW~orders*"]);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "orders", "me")), 1);
}

#[test]
fn scripts_functions_and_transactions_ask_for_the_same_rights() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    let library = "#!lua name=lib
        redis.register_function('take', function(keys, args)
            return redis.call('RWLOCK.WLOCK', args[1], 'me', 60000)
        end)";
    assert_eq!(text(call!(admin, "FUNCTION", "LOAD", library)), "lib");
    let rules = ["~app:*", "+eval", "+fcall", "+multi", "+exec", "+rwlock.wlock"];
    let mut con = user(&server, "ann", &rules);
    let take = "return redis.call('RWLOCK.WLOCK', ARGV[1], 'me', 60000)";
    let force = "return redis.call('RWLOCK.FORCEUNLOCK', ARGV[1])";
    for lock in ["other", "{app:1}", "{app:1}:b"] {
        assert_unchanged(&mut admin, |_| {
            // As an argument, which the server does not see before it is used.
            assert!(call!(con, "EVAL", take, 0, lock).is_err(), "EVAL {lock}");
            assert!(call!(con, "FCALL", "take", 0, lock).is_err(), "FCALL {lock}");
            assert_error(call!(con, "EVAL", take, 1, lock, lock), "NOPERM");
            assert_ok(call!(con, "MULTI"));
            assert_error(call!(con, "RWLOCK.WLOCK", lock, "me", 60_000), "NOPERM");
            assert_error(call!(con, "EXEC"), "EXECABORT");
        });
    }
    assert!(call!(con, "EVAL", force, 0, "app:1").is_err(), "not his to run");
    assert_ok(call!(con, "EVAL", take, 0, "app:1"));
    assert_ok(call!(con, "FCALL", "take", 0, "app:2"));
    assert_ok(call!(con, "MULTI"));
    assert_eq!(text(call!(con, "RWLOCK.WLOCK", "app:3", "me", 60_000)), "QUEUED");
    assert_eq!(list(call!(con, "EXEC")), [Value::Okay]);
}

/// The module cannot ask which rules name its commands.
#[test]
fn where_acl_is_renamed_the_module_stays_loaded() {
    let server = Server::builder().config("rename-command", "ACL hidden").start();
    let mut con = server.connection();
    if Categories::of(&server) == Categories::None {
        unload(&mut con);
    } else {
        assert_error(call!(con, "MODULE", "UNLOAD", "rwlock"), "ERR Error unloading module");
    }
}

#[test]
fn rights_are_asked_for_when_the_command_comes_and_not_again_at_the_grant() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    assert_ok(call!(admin, "RWLOCK.WLOCK", "app:1", "holder", 600_000));
    let mut con = user(&server, "ann", &["~app:*", "+rwlock.wlock"]);
    let mut waits = redis::cmd("RWLOCK.WLOCK");
    waits.arg("app:1").arg("me").arg(60_000).arg("BLOCK").arg(0);
    con.send_packed_command(&waits.get_packed_command()).expect("send a command");
    support::wait_until("it waits", || {
        int(&map(call!(admin, "RWLOCK.INSPECT", "app:1"))["waiters_total"]) == 1
    });
    assert_ok(call!(admin, "ACL", "SETUSER", "ann", "resetkeys"));
    assert_eq!(int(call!(admin, "RWLOCK.UNLOCK", "app:1", "holder")), 1);
    assert_eq!(con.recv_response(), Ok(Value::Okay));
    assert_error(call!(con, "RWLOCK.WLOCK", "app:1", "me", 60_000), "NOPERM");
}

#[test]
fn categories_outlive_the_module_and_rules_that_name_commands_keep_it_loaded() {
    let server = Server::builder().start();
    let path = library(&server);
    let mut admin = server.connection();
    let categories = Categories::of(&server);
    let rule = if categories == Categories::All { "+@rwlock" } else { "+@write" };
    let mut con = user(&server, "ann", &["~app:*", rule, "-@dangerous"]);
    let before = allowed(&mut admin, "ann");
    for _ in 0..3 {
        unload(&mut admin);
        assert_error(call!(con, "RWLOCK.HELP"), "ERR unknown command");
        assert_ok(call!(admin, "MODULE", "LOAD", &path));
        assert_eq!(allowed(&mut admin, "ann"), before);
    }

    // Servers from 7.2 on do not survive what they would do here; see
    // docs/access.md.
    let rules = ["+rwlock.rlock", "-RWLOCK.FORCEUNLOCK"];
    for rule in rules.into_iter().filter(|_| categories != Categories::None) {
        drop(user(&server, "bob", &["+@all", rule]));
        assert_error(call!(admin, "MODULE", "UNLOAD", "rwlock"), "ERR Error unloading module");
        // Nothing of it has stopped.
        assert_ok(call!(admin, "RWLOCK.WLOCK", "lock", "me", 60_000, "SESSION"));
        assert_eq!(int(call!(admin, "RWLOCK.UNLOCK", "lock", "me")), 1);
        assert_eq!(int(call!(admin, "ACL", "DELUSER", "bob")), 1);
        // In a selector too.
        assert_ok(call!(admin, "ACL", "SETUSER", "bob", format!("(~x {rule})")));
        assert_error(call!(admin, "MODULE", "UNLOAD", "rwlock"), "ERR Error unloading module");
        assert_eq!(int(call!(admin, "ACL", "DELUSER", "bob")), 1);
    }
    // Keys and users of that name are none of its commands.
    drop(user(&server, "+rwlock.rlock", &["~rwlock.rlock", "~+rwlock.rlock", "&-rwlock.rlock"]));
    unload(&mut admin);
}

#[test]
fn users_of_the_configuration_may_have_rules_for_the_module() {
    let rules = "on nopass ~app:* +rwlock.rlock";
    let server = Server::builder().config("user", format!("ann {rules}")).start();
    let all = Categories::of(&server) == Categories::All;
    let mut con = server.connection();
    assert_ok(call!(con, "AUTH", "ann", "any"));
    assert_ok(call!(con, "RWLOCK.RLOCK", "app:1", "me", 60_000));
    assert_error(call!(con, "RWLOCK.RLOCK", "other", "me", 60_000), "NOPERM");
    if all {
        let server = Server::builder().config("user", "bob on nopass ~app:* +@rwlock").start();
        let mut con = server.connection();
        assert_ok(call!(con, "AUTH", "bob", "any"));
        assert_ok(call!(con, "RWLOCK.WLOCK", "app:1", "me", 60_000));
    }
}
