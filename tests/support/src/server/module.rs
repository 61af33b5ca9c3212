//! The module in a server that runs.

use redis::Connection;

use super::builder::MODULE;
use super::Server;
use crate::{assert_ok, call, error_text, wait_until};

/// The path of the library that a server has loaded.
pub fn library(server: &Server) -> String {
    let log = server.log();
    let path = log
        .lines()
        .find_map(|line| line.split_once("Module 'rwlock' loaded from "))
        .unwrap_or_else(|| panic!("no module in {log}"));
    path.1.to_owned()
}

/// Unloads the module. A server does not while a timer of the module's runs, and
/// one does for a moment whenever it has something to do.
#[track_caller]
pub fn unload(con: &mut Connection) {
    wait_until("the module is unloaded", || match call!(con, "MODULE", "UNLOAD", MODULE) {
        Err(error) if error_text(&error).contains("timer") => false,
        other => {
            assert_ok(other);
            true
        }
    });
}
