//! Files that use each other in a circle.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

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
pub fn circles(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
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
