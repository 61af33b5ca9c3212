//! A test in a process of its own.

use std::env;
use std::process::Command;

/// This test program, told to run one of its tests alone. `module` is what `module_path!()`
/// says beside that test.
pub fn in_own_process(module: &str, test: &str) -> Command {
    // The names of tests are without that of the program.
    let (_, folders) = module.split_once("::").expect("a module below the root");
    let mut command = Command::new(env::current_exe().expect("find the test executable"));
    command.args(["--exact", "--nocapture", &format!("{folders}::{test}")]);
    command
}
