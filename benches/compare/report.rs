//! The report: a page of Markdown, its plots beside it.

use crate::machine;
use crate::plot::Plot;
use crate::stats::{number, Rounds};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

#[derive(Default)]
pub struct Report {
    quick: bool,
    layout: String,
    /// How many others wanted a core before the run.
    busy: f64,
    /// The peers that are not installed.
    pub absent: Vec<&'static str>,
    /// Name and version.
    pub server: String,
    pub took: Duration,
    pub figures: Vec<Figure>,
    pub sections: Vec<Section>,
}

/// One that is to be shown, with its marks.
pub struct Figure {
    what: String,
    rounds: Rounds,
    marks: Option<(Sense, f64, f64)>,
}

#[derive(Clone, Copy)]
enum Sense {
    AtLeast,
    Under,
}

impl Figure {
    pub fn new(what: &str, rounds: Rounds) -> Self {
        Self { what: what.into(), rounds, marks: None }
    }

    pub fn at_least(self, least: f64, aim: f64) -> Self {
        Self { marks: Some((Sense::AtLeast, least, aim)), ..self }
    }

    pub fn under(self, most: f64, aim: f64) -> Self {
        Self { marks: Some((Sense::Under, most, aim)), ..self }
    }

    fn row(&self) -> Vec<String> {
        let Some((sense, least, aim)) = self.marks else {
            return vec![self.what.clone(), self.rounds.show(), "".into(), "".into(), "".into()];
        };
        let median = self.rounds.median();
        let (word, reached): (_, fn(f64, f64) -> bool) = match sense {
            Sense::AtLeast => ("at least", |figure, mark| figure >= mark),
            Sense::Under => ("under", |figure, mark| figure <= mark),
        };
        let mark = match (reached(median, least), reached(median, aim)) {
            (true, true) => "aim reached",
            (true, false) => "reached",
            (false, _) => "**missed**",
        };
        let mark = mark.to_owned();
        let (least, aim) = (format!("{word} {}", number(least)), number(aim));
        vec![self.what.clone(), self.rounds.show(), least, aim, mark]
    }
}

/// Some figures of a kind.
pub struct Section {
    title: String,
    text: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    plots: Vec<(String, Plot)>,
}

impl Section {
    pub fn new(title: &str) -> Self {
        let title = title.into();
        Self { title, text: String::new(), head: Vec::new(), rows: Vec::new(), plots: Vec::new() }
    }

    pub fn say(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    pub fn table<const N: usize>(self, head: [&str; N], rows: Vec<Vec<String>>) -> Self {
        Self { head: head.map(str::to_owned).to_vec(), rows, ..self }
    }

    /// A plot that is a file of this name.
    pub fn plot(mut self, name: &str, plot: Plot) -> Self {
        self.plots.push((name.into(), plot));
        self
    }

    /// The table as one sees it in a terminal.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let mut out = String::new();
        for row in [&self.head].into_iter().chain(&self.rows) {
            for (column, cell) in row.iter().enumerate() {
                let _ = write!(out, "  {cell:<0$}", width(column));
            }
            out.push('\n');
        }
        out
    }
}

impl Report {
    pub fn new(quick: bool, layout: String) -> Self {
        Self { quick, layout, busy: machine::busy(), ..Self::default() }
    }

    /// The table of the marks, for a terminal.
    pub fn marks(&self) -> String {
        self.summary().text()
    }

    fn summary(&self) -> Section {
        let rows = self.figures.iter().map(Figure::row).collect();
        Section::new("The figures that matter")
            .say(
                "Ratios are computed per round; shown are the median and (minimum..maximum). Rows \
                 without a limit are for comparison.",
            )
            .table(["figure", "measured", "limit", "aim", ""], rows)
    }

    /// Writes the page, and the plots into the folder of its name.
    pub fn write(&self, page: &Path) {
        let folder = page.with_extension("");
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("report");
        fs::create_dir_all(&folder).expect("make the folder of the plots");
        let mut out = self.heading();
        for section in [&self.summary()].into_iter().chain(&self.sections) {
            let _ = writeln!(out, "\n## {}\n", section.title);
            if !section.text.is_empty() {
                let _ = writeln!(out, "{}\n", section.text);
            }
            let mut row = |cells: &[String]| {
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            };
            row(&section.head);
            row(&section.head.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
            section.rows.iter().for_each(|cells| row(cells));
            for (file, plot) in &section.plots {
                fs::write(folder.join(format!("{file}.svg")), plot.svg()).expect("write a plot");
                let _ = writeln!(out, "\n![{}]({name}/{file}.svg)", plot.title());
            }
        }
        fs::write(page, out).expect("write the report");
    }

    fn heading(&self) -> String {
        let command = if self.quick { "make bench-quick" } else { "make bench" };
        let absent = match self.absent.join(" and ") {
            absent if absent.is_empty() => String::new(),
            absent => format!(
                "\n\n**Not compared, because not installed: {absent}** (`make bench-peers`)."
            ),
        };
        let busy = match self.busy {
            few if few < 0.5 => String::new(),
            many => format!(
                " **The machine was busy (load average {} before the run): these figures only show \
                 what the report looks like.**",
                number(many)
            ),
        };
        let open = "The benchmark writes this page from one run.";
        format!(
            "# Benchmarks\n\n{open}{busy} To repeat it on Debian:\n\n    \
             make bench-peers    # installs PostgreSQL and etcd for comparison\n    \
             make bench          # about 15 minutes: target/bench/report.md\n    \
             make bench-quick    # smaller, under 3 minutes\n\n\
             `SERVER=` names another server, `ONLY=\"pairs tax\"` selects measures; \
             `make bench-docs` writes this page. Leave the machine idle meanwhile.\n\n\
             | | |\n|---|---|\n| command | `{command}`, {} s |\n\
             | server | {}, default settings (no AOF, no replica) unless stated |\n\
             | machine | {} |\n| cores | {} |\n\n\
             One thread generates the load, over TCP on the loopback interface; on a core of its \
             own it never sleeps. Contenders and servers take turns, round by round, on the same \
             cores. Requests are as cheap as each contender allows: EVALSHA, prepared statements. \
             Lua with the same effect and as many calls stands for Redisson's scripts.{absent}\n",
            self.took.as_secs(),
            self.server,
            machine::describe(),
            self.layout,
        )
    }
}
