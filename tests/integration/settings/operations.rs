//! What operators are told: the configuration that comes with the module, and
//! what docs/operations.md says of replicas.

use std::fs;
use std::path::Path;

use redis::Value;

use support::observe::info_number;
use support::{assert_ok, call, int, list, text, wait_synced, wait_until, Server};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The directives of redis.conf, with the paragraph that each stands in.
fn directives() -> Vec<(String, String, String)> {
    let conf = file("redis.conf");
    let paragraphs = conf.split("\n\n").flat_map(|paragraph| {
        let lines = paragraph.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(move |line| {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            (name.to_owned(), value.to_owned(), paragraph.to_owned())
        })
    });
    paragraphs.collect()
}

#[test]
fn every_line_of_redis_conf_has_its_reason_and_its_effect() {
    let directives = directives();
    assert!(directives.len() > 4, "{directives:?}");
    let plain = Server::builder().without_module();
    let server = directives
        .iter()
        .filter(|(name, ..)| name != "bind")
        .fold(Server::builder(), |builder, (name, value, _)| builder.config(name, value))
        .start();
    let plain = plain.config("appendonly", "no").config("save", "\"3600 1\"").start();
    for (name, value, paragraph) in directives {
        let reason = paragraph.lines().take_while(|line| line.starts_with('#')).count();
        let lines = paragraph.lines().count();
        assert_eq!(reason + 1, lines, "one line below its reason: {paragraph}");
        let get = |server: &Server| {
            let pair = list(call!(server.connection(), "CONFIG", "GET", &name));
            pair.get(1).map(text).unwrap_or_else(|| panic!("{name} is no setting"))
        };
        if name == "bind" {
            continue;
        }
        assert_eq!(get(&server), value.trim_matches('"'), "{name}");
        // What the server does anyway needs no line, unless it is a warning.
        if name != "maxmemory-policy" {
            assert_ne!(get(&server), get(&plain), "{name} is the default");
        }
    }
}

#[test]
fn the_image_has_the_settings_of_redis_conf() {
    let image = file("Dockerfile");
    for (name, value, _) in directives().into_iter().filter(|(name, ..)| name != "bind") {
        let word = value.trim_matches('"');
        let said = format!("\"--{name}\", \"{word}\"");
        assert!(image.contains(&said), "the Dockerfile lacks {said}");
    }
}

#[test]
fn wait_counts_a_grant_that_came_after_waiting() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let (mut holder, mut waiter) = (primary.connection(), primary.connection());
    assert_ok(call!(holder, "RWLOCK.WLOCK", "lock", "a", 600_000));
    let mut wait = redis::cmd("RWLOCK.WLOCK");
    wait.arg("lock").arg("b").arg(600_000).arg("BLOCK").arg(0);
    waiter.send_packed_command(&wait.get_packed_command()).expect("send a command");
    wait_until("it waits", || info_number(&primary, "clients", "blocked_clients") == 1);
    assert_eq!(int(call!(holder, "WAIT", 1, 30_000)), 1);

    replica.signal(libc::SIGSTOP);
    assert_eq!(int(call!(holder, "RWLOCK.UNLOCK", "lock", "a")), 1);
    assert_eq!(waiter.recv_response(), Ok(Value::Okay));
    assert_eq!(int(call!(waiter, "WAIT", 1, 50)), 0, "the replica cannot have it");
    replica.signal(libc::SIGCONT);
    assert_eq!(int(call!(waiter, "WAIT", 1, 30_000)), 1);
    let fields = call!(replica.connection(), "HGETALL", "lock");
    assert!(list(fields).contains(&Value::BulkString(b"b:write".to_vec())));
}

#[test]
fn the_version_is_that_of_the_crate() {
    let server = Server::builder().start();
    let version = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<i64>());
    let version: Vec<i64> = version.map(|part| part.expect("a number")).collect();
    let modules = list(call!(server.connection(), "MODULE", "LIST"));
    let modules = modules.iter().map(support::map);
    let ours = modules.into_iter().find(|module| text(&module["name"]) == "rwlock");
    let number = version[0] * 10_000 + version[1] * 100 + version[2];
    assert_eq!(int(&ours.expect("our module")["ver"]), number);
}
