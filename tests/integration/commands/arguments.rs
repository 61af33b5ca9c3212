//! Arguments of the commands: option words, their number and case.

use redis::{cmd, Connection, Pipeline, Value};

use support::unchanged::{assert_unchanged, snapshot};
use support::{
    assert_error, assert_ok, call, error_text, every_command, int, list, refused, send, text,
    Server,
};

/// A lock that `me` reads, and one that it writes.
pub fn locks(con: &mut Connection) {
    assert_ok(call!(con, "FLUSHALL"));
    assert_ok(call!(con, "RWLOCK.RLOCK", "read", "me", 600_000));
    assert_ok(call!(con, "RWLOCK.WLOCK", "write", "me", 600_000));
}

/// What may follow the fixed arguments of a command: words, each with whether
/// a number follows, in groups of which one word may be given once. What a
/// later version adds is added here.
type Options = &'static [&'static [(&'static str, bool)]];

struct Syntax {
    fixed: &'static [&'static str],
    options: Options,
}

/// All that take options. Their lock is held for writing by `me`.
const SYNTAX: [Syntax; 6] = [
    Syntax {
        fixed: &["RWLOCK.RLOCK", "me", "60000"],
        options: &[&[("BLOCK", true)], &[("SESSION", false)], &[("ONCE", false)]],
    },
    Syntax {
        fixed: &["RWLOCK.WLOCK", "me", "60000"],
        options: &[
            // Who waits needs no reservation.
            &[("BLOCK", true), ("RESERVE", true)],
            &[("SESSION", false)],
            &[("ONCE", false)],
            &[("FENCE", false)],
        ],
    },
    Syntax {
        fixed: &["RWLOCK.UPGRADE", "me", "60000"],
        options: &[
            &[("BLOCK", true)],
            &[("SESSION", false)],
            &[("ONCE", false)],
            &[("FENCE", false)],
        ],
    },
    Syntax {
        fixed: &["RWLOCK.UNLOCK", "me"],
        options: &[&[("READ", false), ("WRITE", false), ("ALL", false)]],
    },
    Syntax { fixed: &["RWLOCK.FORCEUNLOCK"], options: &[&[("READ", false), ("WRITE", false)]] },
    Syntax { fixed: &["RWLOCK.INSPECT"], options: &[&[("COUNT", true)]] },
];

/// What the sequences are made of: the words of this and of later versions,
/// and what is none.
const PIECES: [&[&str]; 18] = [
    &["ONCE"],
    &["once"],
    &["RESERVE", "1000"],
    &["RESERVE"],
    &["BLOCK", "0"],
    &["block", "-1"],
    &["BLOCK"],
    &["SESSION"],
    &["FENCE"],
    &["READ"],
    &["wRiTe"],
    &["ALL"],
    &["COUNT", "5"],
    &["COUNT"],
    &["1000"],
    &[""],
    &["ONCE\0"],
    &["garbage"],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Valid,
    Syntax,
    /// A number is none; there may be more that is wrong.
    Number,
}

fn judge(options: Options, words: &[&str]) -> Verdict {
    let mut seen = vec![false; options.len()];
    let mut verdict = Verdict::Valid;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let found = options.iter().enumerate().find_map(|(group, choices)| {
            let choice = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(word))?;
            Some((group, choice.1))
        });
        let worse = if verdict == Verdict::Number { verdict } else { Verdict::Syntax };
        match found {
            Some((group, with_number)) if seen[group] => {
                let is_bad = |number: &&str| number.parse::<u32>().is_err();
                return if with_number && words.next().is_some_and(is_bad) {
                    Verdict::Number
                } else {
                    worse
                };
            }
            Some((group, with_number)) => {
                seen[group] = true;
                if with_number {
                    match words.next().map(|number| number.parse::<u32>()) {
                        None => return worse,
                        Some(Err(_)) => verdict = Verdict::Number,
                        Some(Ok(_)) => {}
                    }
                }
            }
            None => return worse,
        }
    }
    verdict
}

/// All sequences of up to `most` pieces.
fn sequences(most: usize) -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..most {
        last = last
            .iter()
            .flat_map(|start: &Vec<&str>| PIECES.map(|piece| [start.as_slice(), piece].concat()))
            .collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// The replies to many commands that are sent at once; errors among them.
fn pipelined(con: &mut Connection, commands: &[Vec<String>]) -> Vec<Value> {
    let mut replies = Vec::new();
    for chunk in commands.chunks(1000) {
        let mut pipeline = Pipeline::new();
        for words in chunk {
            let mut command = cmd(&words[0]);
            for word in &words[1..] {
                command.arg(word);
            }
            pipeline.add_command(command);
        }
        let packed = pipeline.get_packed_pipeline();
        let answer = redis::ConnectionLike::req_packed_commands(con, &packed, 0, chunk.len());
        replies.extend(answer.expect("replies"));
    }
    replies
}

#[test]
fn options_in_any_order_are_accepted_and_all_else_is_a_syntax_error() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let sequences = sequences(3);
    let lock = |number: usize| format!("lock{number}");
    for syntax in &SYNTAX {
        assert_ok(call!(con, "FLUSHALL"));
        let hold = |number| ["RWLOCK.WLOCK", &lock(number), "me", "60000"].map(String::from);
        let setup: Vec<_> = (0..sequences.len()).map(|number| hold(number).to_vec()).collect();
        let held = pipelined(&mut con, &setup);
        assert!(held.iter().all(|reply| *reply == Value::Okay));
        let before = snapshot(&mut con);
        let commands: Vec<_> = sequences
            .iter()
            .enumerate()
            .map(|(number, words)| {
                let (name, rest) = syntax.fixed.split_first().expect("a name");
                let mut command = vec![(*name).to_owned(), lock(number)];
                command.extend(rest.iter().chain(words).map(|word| (*word).to_owned()));
                command
            })
            .collect();
        let replies = pipelined(&mut con, &commands);
        let after = snapshot(&mut con);
        let mut valid = 0;
        for (number, (words, reply)) in sequences.iter().zip(&replies).enumerate() {
            let verdict = judge(syntax.options, words);
            let what = format!("{:?} {words:?}: {reply:?}", syntax.fixed);
            let error = match reply {
                Value::ServerError(error) => error_text(&error.clone().into()),
                _ => String::new(),
            };
            let fits = match verdict {
                // `UNLOCK … READ` and UPGRADE are not held, which is no error
                // of arguments.
                Verdict::Valid => error.is_empty() || error.starts_with("NOTHELD"),
                Verdict::Syntax => {
                    error.starts_with("ERR syntax error near '") && error.ends_with('\'')
                }
                Verdict::Number => error.starts_with("ERR "),
            };
            assert!(fits, "{verdict:?} {what}");
            valid += usize::from(verdict == Verdict::Valid);
            if verdict != Verdict::Valid {
                let key = lock(number).into_bytes();
                assert_eq!(after.get(&key), before.get(&key), "changed by {what}");
            }
        }
        assert!(valid > 1 && valid < 150, "{valid} of {:?}", syntax.fixed);
    }
}

#[test]
fn a_wrong_number_of_arguments_is_the_servers_own_error() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    let own = assert_error(call!(con, "GET"), "ERR wrong number of arguments");
    // The numbers of arguments that are refused.
    let rows: [(&str, &[usize]); 9] = [
        ("rwlock.rlock", &[0, 1, 2]),
        ("rwlock.wlock", &[0, 1, 2]),
        ("rwlock.unlock", &[0, 1]),
        ("rwlock.renew", &[0, 1, 2, 4, 5]),
        ("rwlock.upgrade", &[0, 1, 2]),
        ("rwlock.downgrade", &[0, 1, 2, 4, 5]),
        ("rwlock.forceunlock", &[0]),
        ("rwlock.inspect", &[0]),
        ("rwlock.help", &[1, 2]),
    ];
    for (name, counts) in rows {
        for count in counts {
            let arguments = ["read", "me", "60000", "60000", "60000"];
            let words = [name].into_iter().chain(arguments.into_iter().take(*count));
            let result = assert_unchanged(&mut con, |con| send(con, words));
            let error = assert_error(result, "ERR");
            assert_eq!(error, own.replace("'get'", &format!("'{name}'")), "{count} arguments");
        }
    }
}

#[test]
fn commands_and_words_are_known_in_any_case() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mixed = |word: &str| -> String {
        let flip = |(at, c): (usize, char)| {
            if at % 2 == 0 {
                c.to_ascii_lowercase()
            } else {
                c.to_ascii_uppercase()
            }
        };
        word.chars().enumerate().map(flip).collect()
    };
    let spellings: [&dyn Fn(&str) -> String; 3] =
        [&|word| word.to_lowercase(), &|word| word.to_uppercase(), &mixed];
    for spell in spellings {
        for command in every_command::all() {
            assert_ok(call!(con, "FLUSHALL"));
            assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 60_000));
            let words = command.words(b"k", b"me");
            let words = words.iter().map(|word| String::from_utf8_lossy(word));
            let words = words.map(|word| if word.len() > 2 { spell(&word) } else { word.into() });
            if let Err(error) = send(&mut con, words) {
                assert!(error_text(&error).starts_with("NOTHELD"), "{}: {error}", command.name);
            }
        }
        list(send(&mut con, [spell("rwlock.help")]));
    }
}

/// Each is refused in a database with the locks of [`locks`] and `text`, a
/// string; with the start of the error.
const BAD_INPUT: [(&[&str], &str); 19] = [
    (&["RWLOCK.RLOCK", "free", "me", "0"], "ERR invalid expire time in 'rwlock.rlock' command"),
    (&["RWLOCK.WLOCK", "free", "me", "x"], "ERR invalid expire time in 'rwlock.wlock' command"),
    (&["RWLOCK.WLOCK", "free", "me", "60000", "RESERVE"], "ERR syntax error near 'RESERVE'"),
    (&["RWLOCK.RLOCK", "free", "me", "60000", "ONCE", "ONCE"], "ERR syntax error near 'ONCE'"),
    (&["RWLOCK.RLOCK", "free", "me", "60000", "BLOCK", "x"], "ERR timeout is not an integer"),
    (&["RWLOCK.WLOCK", "free", "me", "60000", "BLOCK", "-1"], "ERR timeout is negative"),
    (&["RWLOCK.UPGRADE", "read", "me", "60000", "ONCE", "once"], "ERR syntax error near 'once'"),
    (&["RWLOCK.UPGRADE", "read", "me", "60000", "FENCE", "fence"], "ERR syntax error near 'fence'"),
    (&["RWLOCK.WLOCK", "free", "me", "60000", "FENCE", "FENCE"], "ERR syntax error near 'FENCE'"),
    (&["RWLOCK.RLOCK", "free", "me", "60000", "FENCE"], "ERR syntax error near 'FENCE'"),
    (&["RWLOCK.QUEUES", "COUNT", "0"], "ERR value is"),
    (&["RWLOCK.RLOCK", "free", "mode", "60000"], "ERR owner must"),
    (&["RWLOCK.RLOCK", "free:wait_write", "me", "60000"], "ERR"),
    (&["RWLOCK.UNLOCK", "write", "you"], "NOTHELD"),
    (&["RWLOCK.RENEW", "read", "you", "60000"], "NOTHELD"),
    (&["RWLOCK.UPGRADE", "free", "me", "60000"], "NOTHELD"),
    (&["RWLOCK.DOWNGRADE", "read", "me", "60000"], "NOTHELD"),
    (&["RWLOCK.FORCEUNLOCK", "text"], "WRONGTYPE"),
    (&["RWLOCK.INSPECT", "read", "COUNT", "0"], "ERR"),
];

#[test]
fn bad_input_changes_nothing_inside_a_transaction_or_a_script_either() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    assert_ok(call!(con, "SET", "text", "text"));
    let script = "return redis.pcall(unpack(ARGV))";
    for (words, error) in BAD_INPUT {
        let direct = assert_unchanged(&mut con, |con| assert_error(send(con, words), error));
        let arguments = ["EVAL", script, "0"].into_iter().chain(words.iter().copied());
        let scripted = assert_unchanged(&mut con, |con| assert_error(send(con, arguments), error));
        assert_eq!(direct, scripted);
    }
    let results = assert_unchanged(&mut con, |con| {
        assert_ok(call!(con, "MULTI"));
        for (words, _) in BAD_INPUT {
            assert_eq!(text(send(con, words)), "QUEUED");
        }
        list(call!(con, "EXEC"))
    });
    for ((words, error), result) in BAD_INPUT.iter().zip(results) {
        let Value::ServerError(found) = result else {
            panic!("{words:?} in a transaction: {result:?}");
        };
        let found = error_text(&found.into());
        assert!(found.starts_with(error), "{words:?} in a transaction: {found}");
    }
    // A wrong number of arguments is noticed before anything runs.
    assert_ok(call!(con, "MULTI"));
    assert_eq!(text(call!(con, "RWLOCK.UNLOCK", "read", "me")), "QUEUED");
    assert_error(call!(con, "RWLOCK.RLOCK", "read"), "ERR wrong number of arguments");
    refused!(&mut server.connection(), "ERR syntax", "RWLOCK.RLOCK", "k", "me", 1, "X");
    assert_error(call!(con, "EXEC"), "EXECABORT");
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "read", "me")), 1, "still held");
}

#[test]
fn not_held_says_why() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    let rows: [(&[&str], &str); 10] = [
        (&["RWLOCK.UNLOCK", "free", "me"], "free"),
        (&["RWLOCK.RENEW", "free", "me", "1"], "free"),
        (&["RWLOCK.DOWNGRADE", "free", "me", "1"], "free"),
        (&["RWLOCK.UPGRADE", "free", "me", "1"], "free"),
        (&["RWLOCK.UNLOCK", "read", "me", "WRITE"], "other mode"),
        (&["RWLOCK.UNLOCK", "write", "me", "READ"], "other mode"),
        (&["RWLOCK.DOWNGRADE", "read", "me", "1"], "other mode"),
        (&["RWLOCK.UPGRADE", "write", "me", "1"], "other mode"),
        (&["RWLOCK.UNLOCK", "read", "you"], "held by others"),
        (&["RWLOCK.UNLOCK", "write", "you", "ALL"], "held by others"),
    ];
    for (words, why) in rows {
        let error = assert_unchanged(&mut con, |con| assert_error(send(con, words), "NOTHELD"));
        assert!(error.contains(why), "{words:?}: {error}");
    }
}
