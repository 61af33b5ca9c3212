//! Reading a server's log.

/// Words that no log of a healthy server contains.
const TROUBLE: [&str; 4] = ["BUG REPORT", "panicked", "Sanitizer", "ASSERTION FAILED"];

/// What the log says of a SIGTERM that is refused because a new append-only file is still
/// being written.
pub(super) const STOP_REFUSED: &str = "Writing initial AOF, can't exit";

/// The first line that tells of a crash, a panic or a sanitizer's finding,
/// leaving out lines with one of the `tolerated` words.
pub(super) fn first_trouble<'log>(log: &'log str, tolerated: &[String]) -> Option<&'log str> {
    log.lines()
        .filter(|line| TROUBLE.iter().any(|word| line.contains(word)))
        .find(|line| !tolerated.iter().any(|word| line.contains(word.as_str())))
}

/// The last 60 lines, under a heading that says whose they are.
pub(super) fn tail(log: &str, of: &str) -> String {
    const LINES: usize = 60;
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    format!("--- end of the log of {of} ---\n{}\n--- ---", last.join("\n"))
}
