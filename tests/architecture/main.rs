//! The shape of the source (`ARCHITECTURE.md`), as rules that a change cannot
//! break unseen. No server is started: the source is read as text.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod circles;
mod source;
mod tokens;

use circles::circles;
use source::{files, sources, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The layers from the bottom up, each with all that it may use of this crate.
const LAYERS: [(&str, &[&str]); 8] = [
    ("planted", &[]),
    ("core", &["planted"]),
    ("ffi", &[]),
    ("store", &["core", "ffi", "planted"]),
    ("engine", &["core", "ffi", "planted", "store"]),
    ("server", &["core", "ffi", "store", "engine"]),
    ("command", &["core", "ffi", "store", "engine", "server", "planted"]),
    ("lib", &["command", "core", "engine", "ffi", "planted", "server", "store"]),
];

/// A file of more lines wants to be two.
const MOST_LINES: usize = 450;

/// What this source uses and may not.
fn breaches(source: &Source) -> Vec<String> {
    let layer = source.layer();
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![format!("{}: {layer} is no layer", source.path)];
    };
    source
        .uses()
        .iter()
        .filter(|used| *used != layer && !allowed.contains(&used.as_str()))
        .map(|used| format!("{}: uses {used}", source.path))
        .collect()
}

/// No source has this trait, but those that `may`.
#[track_caller]
fn only(may: impl Fn(&Source) -> bool, has: impl Fn(&Source) -> bool) {
    let (may, not): (Vec<Source>, Vec<Source>) = sources().into_iter().partition(may);
    let others: Vec<String> =
        not.into_iter().filter(|source| has(source)).map(|source| source.path).collect();
    assert_eq!(others, Vec::<String>::new());
    // A rule about nothing would be a rule with an error in it.
    assert!(may.iter().any(has), "nobody does this");
}

#[test]
fn a_layer_uses_only_what_is_below_it() {
    let breaches: Vec<String> = sources().iter().flat_map(breaches).collect();
    assert_eq!(breaches, Vec::<String>::new());
}

#[test]
fn the_layers_have_an_order() {
    for (rank, (layer, uses)) in LAYERS.iter().enumerate() {
        for used in *uses {
            assert!(
                LAYERS[..rank].iter().any(|(below, _)| below == used),
                "{used} is not below {layer}"
            );
        }
    }
}

#[test]
fn no_files_of_a_layer_use_each_other_in_a_circle() {
    let mut sources = sources();
    sources.retain(|source| !source.path.starts_with("core/tests/"));
    assert_eq!(circles(&sources), BTreeMap::new());
}

#[test]
fn a_circle_is_seen_however_it_is_written() {
    let is_seen = |files: &[(&str, &str)]| {
        let files: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        !circles(&files).is_empty()
    };
    let face = ("store/mod.rs", "mod a; mod b; pub use a::A; pub use b::{B, C};");
    let b = ("store/b.rs", "use super::A; pub struct B(A); pub struct C;");
    for a in [
        "use super::b::B; pub struct A(B);",
        "use super::B; pub struct A(B);",
        "use crate::store::{self, B}; pub struct A(B);",
        "use super::{b::{C as D, B}}; pub struct A(B);",
        "pub struct A(super::B);",
        "pub struct A(crate::store::b::B);",
    ] {
        assert!(is_seen(&[face, ("store/a.rs", a), b]), "{a}");
    }
    // A face that has something of its own is a file like any other.
    let face_with_item = ("store/mod.rs", "mod a; use a::A; pub struct Both(A); pub struct It;");
    assert!(is_seen(&[face_with_item, ("store/a.rs", "use super::It; pub struct A(It);")]));
    for a in [
        "pub struct A;",
        "use super::super::core::B; pub struct A(B);",
        "pub struct A; #[cfg(test)] mod tests { use super::super::B; fn f() -> B {} }",
        "pub struct A; // super::B",
    ] {
        assert!(!is_seen(&[face, ("store/a.rs", a), b]), "{a}");
    }
}

#[test]
fn commands_know_nothing_of_the_store_but_its_errors() {
    only(
        |source| ["store", "engine", "server", "lib"].contains(&source.layer()),
        |source| source.uses().contains("store") && source.path != "command/error.rs",
    );
    let sources = sources();
    let error = sources.iter().find(|source| source.path == "command/error.rs").unwrap();
    let named = error.tokens.windows(3).filter(|row| row[0] == "store" && row[1] == "::");
    assert_eq!(named.map(|row| row[2].as_str()).collect::<BTreeSet<_>>(), ["Error"].into());
}

#[test]
fn unsafe_code_stays_in_ffi() {
    only(|source| source.layer() == "ffi", |source| source.has("unsafe"));
}

#[test]
fn the_module_api_stays_in_ffi_and_the_entry() {
    only(|source| ["ffi", "lib"].contains(&source.layer()), |source| source.has("redis_module"));
}

#[test]
fn effects_are_propagated_by_the_store_alone() {
    for call in ["replicate", "publish", "publish_to_shard"] {
        only(
            |source| ["store", "ffi"].contains(&source.layer()),
            |source| source.has_row(&[".", call, "("]),
        );
    }
}

#[test]
fn the_rules_have_no_clock_and_touch_nothing() {
    for source in sources().iter().filter(|source| source.layer() == "core") {
        // The tests beside the rules say how far they have looked.
        if source.path.starts_with("core/tests/") {
            continue;
        }
        for word in ["time", "io", "fs", "net", "env", "process", "thread"] {
            assert!(!source.has_row(&["std", "::", word]), "{} uses std::{word}", source.path);
        }
        for word in ["Instant", "SystemTime", "static", "println", "Mutex", "atomic", "mpsc"] {
            assert!(!source.has(word), "{} has {word}", source.path);
        }
    }
}

#[test]
fn files_are_short() {
    let benches = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("benches"));
    assert!(!benches.is_empty());
    let benches = benches
        .iter()
        .map(|file| Source::new(&file.display().to_string(), &fs::read_to_string(file).unwrap()));
    let long: Vec<String> = sources()
        .into_iter()
        .chain(benches)
        .filter(|source| source.text.lines().count() >= MOST_LINES)
        .map(|source| source.path)
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn every_command_is_in_the_table() {
    let sources = sources();
    let commands: BTreeSet<&str> = sources
        .iter()
        .filter(|source| source.has_row(&["impl", "Command", "for"]))
        .map(|source| source.path.trim_start_matches("command/").trim_end_matches(".rs"))
        .collect();
    let table = sources.iter().find(|source| source.path == "command/mod.rs").unwrap();
    let rows: Vec<&str> = table
        .tokens
        .windows(6)
        .filter(|row| row[..5] == ["Row", "::", "of", "::", "<"] && row[5] != "C")
        .map(|row| row[5].as_str())
        .collect();
    assert_eq!(rows.iter().copied().collect::<BTreeSet<_>>(), commands);
    assert_eq!(rows.len(), commands.len(), "a command is in the table twice: {rows:?}");
    assert!(commands.contains("rlock"), "{commands:?}");
}

/// The tests above pass also when nothing is found: here is what must be.
#[test]
fn a_breach_is_seen_however_it_is_written() {
    let breach = |path: &str, text: &str| !breaches(&Source::new(path, text)).is_empty();
    for (path, text) in [
        ("core/lock.rs", "use crate::ffi::Key;"),
        ("core/lock.rs", "use crate::{ffi::Key};"),
        ("core/lock.rs", "use crate::{core::{End, Lock}, store};"),
        ("core/lock.rs", "use super::super::store::Store;"),
        ("core/mod.rs", "use super::ffi;"),
        ("core/tests/walk.rs", "use super::super::super::ffi;"),
        ("core/mod.rs", "mod tests { use super::super::engine; }"),
        ("core/lock.rs", "fn f() { let x = 'a'; let y = '\"'; crate::engine::run() }"),
        ("core/lock.rs", "fn f<'a>(x: &'a str) { crate::engine::run() }"),
        ("core/lock.rs", "use crate as root;"),
        ("core/lock.rs", "use crate::*;"),
        ("core/lock.rs", "fn f() { let s = r#\"a \" b\"#; super::super::store::f() }"),
        ("ffi/key.rs", "use crate::core::End;"),
        ("store/mod.rs", "use crate::engine;"),
        ("engine/mod.rs", "mod a { mod b {} } use super::command;"),
        ("server/mod.rs", "use crate::command;"),
        ("news/mod.rs", ""),
    ] {
        assert!(breach(path, text), "{path}: {text}");
    }
    for (path, text) in [
        ("core/lock.rs", "use super::{End, Holds}; pub(crate) struct Lock;"),
        ("core/lock.rs", "// use crate::ffi;\n/* crate::store */ const A: &str = \"crate::ffi\";"),
        ("core/lock.rs", "mod tests { use super::super::End; }"),
        ("core/tests/walk.rs", "use super::super::Lock; use crate::core::End;"),
        ("store/lock.rs", "use crate::{core::End, ffi::Key}; use super::names;"),
        ("lib.rs", "mod command; use crate::command::register;"),
    ] {
        let found = breaches(&Source::new(path, text));
        assert!(found.is_empty(), "{found:?}: {text}");
    }
    assert!(Source::new("core/a.rs", "fn f() { unsafe { g() } }").has("unsafe"));
    assert!(!Source::new("core/a.rs", "#![forbid(unsafe_code)] // unsafe").has("unsafe"));
}
