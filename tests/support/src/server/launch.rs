//! Starting a server process and waiting until it serves.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use redis::{ProtocolVersion, RedisResult};

use super::builder::{Builder, MODULE};
use super::{connect, delay, log, process};
use crate::wait::{DEADLINE, POLL};
use crate::{call, list, map, text};

/// Where a server lives: its port, and its files in the data directory. They
/// carry the port, as servers may use one directory after each other.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    port: u16,
}

impl Place {
    pub(super) fn new(dir: &Path, port: u16) -> Self {
        Self {
            // The server looks from its own working directory.
            dir: std::path::absolute(dir).expect("find the working directory"),
            port,
        }
    }

    pub(super) fn write_configuration(&self, plan: &Builder) {
        fs::write(self.configuration_path(), plan.configuration(self.port, &self.dir))
            .expect("write the configuration file");
    }

    /// What the log has; nothing if the server never wrote a line.
    pub(super) fn log(&self) -> String {
        match fs::read(self.log_path()) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => panic!("cannot read {}: {error}", self.log_path().display()),
        }
    }

    fn configuration_path(&self) -> PathBuf {
        self.dir.join(format!("server-{}.conf", self.port))
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join(format!("server-{}.log", self.port))
    }
}

/// Why a server did not start, and what it logged meanwhile.
#[derive(Debug)]
pub struct StartError {
    reason: String,
    log: String,
}

impl StartError {
    /// What the server logged during this start.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Did somebody else take the port?
    pub(super) fn address_in_use(&self) -> bool {
        self.log.contains("Address already in use")
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, log } = self;
        write!(f, "{reason}\n{}", log::tail(log, "the failed start"))
    }
}

impl std::error::Error for StartError {}

/// Starts the server and waits until it is alive, answers PING, has our module
/// (if it was told to load one) and has loaded its data.
pub(super) fn launch(plan: &Builder, place: &Place) -> Result<Child, StartError> {
    let log_before = place.log().len();
    let failure = |reason: String| StartError { reason, log: place.log().split_off(log_before) };
    let program = plan.program();
    let mut child = spawn(plan, &program, place)
        .map_err(|error| failure(format!("cannot run {}: {error}", program.display())))?;
    delay::started(child.id());
    let started = Instant::now();
    loop {
        let last_look = started.elapsed() >= DEADLINE;
        if let Some(status) = process::wait_for_exit(&mut child, Duration::ZERO) {
            return Err(failure(format!("{} ended: {status}", program.display())));
        }
        match not_ready(plan, place.port, child.id()) {
            Ok(None) => return Ok(child),
            reason if last_look => {
                process::kill(&mut child);
                return Err(failure(format!(
                    "{} is not ready after {DEADLINE:?}: {reason:?}",
                    program.display()
                )));
            }
            _ => thread::sleep(POLL),
        }
    }
}

fn spawn(plan: &Builder, program: &Path, place: &Place) -> io::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(place.log_path())?;
    let mut command = Command::new(program);
    command
        .arg(place.configuration_path())
        .envs(plan.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    process::spawn(command)
}

/// What the server still lacks, if anything. An error is a reason as well.
fn not_ready(plan: &Builder, port: u16, pid: u32) -> RedisResult<Option<String>> {
    let mut con = connect::connect(port, ProtocolVersion::RESP2, DEADLINE)?;
    call!(con, "PING")?;
    let mut info =
        |section: &str| call!(con, "INFO", section).map(|reply| connect::info_fields(&text(reply)));
    if info("persistence")?.get("loading").map(String::as_str) != Some("0") {
        return Ok(Some("it is loading".to_owned()));
    }
    if info("server")?.get("process_id") != Some(&pid.to_string()) {
        return Ok(Some(format!(
            "the server on port {port} is not process {pid}, which was started: \
             a launcher script must `exec` the server"
        )));
    }
    if plan.module.is_some() {
        let modules = list(call!(con, "MODULE", "LIST")?);
        if !modules
            .iter()
            .any(|module| map(module).get("name").is_some_and(|name| text(name) == MODULE))
        {
            return Ok(Some(format!("module {MODULE} is not loaded")));
        }
    }
    Ok(None)
}
