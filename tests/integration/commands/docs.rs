//! The documentation stays true: its examples are run, and what a command's
//! page says of the command is compared with what the server says.
//! Each code block is run by something.

mod blocks;
mod examples;

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use crate::commands::introspection::COMMANDS;
use support::{call, list, map, text, Server};

#[test]
fn every_command_has_a_page_that_tells_what_the_server_tells() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands");
    let index = read(&folder.join("README.md"));
    let mut names = Vec::new();
    for line in list(call!(con, "RWLOCK.HELP")).into_iter().map(text) {
        let (syntax, summary) = line.split_once(" -- ").expect("syntax -- summary");
        let command = syntax.split(' ').next().unwrap_or_default().to_lowercase();
        let docs = map(&map(call!(con, "COMMAND", "DOCS", &command))[&command]);
        let info = list(&list(call!(con, "COMMAND", "INFO", &command))[0]);
        let mut flags: Vec<String> = list(&info[2]).iter().map(text).collect();
        flags.retain(|flag| flag != "module");
        let known = COMMANDS.iter().find(|known| known.name == command).expect("a known command");

        let name = command.trim_start_matches("rwlock.").to_owned();
        let page = read(&folder.join(format!("{name}.md")));
        for said in [
            format!("# {}\n", command.to_uppercase()),
            format!("\n```text\n{syntax}\n```\n"),
            format!("\n{summary}\n"),
            format!("\n| Since | {} |\n", text(&docs["since"])),
            format!("\n| Complexity | {} |\n", text(&docs["complexity"])),
            format!("\n| Flags | {} |\n", flags.join(", ")),
            format!("\n| ACL categories | @rwlock, @{} |\n", known.categories.replace(' ', ", @")),
        ] {
            assert!(page.contains(&said), "{name}.md does not say {said:?}");
        }
        let link = format!("[`{syntax}`]({name}.md)").replace('|', "\\|");
        assert!(index.contains(&link), "the index lacks {link}");
        names.push(format!("{name}.md"));
    }
    for page in markdown_in(&folder) {
        let name = page.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        assert!(name == "README.md" || names.contains(&name), "{name} is of no command");
    }
}

#[test]
fn the_page_on_access_lists_the_commands_of_each_category() {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/access.md"));
    let categories = COMMANDS.iter().flat_map(|known| known.categories.split(' '));
    let categories: BTreeSet<&str> = categories.collect();
    for category in &categories {
        let its =
            COMMANDS.iter().filter(|known| known.categories.split(' ').any(|c| c == *category));
        let its: Vec<_> =
            its.map(|known| known.name.trim_start_matches("rwlock.").to_uppercase()).collect();
        let row = format!("\n| `@{category}` | {} |\n", its.join(", "));
        assert!(page.contains(&row), "docs/access.md does not say {row:?}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `@")).count();
    assert_eq!(rows, categories.len() + 1, "and @rwlock");
}

/// The users of the page on access that name their commands.
#[test]
fn its_worker_has_every_command_that_changes_a_lock_but_force() {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/access.md"));
    let line = page.lines().find(|line| line.starts_with("redis> ACL SETUSER worker on "));
    let words = line.expect("the worker").split(' ');
    let given = words.filter_map(|word| word.strip_prefix('+'));
    let given: BTreeSet<&str> = given.filter(|name| name.starts_with("rwlock.")).collect();
    let changes = COMMANDS.iter().filter(|known| {
        known.categories.contains("write") && !known.categories.contains("dangerous")
    });
    assert_eq!(given, changes.map(|known| known.name).collect());
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = ["", "docs", "docs/commands"].map(|folder| root.join(folder)).to_vec();
    folders.extend(["examples", "tests"].iter().flat_map(|folder| folders_in(&root.join(folder))));
    let mut dead = Vec::new();
    for folder in folders {
        for page in markdown_in(&folder) {
            for rest in read(&page).split("](").skip(1) {
                let link = rest.split(')').next().unwrap_or_default();
                if link.starts_with("https://") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() { page.clone() } else { folder.join(file) };
                let leads = target.exists()
                    && (anchor.is_empty() || anchors_of(&read(&target)).contains(anchor));
                if !leads {
                    dead.push(format!("{} links to {link}", page.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// The anchors of a page's headings, by GitHub's rule.
fn anchors_of(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#').strip_prefix(' ');
        let Some(heading) = heading.filter(|_| !is_code && line.starts_with('#')) else {
            continue;
        };
        let slug = slug_of(heading);
        let repeated = (1..).map(|number| format!("{slug}-{number}"));
        let mut names = iter::once(slug.clone()).chain(repeated);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// The anchor of a heading that is the first of its text.
fn slug_of(heading: &str) -> String {
    // A link counts with its text only.
    let mut parts = heading.trim().split("](");
    let mut text = parts.next().unwrap_or_default().to_lowercase();
    for part in parts {
        text += &part.split_once(')').map_or("", |(_, rest)| rest).to_lowercase();
    }
    text.retain(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    text.replace(' ', "-")
}

#[test]
fn headings_have_the_anchors_that_github_gives_them() {
    let page = "# A `b_c` [d, e](f.md), g\n## Same\n```\n# Code\n```\n## Same\n#none\n### Same\n";
    let anchors = ["a-b_c-d-e-g", "same", "same-1", "same-2"].map(str::to_owned);
    assert_eq!(anchors_of(page), anchors.into());
}

/// The table in `examples/README.md` says what each helper does, and the tests of each
/// language have a test for each cell.
#[test]
fn each_cell_of_the_table_of_helpers_has_a_test() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let page = read(&examples.join("README.md"));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_lowercase()).collect()
    };
    let mut rows = page.lines().filter(|line| line.starts_with('|')).map(cells);
    let head = rows.find(|row| row[0] == "row").expect("the table of helpers");
    let rows: Vec<_> = rows.filter(|row| row[0].parse::<u8>().is_ok()).collect();
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for (column, language) in head.iter().enumerate().skip(2) {
        let mut tests = String::new();
        texts_in(&examples.join(language.trim_end_matches(".js")), &mut tests);
        for row in &rows {
            let mark = tests.lines().any(|line| has_mark(line, &row[0]));
            let cell = row[column].as_str();
            assert!(["yes", "–"].contains(&cell), "{cell}");
            assert!(cell == "–" || mark, "row {} of {language}", row[0]);
        }
    }
}

/// Whether a line has the mark `row <number>`, also inside the name of a test.
fn has_mark(line: &str, number: &str) -> bool {
    let mut rest = line;
    while let Some((_, behind)) = rest.split_once("row") {
        let digits = behind.trim_start_matches([' ', '_']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if &digits[..end] == number {
            return true;
        }
        rest = behind;
    }
    false
}

/// Adds the text of all files in a folder but the pages.
fn texts_in(folder: &Path, tests: &mut String) {
    for entry in fs::read_dir(folder).expect("list a folder") {
        let path = entry.expect("list a folder").path();
        if path.is_dir() {
            texts_in(&path, tests);
        } else if path.extension().is_none_or(|extension| extension != "md") {
            tests.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// A folder, and those in it.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    for file in fs::read_dir(folder).expect("list a folder") {
        folders.push(file.expect("list a folder").path());
    }
    folders.retain(|path| path.is_dir());
    folders
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("list a folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}
