//! What a test may say about the server it wants.

use std::path::{Path, PathBuf};
use std::{env, fmt};

use super::clock::Clock;
use super::engine::default_program;
use super::launch::StartError;
use super::running::Server;

/// The name of the module under test, as MODULE LIST shows it; its library is
/// `lib<name>.so`.
pub(super) const MODULE: &str = "rwlock";

/// Defaults for short-lived servers; what the test asks for comes after and wins.
const DEFAULTS: [(&str, &str); 7] = [
    ("bind", "127.0.0.1"),
    ("protected-mode", "no"),
    ("daemonize", "no"),
    ("appendonly", "no"),
    // Tests may use DEBUG and MODULE.
    ("enable-debug-command", "yes"),
    ("enable-module-command", "yes"),
    // A first replica is served at once.
    ("repl-diskless-sync-delay", "0"),
];

/// Describes a server; [`Builder::start`] starts it.
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing before `start`"]
pub struct Builder {
    pub(super) program: Option<PathBuf>,
    pub(super) module: Option<PathBuf>,
    module_arguments: Vec<String>,
    pub(super) dir: Option<PathBuf>,
    pub(super) tolerated: Vec<String>,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
    saves_rdb: bool,
    directives: Vec<(String, String)>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            program: None,
            module: Some(built_module()),
            module_arguments: Vec::new(),
            dir: None,
            tolerated: Vec::new(),
            environment: Vec::new(),
            saves_rdb: false,
            directives: Vec::new(),
        }
    }

    /// Runs this program instead of the default: what `RWLOCK_SERVER` names,
    /// else `redis-server`, else `valkey-server`. A launcher script must `exec`
    /// the server.
    pub fn engine(mut self, program: impl AsRef<Path>) -> Self {
        self.program = Some(program.as_ref().to_owned());
        self
    }

    /// Loads this library instead of the one built with the tests.
    pub fn module(mut self, library: impl AsRef<Path>) -> Self {
        self.module = Some(library.as_ref().to_owned());
        self
    }

    /// Loads no module.
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// Adds arguments to `loadmodule`: `"policy fifo"`.
    pub fn module_arguments(mut self, arguments: impl fmt::Display) -> Self {
        self.module_arguments.push(arguments.to_string());
        self
    }

    /// Logs every write to the append-only file and syncs it before the reply.
    pub fn aof(self) -> Self {
        self.config("appendonly", "yes").config("appendfsync", "always")
    }

    /// Saves an RDB file at a graceful stop.
    pub fn save_rdb(mut self) -> Self {
        self.saves_rdb = true;
        self
    }

    /// Adds a directive. The value is written as it would be in redis.conf:
    /// quote it if it has spaces and is one argument. Later ones win.
    pub fn config(mut self, name: impl fmt::Display, value: impl fmt::Display) -> Self {
        self.directives.push((name.to_string(), value.to_string()));
        self
    }

    /// Uses this data directory, which stays the caller's: nobody removes it.
    /// To use the directory of another server, stop that one first, and keep it
    /// in scope: its directory goes with it.
    pub fn dir(mut self, path: impl AsRef<Path>) -> Self {
        self.dir = Some(path.as_ref().to_owned());
        self
    }

    /// Goes by this wall clock, instead of the machine's.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    /// Starts as a node of a cluster that has yet to be formed; see
    /// [`Cluster`](crate::Cluster).
    pub fn cluster_enabled(self) -> Self {
        self.config("cluster-enabled", "yes")
            .config("cluster-announce-ip", "127.0.0.1")
            // Long enough for a loaded machine, short enough to test a failover.
            .config("cluster-node-timeout", 5_000)
    }

    /// Starts as a replica; see [`wait_synced`](crate::wait_synced).
    pub fn replica_of(self, primary: &Server) -> Self {
        self.config("replicaof", format!("127.0.0.1 {}", primary.port()))
    }

    /// Does not fail the test for log lines that contain `word`, although they
    /// tell of trouble: for tests that provoke it.
    pub fn tolerate_in_log(mut self, word: impl fmt::Display) -> Self {
        self.tolerated.push(word.to_string());
        self
    }

    /// Starts the server and waits until it serves; panics with the end of its
    /// log if it does not.
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`Builder::start`] for tests in which the server is to refuse.
    pub fn try_start(self) -> Result<Server, StartError> {
        Server::start(self)
    }

    pub(super) fn program(&self) -> PathBuf {
        self.program.clone().unwrap_or_else(default_program)
    }

    /// The configuration file.
    pub(super) fn configuration(&self, port: u16, dir: &Path) -> String {
        let mut lines: Vec<String> =
            DEFAULTS.iter().map(|(name, value)| format!("{name} {value}")).collect();
        lines.push(format!("port {port}"));
        lines.push(format!("dir {}", quoted(dir)));
        lines.push(format!("cluster-config-file nodes-{port}.conf"));
        lines.push(format!("save {}", if self.saves_rdb { "3600 1" } else { "\"\"" }));
        if let Some(library) = &self.module {
            let arguments = self.module_arguments.join(" ");
            lines.push(format!("loadmodule {} {arguments}", quoted(library)));
        }
        lines.extend(self.directives.iter().map(|(name, value)| format!("{name} {value}")));
        lines.join("\n") + "\n"
    }
}

/// The library that was built together with this test executable, which cargo
/// puts beside it.
pub(super) fn built_module() -> PathBuf {
    let executable = env::current_exe().expect("find the test executable");
    let library = format!("{}{MODULE}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    executable.with_file_name(library)
}

fn quoted(path: &Path) -> String {
    let path =
        path.to_str().unwrap_or_else(|| panic!("a configuration cannot name {}", path.display()));
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}
