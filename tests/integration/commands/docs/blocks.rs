//! Every code block of a page is run, or compared with the truth, by a test.
//!
//! `text` by `examples.rs`, Python and SQL by `examples/python/test_pages.py`, the other
//! languages by the `readme.*.in` beside the page, which `scripts/readme.sh` makes a program.

use std::fs;
use std::path::Path;

use support::{Builder, Server};

use super::{folders_in, markdown_in, read};

/// A block that is set off by ``` lines.
struct Block {
    /// Its number on the page, from 1.
    number: usize,
    language: String,
    lines: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(info) => {
                is_code = !is_code;
                if is_code {
                    let language = info.split(' ').next().unwrap_or_default().to_owned();
                    blocks.push(Block { number: blocks.len() + 1, language, lines: Vec::new() });
                }
            }
            None if is_code => {
                blocks.last_mut().expect("an open block").lines.push(line.to_owned());
            }
            None => {}
        }
    }
    blocks
}

/// The pages of the repository, by their paths in it.
fn pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = ["", "docs", "docs/commands"].map(|folder| root.join(folder)).to_vec();
    folders.extend(["examples", "tests"].iter().flat_map(|folder| folders_in(&root.join(folder))));
    let pages = folders.iter().flat_map(|folder| markdown_in(folder));
    let name = |page: &Path| page.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned);
    pages.map(|page| name(&page).expect("a path in the repository")).collect()
}

fn file(path: &str) -> String {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

#[test]
fn no_block_is_of_a_language_that_nothing_runs() {
    let pages = pages();
    assert!(pages.len() > 30, "{pages:?}");
    let (mut orphans, mut count) = (Vec::new(), 0);
    for page in pages {
        for block in blocks(&file(&page)) {
            count += 1;
            if !is_run(&page, &block) {
                let Block { number, language, .. } = block;
                orphans.push(format!("{page}: block {number}, of the language {language:?}"));
            }
        }
    }
    assert!(count > 80, "{count}");
    assert!(orphans.is_empty(), "nothing runs\n{}", orphans.join("\n"));
}

/// Whether something runs the block, or compares it with the truth.
fn is_run(page: &str, block: &Block) -> bool {
    let first = block.lines.first().map_or("", String::as_str);
    match block.language.as_str() {
        "text" if page.starts_with("docs/commands/") && block.number == 1 => {
            // Compared with RWLOCK.HELP, beside this.
            first.starts_with("RWLOCK.") || super::examples::is_example(first)
        }
        // Compared with INFO, in monitoring/pages.rs.
        "text" if page == "docs/monitoring.md" && first == "# rwlock" => true,
        "text" if page == "README.md" || page.starts_with("docs/") => {
            super::examples::is_example(first)
        }
        "python" | "sql" => {
            // It finds blocks without a test itself, on the pages that it knows.
            file("examples/python/test_pages.py").contains(&format!("@of(\"{page}\", "))
        }
        // Below.
        "xml" => page == "examples/java/README.md",
        "java" if page == "docs/migration.md" => {
            let programs = ["examples/java/Migration.java.in", "tests/redisson/Migration.java.in"];
            programs.iter().any(|path| has_place(&file(path), block.number))
        }
        "bash" | "c" | "go" | "java" | "js" | "rust" => {
            let Some(folder) = page.strip_suffix("README.md") else {
                return false;
            };
            let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
            files.expect("list a folder").any(|file| {
                let path = file.expect("list a folder").path();
                let is_program = path.extension().is_some_and(|extension| extension == "in");
                is_program && has_place(&read(&path), block.number)
            })
        }
        _ => false,
    }
}

/// Whether a program has a place for the block with this number.
fn has_place(program: &str, number: usize) -> bool {
    let place = format!(" BLOCK {number}");
    program.lines().any(|line| line.trim_end_matches(" */").ends_with(&place))
}

/// What runs the lines that a page indents, by how they begin: a file, and what in it does.
const LINES: [(&str, &str, &str); 16] = [
    ("git clone ", "scripts/test-docs.sh", "command_of README.md 'git clone'"),
    ("make run ", "scripts/test-docs.sh", "command_of README.md 'make run'"),
    ("redis_exporter ", "scripts/test-docs.sh", "command_of docs/monitoring.md redis_exporter"),
    ("read -rs ", "scripts/test-docs.sh", "command_of docs/monitoring.md 'read -rs'"),
    ("make top ", "scripts/test-docs.sh", "command_of docs/monitoring.md 'make top'"),
    ("sysctl ", "scripts/test-docs.sh", "command_of docs/operations.md sysctl"),
    ("make build", "Makefile", "test-deb: build"),
    ("sudo make install ", "scripts/test-deb.sh", "scripts/install.sh install"),
    // The page that tells of them is what they write.
    ("make bench", "Makefile", "bench-docs: ##"),
    ("apt install ./target/deb/", "scripts/test-deb.sh", "dpkg -i /redis-rwlock.deb"),
    ("grep -q '^loadmodule", "scripts/test-deb.sh", "/^    grep -q /"),
    ("systemctl restart ", "scripts/test-deb.sh", "service redis-server restart"),
    ("docker ", "scripts/test-docker.sh", "as `docker run -v` starts it"),
    ("redis> CLIENT LIST ", "tests/integration/monitoring/pages.rs", "redis> CLIENT LIST ID 7"),
    ("id=7 ", "tests/integration/monitoring/pages.rs", "begins_as_the_page_shows"),
    ("rwlock: not loaded: ", "src/server/version.rs", "and this server is {found}"),
];

/// The lines of a page that are indented by four spaces, apart from those between ``` lines.
fn indented(page: &str) -> Vec<String> {
    let (mut is_code, mut follows_blank, mut lines) = (false, true, Vec::new());
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let indented = line.strip_prefix("    ").filter(|_| !is_code && follows_blank);
        lines.extend(indented.map(str::to_owned));
        follows_blank = line.is_empty() || indented.is_some();
    }
    lines
}

#[test]
fn indented_lines_are_run_too() {
    let mut pages = pages();
    pages.retain(|page| page == "README.md" || page.starts_with("docs/"));
    let (mut arguments, mut settings) = (Vec::new(), Vec::new());
    for page in pages {
        for line in indented(&file(&page)) {
            if let Some(rest) = line.strip_prefix("loadmodule /usr/lib/redis/modules/librwlock.so")
            {
                arguments.push(rest.trim().to_owned());
            } else if let Some((name, value)) =
                line.split_once(' ').filter(|(name, _)| name.starts_with("rwlock."))
            {
                settings.push((name.to_owned(), value.to_owned()));
            } else {
                let by = LINES.iter().find(|(start, ..)| line.starts_with(start));
                let (_, path, how) = by.unwrap_or_else(|| panic!("{page}: nothing runs {line:?}"));
                assert!(file(path).contains(how), "{path} does not contain {how:?}");
            }
        }
    }
    assert!(arguments.len() >= 3 && settings.len() >= 2, "{arguments:?} {settings:?}");
    for arguments in arguments {
        Server::builder().module_arguments(arguments).start();
    }
    let with = |server: Builder, (name, value)| server.config(name, value);
    settings.into_iter().fold(Server::builder(), with).start();
}

#[test]
fn blocks_are_found_where_a_list_indents_them_too() {
    let found = blocks("a\n```text resp3\none\n```\n- b\n\n  ```python\n  two\n  ```\n```\n```\n");
    let found: Vec<_> =
        found.iter().map(|block| (block.number, &*block.language, block.lines.len())).collect();
    assert_eq!(found, [(1, "text", 1), (2, "python", 1), (3, "", 0)]);
}

/// A helper's page names the version of the library that its tests use.
#[test]
fn the_libraries_of_the_helpers_are_those_that_are_tested() {
    let all = |path: &str| file(path).split_whitespace().collect::<String>();
    // What stands before a library and its version on the page, and the file that has them.
    for (language, command, tested) in [
        ("python", "    pip install ", "requirements.txt"),
        ("node", "`npm install ", "package.json"),
        ("go", "    go get ", "go.mod"),
        ("rust", "    cargo add ", "Cargo.toml"),
        ("java", "<dependency>", "pom.xml"),
    ] {
        let page = file(&format!("examples/{language}/README.md"));
        let tested = all(&format!("examples/{language}/{tested}"));
        let named: Vec<&str> = page
            .split(command)
            .skip(1)
            .map(|rest| rest.split(['`', '\n']).next().unwrap_or_default())
            .collect();
        assert!(!named.is_empty(), "{language}: no {command:?}");
        for library in named {
            let said = match (language, library.split_once('@')) {
                ("node", Some((name, version))) => format!("\"{name}\":\"{version}\""),
                ("go", Some((name, version))) => format!("require{name}{version}"),
                ("rust", Some((name, version))) => format!("{name}={{version=\"={version}\""),
                _ => library.to_owned(),
            };
            assert!(tested.contains(&said), "{language}: {said} is not what is tested");
        }
    }
}

/// The targets of the Makefile that `make help` lists.
fn targets() -> Vec<String> {
    let makefile = file("Makefile");
    let listed = makefile.lines().filter(|line| line.contains(" ## "));
    let targets = listed.filter_map(|line| Some(line.split_once(": ")?.0.to_owned()));
    targets.filter(|target| target != "help").collect()
}

/// The targets that pages tell of.
fn told(pages: &[String]) -> Vec<String> {
    let text: String = pages.iter().map(|page| file(page)).collect();
    let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
    let rests = ["`make ", "    make "].map(|start| text.split(start).skip(1));
    let names = rests.into_iter().flatten().map(|rest| rest.split(|c| !is_word(c)).next());
    names.flatten().map(str::to_owned).collect()
}

#[test]
fn what_make_can_do_is_told_and_what_is_told_it_can_do() {
    let targets = targets();
    assert!(targets.len() > 15, "{targets:?}");
    // Where somebody looks for it first.
    let told = told(&["README.md", "CONTRIBUTING.md", "docs/operations.md"].map(str::to_owned));
    for target in &targets {
        assert!(told.contains(target), "nobody is told of make {target}");
    }
    for name in self::told(&pages()) {
        assert!(targets.contains(&name), "there is no make {name}");
    }
}
