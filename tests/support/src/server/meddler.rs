//! A second module, that does something whenever a key event comes:
//! `tests/modules/meddler.c`.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::LazyLock;
use std::{env, fs};

use super::builder::Builder;

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| compile("meddler"));

/// Builds a module of `tests/modules` with the C compiler that cargo links with.
pub(super) fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../modules/{name}.c"));
    let executable = env::current_exe().expect("find the test executable");
    let dir = executable.parent().expect("the executable is in a directory");
    let (library, part) =
        (dir.join(format!("{name}.so")), dir.join(format!("{name}-{}.so", process::id())));
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&part, &source])
        .status()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(status.success(), "{} does not build: {status}", source.display());
    // Other test processes may be at the same.
    fs::rename(&part, &library).expect("put the built module in its place");
    library
}

impl Builder {
    /// Loads a module that calls `command` whenever a key event named `event`
    /// comes, in the middle of the notification.
    pub fn meddler(self, event: &str, command: &str) -> Self {
        self.config("loadmodule", format!("{} {event} {command}", LIBRARY.display()))
    }
}
