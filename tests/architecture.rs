//! The shape of the source (`ARCHITECTURE.md`), as rules that a change cannot
//! break unseen. No server is started: the source is read as text.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers from the bottom up, each with all that it may use of this crate.
const LAYERS: [(&str, &[&str]); 7] = [
    ("core", &[]),
    ("ffi", &[]),
    ("store", &["core", "ffi"]),
    ("engine", &["core", "ffi", "store"]),
    ("server", &["core", "ffi", "store", "engine"]),
    ("command", &["core", "ffi", "store", "engine", "server"]),
    ("lib", &["command", "core", "engine", "ffi", "server", "store"]),
];

/// A file of more lines wants to be two.
const MOST_LINES: usize = 450;

/// A file of the source.
struct Source {
    /// Below `src/`, such as `store/lock.rs`.
    path: String,
    text: String,
    tokens: Vec<String>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), tokens: tokens(text) }
    }

    fn layer(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// How many modules it is below the crate's root.
    fn depth(&self) -> usize {
        self.module().len()
    }

    /// Its module: `["store", "lock"]`.
    fn module(&self) -> Vec<String> {
        let parts = self.path.trim_end_matches(".rs").split('/');
        parts.filter(|part| !["lib", "mod"].contains(part)).map(str::to_owned).collect()
    }

    /// What it has beside its tests, which stand last.
    fn shipped(&self) -> &[String] {
        let test = ["#", "[", "cfg", "(", "test", ")", "]", "mod", "tests", "{"];
        let end = self.tokens.windows(test.len()).position(|window| window == test);
        &self.tokens[..end.unwrap_or(self.tokens.len())]
    }

    fn has(&self, token: &str) -> bool {
        self.tokens.iter().any(|other| other == token)
    }

    /// Does this row of tokens occur? `.replicate(` is `[".", "replicate", "("]`.
    fn has_row(&self, row: &[&str]) -> bool {
        self.tokens.windows(row.len()).any(|window| window == row)
    }

    /// What it uses of the crate's root: layers, or `*` for something that
    /// cannot be told.
    fn uses(&self) -> BTreeSet<String> {
        let mut uses = BTreeSet::new();
        // The depth in braces of each `mod name {` around, for what `super` means.
        let (mut braces, mut inline) = (0_usize, Vec::new());
        for (index, token) in self.tokens.iter().enumerate() {
            match token.as_str() {
                "{" => {
                    if index >= 2 && self.tokens[index - 2] == "mod" {
                        inline.push(braces);
                    }
                    braces += 1;
                }
                "}" => {
                    braces -= 1;
                    if inline.last() == Some(&braces) {
                        inline.pop();
                    }
                }
                "crate" if self.token(index + 1) == "::" => {
                    uses.extend(heads(&self.tokens[index + 2..]));
                }
                // `crate as root` would hide what follows; `pub(crate)` does not.
                "crate" if self.token(index + 1) == "as" => {
                    uses.insert("*".to_owned());
                }
                "super" if index < 2 || self.tokens[index - 2] != "super" => {
                    let rest = &self.tokens[index..];
                    let chain = rest.chunks(2).take_while(|pair| pair == &["super", "::"]).count();
                    if chain >= self.depth() + inline.len() {
                        uses.extend(heads(&rest[2 * chain..]));
                    }
                }
                _ => {}
            }
        }
        uses
    }

    fn token(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", String::as_str)
    }
}

/// The paths that a source mentions, each as its words: those of its `use` declarations
/// one by one, and all others as they stand in the code.
fn paths(tokens: &[String]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let (mut declared, mut mentioned) = (Vec::new(), Vec::new());
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index] == "use" {
            let end = index + tokens[index..].iter().position(|token| token == ";").unwrap();
            branches(&tokens[index + 1..end], &[], &mut declared);
            index = end;
        } else if tokens[index] == "mod" {
            // The declaration of a child uses nothing of it.
            index += 2;
        } else {
            let rest = &tokens[index..];
            let words = 1 + rest[1..].chunks_exact(2).take_while(|pair| pair[0] == "::").count();
            mentioned.push(rest.iter().step_by(2).take(words).cloned().collect());
            index += 2 * words - 1;
        }
    }
    (declared, mentioned)
}

/// The paths of a tree such as `a::{b, c::{d, e as f}}`, below `above`.
fn branches(tree: &[String], above: &[String], found: &mut Vec<Vec<String>>) {
    let head: Vec<String> =
        tree.iter().take_while(|token| *token != "{" && *token != "as").cloned().collect();
    let path: Vec<String> =
        above.iter().chain(head.iter().filter(|token| *token != "::")).cloned().collect();
    if tree.get(head.len()).is_none_or(|token| token != "{") {
        found.push(path);
        return;
    }
    let inside = &tree[head.len() + 1..tree.len() - 1];
    let mut depth = 0;
    let is_comma = |token: &String| {
        depth += i32::from(token == "{") - i32::from(token == "}");
        depth == 0 && token == ","
    };
    for branch in inside.split(is_comma).filter(|branch| !branch.is_empty()) {
        branches(branch, &path, found);
    }
}

/// Which file of the source uses which: an item counts for the file that defines it, and
/// what a `mod.rs` merely passes on does not count for the `mod.rs`.
struct Uses<'s> {
    /// The files by their modules: `["store", "lock"]`; that of a folder is its `mod.rs`.
    files: BTreeMap<Vec<String>, &'s Source>,
}

impl<'s> Uses<'s> {
    fn new(sources: &'s [Source]) -> Self {
        Self { files: sources.iter().map(|source| (source.module(), source)).collect() }
    }

    /// The file whose item a path in `source` names; None: it is not of this crate.
    fn file_of(&self, source: &Source, path: &[String]) -> Option<&'s Source> {
        let mut module = source.module();
        let mut rest = path;
        match path[0].as_str() {
            "crate" => (module, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            // The item of a child, in a `mod.rs`.
            child if self.files.contains_key(&[&module[..], &[child.to_owned()]].concat()) => {}
            _ => return None,
        }
        while let [word, tail @ ..] = rest {
            let child = [&module[..], std::slice::from_ref(word)].concat();
            if word == "super" {
                module.pop();
            } else if self.files.contains_key(&child) {
                module = child;
            } else {
                break;
            }
            rest = tail;
        }
        let file = *self.files.get(&module)?;
        let is_face = file.path.ends_with("mod.rs") && file.path != source.path;
        let passed_on = rest.first().filter(|_| is_face).and_then(|name| {
            let declared = paths(file.shipped()).0;
            let of_name = declared.into_iter().find(|path| path.last() == Some(name))?;
            self.file_of(file, &of_name)
        });
        Some(passed_on.unwrap_or(file))
    }

    /// The files of its own layer that a file uses.
    fn of(&self, source: &'s Source) -> BTreeSet<&'s str> {
        let (declared, mentioned) = paths(source.shipped());
        let words: BTreeSet<&String> = mentioned.iter().map(|path| &path[0]).collect();
        let used = declared.iter().filter(|path| path.last().is_some_and(|n| words.contains(n)));
        used.chain(mentioned.iter().filter(|path| path.len() > 1))
            .filter_map(|path| self.file_of(source, path))
            .filter(|file| file.layer() == source.layer() && file.path != source.path)
            .map(|file| file.path.as_str())
            .collect()
    }
}

/// The files that use each other in circles, each with those of them that it uses.
fn circles(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let uses = Uses::new(sources);
    let mut left: BTreeMap<&str, BTreeSet<&str>> =
        sources.iter().map(|source| (source.path.as_str(), uses.of(source))).collect();
    loop {
        // Who uses none of the others, or is used by none, is in no circle.
        let used: BTreeSet<&str> = left.values().flatten().copied().collect();
        let before = left.len();
        left.retain(|path, uses| !uses.is_empty() && used.contains(path));
        if left.len() == before {
            return left;
        }
        let files: BTreeSet<&str> = left.keys().copied().collect();
        left.values_mut().for_each(|uses| uses.retain(|path| files.contains(path)));
    }
}

/// The first words of a path, or of the paths of a `{…}` group.
fn heads(tokens: &[String]) -> Vec<String> {
    if tokens.first().is_none_or(|first| first != "{") {
        return tokens.iter().take(1).cloned().collect();
    }
    let mut depth = 0;
    let mut heads = Vec::new();
    for pair in tokens.windows(2) {
        match pair[0].as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && ["{", ","].contains(&pair[0].as_str()) && pair[1] != "}" {
            heads.push(pair[1].clone());
        }
    }
    heads
}

/// The words and signs of Rust source, without comments and literals.
fn tokens(source: &str) -> Vec<String> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            while i < chars.len() && !(chars[i] == '*' && at(i + 1) == '/') {
                i += 1;
            }
            i += 2;
        } else if c == '"' {
            i = after_quoted(&chars, i, '"');
        } else if c == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            // Not a lifetime.
            i = after_quoted(&chars, i, '\'');
        } else if c.is_alphanumeric() || c == '_' {
            let start = i;
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
            let word: String = chars[start..i].iter().collect();
            // `r"…"` and `r#"…"#`, but neither `r#type` nor `b"…"`.
            let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
            if ["r", "br", "cr"].contains(&word.as_str()) && at(i + hashes) == '"' {
                let close = format!("\"{}", "#".repeat(hashes));
                let body: String = chars[i + hashes + 1..].iter().collect();
                let length = body.find(&close).map_or(body.len(), |end| end + close.len());
                i += hashes + 1 + body[..length].chars().count();
            } else {
                tokens.push(word);
            }
        } else if c == ':' && at(i + 1) == ':' {
            tokens.push("::".to_owned());
            i += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            i += 1;
        }
    }
    tokens
}

fn after_quoted(chars: &[char], open: usize, quote: char) -> usize {
    let mut i = open + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources: Vec<Source> = files(&root)
        .iter()
        .map(|file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
            Source::new(path, &fs::read_to_string(file).unwrap())
        })
        .collect();
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

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
