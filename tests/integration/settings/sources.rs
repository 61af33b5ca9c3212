//! Settings: as arguments of `loadmodule`, through CONFIG, and in the server's
//! configuration file.

use std::fs;
use std::path::Path;

use redis::{Connection, Value};

use support::observe::run;
use support::{assert_error, assert_ok, call, library, list, map, text, unload, Server};

/// A setting and what it can be.
struct Setting {
    name: &'static str,
    default: &'static str,
    /// Two values that are not the default.
    values: [&'static str; 2],
    /// What it cannot be.
    wrong: &'static [&'static str],
    /// How an argument's error says what it can be.
    allowed: &'static str,
    /// The same of CONFIG SET, which is the server's; for what is no number at
    /// all servers say that alone.
    said: &'static str,
}

const SETTINGS: [Setting; 9] = [
    Setting {
        name: "policy",
        default: "fifo",
        values: ["prefer-readers", "prefer-writers"],
        wrong: &["lifo", "prefer", "fifo,prefer-readers", "0"],
        allowed: "it must be fifo, prefer-readers or prefer-writers",
        said: "must be one of the following: fifo, prefer-readers, prefer-writers",
    },
    Setting {
        name: "deadlock-detection",
        default: "yes",
        values: ["no", "no"],
        wrong: &["maybe", "1", "true"],
        allowed: "it must be yes or no",
        said: "must be 'yes' or 'no'",
    },
    Setting {
        name: "max-waiters",
        default: "100000",
        values: ["0", "1000000000"],
        wrong: &["-1", "1000000001", "x", "1e3", "+5", "007", "18446744073709551617"],
        allowed: "it must be a whole number from 0 to 1000000000",
        said: "must be between 0 and 1000000000 inclusive",
    },
    Setting {
        name: "fence-ttl",
        default: "604800000",
        values: ["0", "1000000000000000"],
        wrong: &["-1", "1000000000000001", "7d", "0.5"],
        allowed: "it must be a whole number from 0 to 1000000000000000",
        said: "must be between 0 and 1000000000000000 inclusive",
    },
    Setting {
        name: "events",
        default: "redisson",
        values: ["all", "none"],
        wrong: &["yes", "both", "owners"],
        allowed: "it must be redisson, owner, all or none",
        said: "must be one of the following: redisson, owner, all, none",
    },
    Setting {
        name: "cluster-publish",
        default: "sharded",
        values: ["global", "global"],
        wrong: &["local", "yes"],
        allowed: "it must be sharded or global",
        said: "must be one of the following: sharded, global",
    },
    Setting {
        name: "log-slower-than",
        default: "1000",
        values: ["-1", "1000000000000000"],
        wrong: &["-2", "1000000000000001", "1s", "-0"],
        allowed: "it must be a whole number from -1 to 1000000000000000",
        said: "must be between -1 and 1000000000000000 inclusive",
    },
    Setting {
        name: "log-holds-over",
        default: "60000",
        values: ["-1", "0"],
        wrong: &["-2", "1000000000000001", "1m"],
        allowed: "it must be a whole number from -1 to 1000000000000000",
        said: "must be between -1 and 1000000000000000 inclusive",
    },
    Setting {
        name: "log-max-len",
        default: "128",
        values: ["0", "100000"],
        wrong: &["-1", "100001", "all"],
        allowed: "it must be a whole number from 0 to 100000",
        said: "must be between 0 and 100000 inclusive",
    },
];

/// `policy fifo max-waiters 7`: the arguments that set all to what `value` says.
fn arguments(value: impl Fn(&Setting) -> &'static str) -> String {
    let words: Vec<String> =
        SETTINGS.iter().map(|setting| format!("{} {}", setting.name, value(setting))).collect();
    words.join(" ")
}

#[track_caller]
fn assert_all(con: &mut Connection, value: impl Fn(&Setting) -> &'static str) {
    let found = map(run(con, "CONFIG GET rwlock.*"));
    assert_eq!(found.len(), SETTINGS.len(), "{found:?}");
    for setting in &SETTINGS {
        let found = text(&found[&format!("rwlock.{}", setting.name)]);
        assert_eq!(found, value(setting), "{}", setting.name);
    }
}

fn set_all(con: &mut Connection, value: impl Fn(&Setting) -> &'static str) {
    for setting in &SETTINGS {
        assert_ok(run(con, &format!("CONFIG SET rwlock.{} {}", setting.name, value(setting))));
    }
}

#[test]
fn every_setting_is_an_argument() {
    let server = Server::builder().start();
    assert_all(&mut server.connection(), |setting| setting.default);
    for which in [0, 1] {
        let given = arguments(|setting| setting.values[which]);
        for given in [given.to_uppercase(), given] {
            let server = Server::builder().module_arguments(given).start();
            assert_all(&mut server.connection(), |setting| setting.values[which]);
        }
    }
}

#[test]
fn every_setting_can_be_changed_at_any_time() {
    let server = Server::builder().module_arguments(arguments(|s| s.values[1])).start();
    let mut con = server.connection();
    for which in [0, 1] {
        set_all(&mut con, |setting| setting.values[which]);
        assert_all(&mut con, |setting| setting.values[which]);
    }
    assert_ok(run(&mut con, "CONFIG SET RWLOCK.Policy PREFER-readers"));
    assert_eq!(
        text(&map(run(&mut con, "CONFIG GET rwlock.policy"))["rwlock.policy"]),
        "prefer-readers"
    );
    // All at once, and in a transaction.
    let mut words = vec!["CONFIG".to_owned(), "SET".to_owned()];
    for setting in &SETTINGS {
        words.extend([format!("rwlock.{}", setting.name), setting.default.to_owned()]);
    }
    assert_ok(run(&mut con, &words.join(" ")));
    assert_all(&mut con, |setting| setting.default);
    assert_ok(run(&mut con, "MULTI"));
    for setting in &SETTINGS {
        let line = format!("CONFIG SET rwlock.{} {}", setting.name, setting.values[0]);
        assert_eq!(text(run(&mut con, &line)), "QUEUED");
    }
    assert_eq!(list(run(&mut con, "EXEC")), vec![Value::Okay; SETTINGS.len()]);
    assert_all(&mut con, |setting| setting.values[0]);
}

#[test]
fn a_wrong_value_is_refused_and_changes_nothing() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for setting in &SETTINGS {
        let name = format!("rwlock.{}", setting.name);
        for wrong in setting.wrong {
            let error = assert_error(call!(con, "CONFIG", "SET", &name, wrong), "ERR");
            assert!(error.contains(&name), "{error}");
            let no_number = error.contains("couldn't be parsed into an integer");
            assert!(error.contains(setting.said) || no_number, "{error}");
        }
        // What stood before it in the same command is taken back.
        for other in SETTINGS.iter().filter(|other| other.name != setting.name) {
            let (other, value) = (format!("rwlock.{}", other.name), other.values[0]);
            let both = call!(con, "CONFIG", "SET", other, value, &name, setting.wrong[0]);
            assert_error(both, "ERR");
        }
    }
    assert_error(run(&mut con, "CONFIG SET rwlock.nonsense 1"), "ERR");
    assert_error(run(&mut con, "CONFIG SET rwlock.policy"), "ERR");
    assert_error(run(&mut con, "CONFIG SET rwlock.policy fifo rwlock.policy fifo"), "ERR");
    assert_all(&mut con, |setting| setting.default);
    // Nor does the module go by what was taken back.
    assert_ok(run(&mut con, "RWLOCK.RLOCK k a 60000"));
    let mut writer = server.connection();
    let waits =
        redis::cmd("RWLOCK.WLOCK").arg(&["k", "w", "60000", "BLOCK", "0"]).get_packed_command();
    writer.send_packed_command(&waits).expect("send a command");
    support::wait_until("it waits", || !list(run(&mut con, "RWLOCK.QUEUES")).is_empty());
    assert_error(
        run(&mut con, "CONFIG SET rwlock.policy prefer-readers rwlock.max-waiters x"),
        "ERR",
    );
    assert!(matches!(run(&mut con, "RWLOCK.RLOCK k b 60000"), Ok(Value::Int(_))));
}

#[test]
fn a_wrong_argument_is_named_in_one_line_and_nothing_is_loaded() {
    let mut cases = Vec::new();
    for Setting { name, wrong, allowed, .. } in &SETTINGS {
        for wrong in *wrong {
            let said = format!("argument '{name}' cannot be '{wrong}': {allowed}");
            cases.push((format!("{name} {wrong}"), said));
        }
        cases.push(((*name).to_owned(), format!("argument '{name}' has no value")));
    }
    let twice = "argument 'policy' is given twice";
    cases.push(("policy fifo max-waiters 7 policy fifo".to_owned(), twice.to_owned()));
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    let (last, others) = names.split_last().expect("some settings");
    let names = format!("{} or {last}", others.join(", "));
    cases.push(("nonsense 7".into(), format!("unknown argument 'nonsense': it must be {names}")));
    cases.push(("nonsense".into(), format!("unknown argument 'nonsense': it must be {names}")));

    // One server is asked them all, and each is a line of its log.
    let loaded = Server::builder().start();
    let library = library(&loaded);
    let server = Server::builder().without_module().start();
    let mut con = server.connection();
    for (arguments, said) in &cases {
        let before = server.log().len();
        let line = format!("MODULE LOAD {library} {arguments}");
        assert_error(run(&mut con, &line), "ERR");
        let log = server.log().split_off(before);
        let ours: Vec<&str> = log.lines().filter(|line| line.contains("rwlock: ")).collect();
        assert_eq!(ours.len(), 1, "{arguments}: {log}");
        assert!(ours[0].ends_with(&format!("rwlock: not loaded: {said}")), "{arguments}: {log}");
    }
    assert_error(run(&mut con, "CONFIG SET rwlock.policy fifo"), "ERR");
    // And nothing of it is in the way.
    assert_ok(call!(con, "MODULE", "LOAD", &library, "policy", "prefer-readers"));
    assert_eq!(
        text(&map(run(&mut con, "CONFIG GET rwlock.policy"))["rwlock.policy"]),
        "prefer-readers"
    );

    // A server that is told so at its start does not start.
    let refused = Server::builder().module_arguments("policy lifo").try_start();
    let error = refused.expect_err("it must not start");
    assert!(error.log().contains("argument 'policy' cannot be 'lifo'"), "{error}");
}

#[test]
fn what_was_rewritten_wins_over_the_arguments_after_a_restart() {
    let mut server = Server::builder().module_arguments(arguments(|s| s.values[0])).start();
    let mut con = server.connection();
    set_all(&mut con, |setting| setting.values[1]);
    assert_ok(run(
        &mut con,
        "CONFIG SET rwlock.deadlock-detection yes rwlock.cluster-publish sharded",
    ));
    let differ = |setting: &Setting| match setting.values[0] == setting.values[1] {
        true => setting.default,
        false => setting.values[1],
    };
    assert_all(&mut con, differ);
    assert_ok(run(&mut con, "CONFIG REWRITE"));
    for _ in 0..2 {
        server.restart();
        let mut con = server.connection();
        assert_all(&mut con, differ);
        // Once more, from what was read.
        assert_ok(run(&mut con, "CONFIG REWRITE"));
    }
    // The arguments are still there: they are the defaults.
    let rewritten = configuration(&server);
    let line = format!(" {}", arguments(|setting| setting.values[0]));
    assert!(rewritten.contains(&line), "{rewritten}");

    // Back to what the arguments say.
    let mut con = server.connection();
    set_all(&mut con, |setting| setting.values[0]);
    assert_ok(run(&mut con, "CONFIG REWRITE"));
    server.restart();
    assert_all(&mut server.connection(), |setting| setting.values[0]);
    // What was not rewritten is gone with the process.
    set_all(&mut server.connection(), |setting| setting.default);
    server.restart();
    assert_all(&mut server.connection(), |setting| setting.values[0]);
}

fn configuration(server: &Server) -> String {
    let path = server.dir().join(format!("server-{}.conf", server.port()));
    fs::read_to_string(path).expect("read the configuration file")
}

#[test]
fn a_configuration_file_sets_what_it_names_before_and_after_loadmodule() {
    let loaded = Server::builder().start();
    let library = library(&loaded);
    let server = Server::builder()
        .without_module()
        .config("rwlock.policy", "prefer-writers")
        .config("loadmodule", format!("{library} policy prefer-readers max-waiters 5"))
        .config("rwlock.events", "owner")
        .start();
    let expected = |setting: &Setting| match setting.name {
        "policy" => "prefer-writers",
        "max-waiters" => "5",
        "events" => "owner",
        _ => setting.default,
    };
    assert_all(&mut server.connection(), expected);
}

#[test]
fn a_wrong_line_in_a_configuration_file_is_named_and_nothing_is_loaded() {
    for setting in &SETTINGS {
        let name = format!("rwlock.{}", setting.name);
        let started = Server::builder().config(&name, setting.wrong[0]).try_start();
        let error = started.expect_err("it must not start");
        let log = error.log();
        assert!(
            log.lines().any(|line| line.contains(&name) && line.contains(setting.said)),
            "{log}"
        );
        assert_eq!(log.matches("rwlock: not loaded: ").count(), 1, "{log}");
    }
    let started = Server::builder().config("rwlock.nonsense", "1").try_start();
    started.expect_err("there is no such setting");
}

#[test]
fn a_module_that_is_loaded_by_hand_takes_settings_too() {
    let loaded = Server::builder().start();
    let library = library(&loaded);
    let server = Server::builder().without_module().start();
    let mut con = server.connection();
    let load = format!("MODULE LOADEX {library} CONFIG rwlock.policy prefer-writers");
    assert_ok(run(&mut con, &format!("{load} ARGS policy prefer-readers max-waiters 5")));
    let expected = |setting: &Setting| match setting.name {
        "policy" => "prefer-writers",
        "max-waiters" => "5",
        _ => setting.default,
    };
    assert_all(&mut con, expected);
    unload(&mut con);
    assert_eq!(map(run(&mut con, "CONFIG GET rwlock.*")).len(), 0);
    // Most servers unload a module again when there is no such setting.
    let wrong = ["CONFIG rwlock.policy lifo", "CONFIG rwlock.nonsense 1", "ARGS policy lifo"];
    for wrong in wrong {
        assert_error(run(&mut con, &format!("MODULE LOADEX {library} {wrong}")), "ERR");
        assert_eq!(map(run(&mut con, "CONFIG GET rwlock.*")).len(), 0, "{wrong}");
    }
    assert_ok(call!(con, "MODULE", "LOAD", &library));
    assert_all(&mut con, |setting| setting.default);
}

#[test]
fn the_page_of_settings_tells_what_the_server_tells() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/settings.md")).expect("read the page");
    let sample = fs::read_to_string(root.join("redis.conf")).expect("read redis.conf");
    for Setting { name, default, allowed, .. } in &SETTINGS {
        let words = allowed.trim_start_matches("it must be ").replace(" or ", ", ");
        let words = match words.strip_prefix("a whole number ") {
            Some(range) => format!("a whole number {range}"),
            None => {
                words.split(", ").map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
        };
        let row = format!("| [`{name}`](#{name}) | {words} | `{default}` |");
        assert!(page.contains(&row), "the page lacks {row}");
        assert!(page.contains(&format!("\n## {name}\n")), "{name}");
        assert!(sample.contains(&format!("#   {name} {default} ")), "redis.conf lacks {name}");
    }
    assert_eq!(page.matches("\n| [`").count(), SETTINGS.len());
    assert_eq!(page.matches("\n## ").count(), SETTINGS.len() + 2, "a section for each, and two");
}

/// The arguments of `loadmodule` on the page, and what CONFIG REWRITE makes of them.
#[test]
fn the_lines_on_the_page_of_settings_have_the_same_effect() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    let page = fs::read_to_string(page).expect("read the page");
    let loaded = "    loadmodule /usr/lib/redis/modules/librwlock.so ";
    let arguments = page.lines().find_map(|line| line.strip_prefix(loaded)).expect(loaded);
    let lines = page.lines().filter_map(|line| line.strip_prefix("    rwlock.")?.split_once(' '));
    let configured = lines.fold(Server::builder(), |builder, (name, value)| {
        builder.config(format!("rwlock.{name}"), value)
    });
    for server in [Server::builder().module_arguments(arguments), configured] {
        let server = server.start();
        let expected = |setting: &Setting| match setting.name {
            "policy" => "prefer-writers",
            "max-waiters" => "5000",
            _ => setting.default,
        };
        assert_all(&mut server.connection(), expected);
    }
}
