//! The files of the source, and what each of them uses.

use super::tokens::tokens;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of the source.
pub struct Source {
    /// Below `src/`, such as `store/lock.rs`.
    pub path: String,
    pub text: String,
    pub tokens: Vec<String>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), tokens: tokens(text) }
    }

    pub fn layer(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// How many modules it is below the crate's root.
    pub fn depth(&self) -> usize {
        self.module().len()
    }

    /// Its module: `["store", "lock"]`.
    pub fn module(&self) -> Vec<String> {
        let parts = self.path.trim_end_matches(".rs").split('/');
        parts.filter(|part| !["lib", "mod"].contains(part)).map(str::to_owned).collect()
    }

    /// What it has beside its tests, which stand last.
    pub fn shipped(&self) -> &[String] {
        let test = ["#", "[", "cfg", "(", "test", ")", "]", "mod", "tests", "{"];
        let end = self.tokens.windows(test.len()).position(|window| window == test);
        &self.tokens[..end.unwrap_or(self.tokens.len())]
    }

    pub fn has(&self, token: &str) -> bool {
        self.tokens.iter().any(|other| other == token)
    }

    /// Does this row of tokens occur? `.replicate(` is `[".", "replicate", "("]`.
    pub fn has_row(&self, row: &[&str]) -> bool {
        self.tokens.windows(row.len()).any(|window| window == row)
    }

    /// What it uses of the crate's root: layers, or `*` for something that
    /// cannot be told.
    pub fn uses(&self) -> BTreeSet<String> {
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

    pub fn token(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", String::as_str)
    }
}

pub fn sources() -> Vec<Source> {
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

pub fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
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
