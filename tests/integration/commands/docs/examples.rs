//! The examples of the documentation are run.
//!
//! A fenced block that begins with the prompt of a connection is an example:
//! each such line is a command, what follows is what redis-cli prints. A page's
//! examples run one after the other on an empty server. `redis> ` is the
//! connection of most; in a block whose info string says `resp3` it speaks
//! RESP3. `second> ` and so on are others: their `(waits)` says that there is no
//! reply yet, and a line `second: OK` that it comes now. A line `... 200 ms later`
//! waits. After QUIT, which redis-cli does not answer, the next command of that connection
//! is of a new one. Integers of 1000 and more are times: they may be off by [`TOLERANCE`].
//! Ids and addresses of clients and unix times may be any, and so may be the text of NOPERM, which is each
//! server's own. So may fencing tokens, integers of 10^15 and more:
//! where a page shows one for the first time it stands for the one that comes, in
//! the page's later commands too, and a larger one must stand for a larger one.
//!
//! `$ redis-cli --user name` is a connection of that user, with the password of
//! the last `$ export REDISCLI_AUTH=`. A block whose info string says
//! `acl-categories` is run where a module can have its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisResult, ServerError, Value};

use super::{markdown_in, read};
use crate::access::rights::Categories;
use support::{assert_ok, call, error_text, send, wait_until, Server};

/// How many ms a time in an example may be off: machines stall.
const TOLERANCE: u64 = 5_000;

/// The connections of a page.
const NAMES: [&str; 4] = ["redis", "second", "third", "fourth"];

/// The prompt of a shell.
const SHELL: &str = "$ ";

/// What is shown of a command without a reply.
const WAITS: &str = "(waits)";

#[test]
fn the_examples_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    pages.extend(markdown_in(&root.join("docs")));
    pages.extend(markdown_in(&root.join("docs/commands")));
    let (mut wrong, mut count) = (String::new(), 0);
    for page in pages {
        let examples = examples(&read(&page));
        if examples.is_empty() {
            continue;
        }
        let server = Server::builder().start();
        let mut page_run = PageRun::on(&server);
        let has_categories = Categories::of(&server) == Categories::All;
        for example in examples {
            if example.needs_categories && !has_categories {
                continue;
            }
            count += 1;
            let actual = page_run.run(&example);
            if !alike(&example.lines, &actual) {
                let expected = example.lines.join("\n");
                let _ = write!(
                    wrong,
                    "\n{}, line {}: says\n\n{expected}\n\nand is\n\n{}\n",
                    page.display(),
                    example.line,
                    actual.join("\n"),
                );
            }
        }
    }
    assert!(count > 20, "found {count} examples only");
    assert!(wrong.is_empty(), "{wrong}");
}

struct Example {
    /// Of the page, where it begins.
    line: usize,
    resp3: bool,
    needs_categories: bool,
    lines: Vec<String>,
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    for (number, line) in (1..).zip(page.lines()) {
        let fence = line.strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                let resp3 = info.contains("resp3");
                let needs_categories = info.contains("acl-categories");
                let lines = Vec::new();
                open = Some(Example { line: number + 1, resp3, needs_categories, lines });
            }
            (Some(block), None) => block.lines.push(line.trim_end().to_owned()),
            (Some(_), Some(_)) => examples.extend(open.take()),
            (None, None) => {}
        }
    }
    examples.retain(|block| block.lines.first().is_some_and(|line| is_example(line)));
    examples
}

/// Whether a block that begins with this line is an example.
pub fn is_example(line: &str) -> bool {
    command_in(line).is_some() || line.starts_with(SHELL)
}

/// The connection and the command, if the line is a prompt and a command.
fn command_in(line: &str) -> Option<(&'static str, &str)> {
    split(line, "> ")
}

/// The connection whose reply comes, if the line says that one does.
fn late_reply_in(line: &str) -> Option<&'static str> {
    split(line, ": ").map(|(name, _)| name)
}

fn split<'l>(line: &'l str, mark: &str) -> Option<(&'static str, &'l str)> {
    let (name, rest) = line.split_once(mark)?;
    Some((NAMES.into_iter().find(|known| *known == name)?, rest))
}

/// The fencing token that a line ends with.
fn token_in(line: &str) -> Option<&str> {
    let (_, number) = line.rsplit_once("(integer) ")?;
    (number.len() >= 16 && number.parse::<u64>().is_ok()).then_some(number)
}

/// A page whose examples are run.
struct PageRun<'s> {
    server: &'s Server,
    clients: BTreeMap<(&'static str, bool), Connection>,
    /// How many of them wait.
    waiting: usize,
    /// The tokens that the page shows, and those that came.
    tokens: BTreeMap<String, String>,
    /// Of REDISCLI_AUTH.
    password: String,
}

impl<'s> PageRun<'s> {
    fn on(server: &'s Server) -> Self {
        Self {
            server,
            clients: BTreeMap::new(),
            waiting: 0,
            tokens: BTreeMap::new(),
            password: String::new(),
        }
    }

    /// The example as it comes out now.
    fn run(&mut self, example: &Example) -> Vec<String> {
        let mut out = Vec::new();
        let mut lines = example.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let late = late_reply_in(line);
            let pause = line.strip_prefix("... ").and_then(|line| line.strip_suffix(" ms later"));
            if let Some((name, command)) = command_in(line) {
                out.push(line.clone());
                let waits = lines.peek().is_some_and(|next| *next == WAITS);
                let words: Vec<String> =
                    words(command).iter().map(|word| self.to_server(word)).collect();
                let client = self.client(name, example.resp3);
                if command == "QUIT" {
                    assert_ok(send(client, words));
                    self.clients.remove(&(name, example.resp3 && name == NAMES[0]));
                } else if waits {
                    out.push(self.waits(name, example.resp3, &words));
                } else {
                    let reply = lines_of(send(client, words));
                    self.show(&mut out, reply, &example.lines);
                }
            } else if let Some(name) = late {
                let reply = match self.client(name, example.resp3).recv_response() {
                    Ok(Value::ServerError(error)) => Err(error.into()),
                    reply => reply,
                };
                self.waiting -= 1;
                let mut reply = lines_of(reply);
                reply[0] = format!("{name}: {}", reply[0]);
                self.show(&mut out, reply, &example.lines);
            } else if let Some(shell) = line.strip_prefix(SHELL) {
                out.push(line.clone());
                out.extend(self.shell(shell));
            } else if let Some(ms) = pause {
                out.push(line.clone());
                thread::sleep(Duration::from_millis(ms.parse().expect("a number of ms")));
            }
        }
        out
    }

    /// Adds the lines of a reply, as the page would show them.
    fn show(&mut self, out: &mut Vec<String>, reply: Vec<String>, page: &[String]) {
        for line in reply {
            if let Some((ours, came)) =
                page.get(out.len()).and_then(|shown| Some((token_in(shown)?, token_in(&line)?)))
            {
                let fits = |(known, its): (&String, &String)| {
                    ours.cmp(known) == came.cmp(its) && ours.len() == known.len()
                };
                if self.tokens.iter().all(fits) {
                    self.tokens.insert(ours.to_owned(), came.to_owned());
                }
            }
            let shown = self.tokens.iter();
            out.push(shown.fold(line, |line, (ours, came)| line.replace(came, ours)));
        }
    }

    /// A word of a command, with the token that came where the page has its own.
    fn to_server(&self, word: &str) -> String {
        self.tokens.get(word).map_or(word, String::as_str).to_owned()
    }

    /// What a line for the shell prints.
    fn shell(&mut self, line: &str) -> Vec<String> {
        if let Some(password) = line.strip_prefix("export REDISCLI_AUTH=") {
            self.password = password.to_owned();
            return Vec::new();
        }
        let call = line.strip_prefix("redis-cli --user ").and_then(|rest| rest.split_once(' '));
        let (user, command) = call.unwrap_or_else(|| panic!("no test can run {line:?}"));
        let mut con = self.server.connection();
        assert_ok(call!(con, "AUTH", user, &self.password));
        lines_of(send(&mut con, words(command)))
    }

    /// Sends a command that waits.
    fn waits(&mut self, name: &'static str, resp3: bool, words: &[String]) -> String {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let client = self.client(name, resp3);
        client.send_packed_command(&command.get_packed_command()).expect("send a command");
        self.waiting += 1;
        let waiting = self.waiting.to_string();
        wait_until("the client waits", || {
            self.server.info("clients")["blocked_clients"] == waiting
        });
        WAITS.to_owned()
    }

    fn client(&mut self, name: &'static str, resp3: bool) -> &mut Connection {
        // What another connection replies in an example is the same in both.
        let resp3 = resp3 && name == NAMES[0];
        self.clients.entry((name, resp3)).or_insert_with(|| match resp3 {
            true => self.server.connection_resp3(),
            false => self.server.connection(),
        })
    }
}

/// A reply as redis-cli prints it, in lines.
fn lines_of(reply: RedisResult<Value>) -> Vec<String> {
    let shown = match reply {
        Ok(reply) => shown(&reply, ""),
        Err(error) => format!("(error) {}", error_text(&error)),
    };
    shown.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The words of a command line; one with spaces is put in double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// A reply as redis-cli prints it; `indent` stands before all lines but the first.
fn shown(reply: &Value, indent: &str) -> String {
    match reply {
        Value::Nil => "(nil)".into(),
        Value::Int(number) => format!("(integer) {number}"),
        Value::Okay => "OK".into(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::ServerError(error) => format!("(error) {}", line_of(error)),
        Value::Array(items) if items.is_empty() => "(empty array)".into(),
        Value::Array(items) => {
            let items = items.iter().map(|item| (String::new(), item));
            numbered(items.collect(), ')', indent)
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (format!("{} => ", shown(key, "")), value));
            numbered(pairs.collect(), '#', indent)
        }
        other => panic!("no example has shown {other:?} so far"),
    }
}

fn numbered(items: Vec<(String, &Value)>, mark: char, indent: &str) -> String {
    let width = items.len().to_string().len();
    let within = format!("{indent}{}", " ".repeat(width + 2));
    let mut out = String::new();
    for (number, (label, value)) in (1..).zip(items) {
        if number > 1 {
            let _ = write!(out, "\n{indent}");
        }
        let _ = write!(out, "{number:width$}{mark} {label}");
        // What is long begins under its label.
        if !label.is_empty() && matches!(value, Value::Array(items) if !items.is_empty()) {
            let _ = write!(out, "\n{within}");
        }
        out.push_str(&shown(value, &within));
    }
    out
}

fn line_of(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

fn alike(expected: &[String], actual: &[String]) -> bool {
    expected.len() == actual.len()
        && expected.iter().zip(actual).all(|(expected, actual)| {
            let refused = "(error) NOPERM ";
            let both_refused = expected.starts_with(refused) && actual.starts_with(refused);
            expected == actual || both_refused || {
                let prefix = "(integer) ";
                match (expected.rsplit_once(prefix), actual.rsplit_once(prefix)) {
                    (Some((before, a)), Some((also, b))) => {
                        before == also
                            && (near(a, b)
                                || names_a_client(before) && both(a, b)
                                || before.ends_with("\"time\" => ") && both_are_clocks(a, b))
                    }
                    _ => is_address(expected) && is_address(actual),
                }
            }
        })
}

/// Whether the number behind this is the id of a client, or 0 for none.
fn names_a_client(before: &str) -> bool {
    ["\"client\" => ", "\"session\" => "].iter().any(|label| before.ends_with(label))
}

/// Whether both are ids.
fn both(a: &str, b: &str) -> bool {
    a != "0" && b != "0"
}

/// Whether both are unix times in ms.
fn both_are_clocks(a: &str, b: &str) -> bool {
    [a, b].iter().all(|time| time.parse::<u64>().is_ok_and(|time| time > 1_600_000_000_000))
}

/// Whether the line shows the address of a client on this machine.
fn is_address(line: &str) -> bool {
    line.contains("\"address\" => \"127.0.0.1:")
}

fn near(a: &str, b: &str) -> bool {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a >= 1000 && b >= 1000 && a.abs_diff(b) <= TOLERANCE,
        _ => false,
    }
}

#[test]
fn times_are_compared_loosely_and_nothing_else() {
    let same = |a: &str, b: &str| alike(&[a.to_owned()], &[b.to_owned()]);
    assert!(same("1) (integer) 29990", "1) (integer) 28000"));
    assert!(!same("(integer) 29990", "(integer) 24000"));
    assert!(!same("(integer) 1", "(integer) 0"));
    assert!(!same("2) (integer) 2000", "1) (integer) 2000"));
    assert!(!same("\"2000\"", "\"2001\""));
    assert!(same("5# \"client\" => (integer) 8", "5# \"client\" => (integer) 12"));
    let time = "2# \"time\" => (integer)";
    assert!(same(&format!("{time} 1767225600000"), &format!("{time} 1867225600000")));
    assert!(!same(&format!("{time} 1767225600000"), &format!("{time} 1767225600")));
    let address = "\"address\" =>";
    assert!(same(&format!("{address} \"127.0.0.1:41702\""), &format!("{address} \"127.0.0.1:9\"")));
    assert!(!same(&format!("{address} \"127.0.0.1:41702\""), &format!("{address} \"\"")));
    assert!(!same("5# \"session\" => (integer) 8", "5# \"session\" => (integer) 0"));
    assert!(!same("5# \"holds\" => (integer) 8", "5# \"holds\" => (integer) 12"));
}
