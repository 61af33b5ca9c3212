//! A running server.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, ProtocolVersion};

use super::builder::Builder;
use super::data_dir::DataDir;
use super::engine::Engine;
use super::launch::{self, Place, StartError};
use super::port::Port;
use super::{connect, log, process};
use crate::{assert_ok, call, text, wait_until};

/// How long a server may take to stop before that counts as a failure.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// How long a connection waits for a reply: a server that hangs must fail the
/// test, not hang it. `set_read_timeout` of the connection changes it.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A server of a test's own. Dropping it stops it and checks how it fared.
#[derive(Debug)]
pub struct Server {
    plan: Builder,
    /// `None` while it is stopped.
    child: Option<Child>,
    dir: DataDir,
    /// Also kept while it is stopped, so that a restart finds it free.
    port: Port,
}

impl Server {
    /// Describes a server with our module and without persistence.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(super) fn start(plan: Builder) -> Result<Self, StartError> {
        const ATTEMPTS: usize = 20;
        let dir = DataDir::new(plan.dir.as_deref());
        let mut attempt = 0;
        loop {
            attempt += 1;
            let port = Port::claim();
            let place = Place::new(dir.path(), port.number());
            place.write_configuration(&plan);
            match launch::launch(&plan, &place) {
                Ok(child) => return Ok(Self { plan, child: Some(child), dir, port }),
                // Somebody outside the tests took the port in between.
                Err(error) if error.address_in_use() && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &self.child {
            Some(child) => child.id(),
            None => panic!("{} is stopped", self.name()),
        }
    }

    /// Has it been started and not been stopped or killed by the test?
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Everything that the server has written to its log, standard output and
    /// standard error, since the first start.
    pub fn log(&self) -> String {
        self.place().log()
    }

    /// A new connection that speaks RESP2.
    #[track_caller]
    pub fn connection(&self) -> Connection {
        self.connect(ProtocolVersion::RESP2)
    }

    /// A new connection that speaks RESP3.
    #[track_caller]
    pub fn connection_resp3(&self) -> Connection {
        self.connect(ProtocolVersion::RESP3)
    }

    /// A section of INFO.
    #[track_caller]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        connect::info_fields(&text(call!(self.connection(), "INFO", section)))
    }

    /// Which server this is.
    #[track_caller]
    pub fn version(&self) -> Engine {
        Engine::from_info(&self.info("server"))
    }

    /// Writes the RDB file. The server refuses that while a child writes one, and the child that
    /// served a replica may live on for a moment after the replica has everything.
    #[track_caller]
    pub fn save(&self) {
        wait_until("no snapshot is being taken", || {
            self.info("persistence")["rdb_bgsave_in_progress"] == "0"
        });
        assert_ok(call!(self.connection(), "SAVE"));
    }

    /// Ends it with SIGKILL: nothing is saved, nobody is told.
    #[track_caller]
    pub fn kill9(&mut self) {
        match self.child.take() {
            Some(mut child) => process::kill(&mut child),
            None => panic!("{} is stopped", self.name()),
        }
    }

    /// Sends any other signal: SIGSTOP and SIGCONT make a stall.
    #[track_caller]
    pub fn signal(&self, signal: libc::c_int) {
        match &self.child {
            Some(child) => process::signal(child, signal),
            None => panic!("{} is stopped", self.name()),
        }
    }

    /// Stops it gracefully, if it runs; panics if it does not stop or had crashed.
    #[track_caller]
    pub fn stop(&mut self) {
        if let Err(reason) = self.terminate() {
            panic!("{reason}\n{}", self.log_tail());
        }
    }

    /// Starts it again, after stopping it if it runs, on the same port, in the
    /// same directory, with the configuration file as it is: what CONFIG REWRITE
    /// wrote counts.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        match launch::launch(&self.plan, &self.place()) {
            Ok(child) => self.child = Some(child),
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn connect(&self, protocol: ProtocolVersion) -> Connection {
        connect::connect(self.port(), protocol, REPLY_LIMIT)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.name()))
    }

    /// SIGTERM, and SIGKILL if that does not help. The error says what is wrong
    /// with how it ended.
    fn terminate(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let mut status = process::wait_for_exit(&mut child, Duration::ZERO);
        let ended_by_itself = status.is_some();
        if !ended_by_itself {
            status = self.stop_by_signal(&mut child);
        }
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) if ended_by_itself => Err(format!("{} had died: {status}", self.name())),
            Some(status) => Err(format!("{} ended badly: {status}", self.name())),
            None => {
                process::kill(&mut child);
                Err(format!("{} did not stop within {STOP_LIMIT:?} after SIGTERM", self.name()))
            }
        }
    }

    /// SIGTERM, and again each time the server refuses it: until Valkey 9 a replica that
    /// has just received the data does not stop before its new append-only file is written.
    fn stop_by_signal(&self, child: &mut Child) -> Option<ExitStatus> {
        const STEP: Duration = Duration::from_millis(200);
        let refusals = || self.log().matches(log::STOP_REFUSED).count();
        let end = Instant::now() + STOP_LIMIT;
        let mut refused = refusals();
        process::signal(child, libc::SIGTERM);
        loop {
            let status = process::wait_for_exit(child, STEP);
            if status.is_some() || Instant::now() >= end {
                return status;
            }
            let now_refused = refusals();
            if now_refused > refused {
                refused = now_refused;
                process::signal(child, libc::SIGTERM);
            }
        }
    }

    fn place(&self) -> Place {
        Place::new(self.dir.path(), self.port.number())
    }

    fn name(&self) -> String {
        format!("the server on port {}", self.port())
    }

    fn log_tail(&self) -> String {
        log::tail(&self.log(), &self.name())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = self.terminate();
        if thread::panicking() {
            eprintln!("{}", self.log_tail());
            return;
        }
        let log = self.log();
        if let Some(line) = log::first_trouble(&log, &self.plan.tolerated) {
            panic!("{} logged {line:?}\n{}", self.name(), self.log_tail());
        }
        if let Err(reason) = stopped {
            panic!("{reason}\n{}", self.log_tail());
        }
    }
}
