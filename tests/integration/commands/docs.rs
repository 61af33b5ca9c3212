//! The documentation stays true: its examples are run, and what a command's
//! page says of the command is compared with what the server says.

mod examples;

use std::collections::BTreeSet;
use std::fs;
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

#[test]
fn links_between_pages_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.to_owned(), root.join("docs"), root.join("docs/commands")];
    folders.extend(folders_in(&root.join("examples")));
    for folder in folders {
        for page in markdown_in(&folder) {
            for rest in read(&page).split("](").skip(1) {
                let target = rest.split([')', '#']).next().unwrap_or_default();
                let there = target.is_empty()
                    || target.starts_with("https://")
                    || folder.join(target).exists();
                assert!(there, "{} links to {target}", page.display());
            }
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
