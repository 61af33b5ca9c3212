//! A server of one test's own: RWLOCK_SERVER with RWLOCK_MODULE.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redis::{cmd, Client, Connection, Value};

use crate::{server, until, value};

pub struct Server {
    pub port: u16,
    folder: PathBuf,
    process: Option<Child>,
}

impl Server {
    /// With the module that the other server has.
    pub fn start() -> Self {
        Self::plain(&["--loadmodule", &module()])
    }

    pub fn plain(arguments: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("rwlock-rust-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        drop(free);
        let process = None;
        let mut server = Server {
            port,
            folder,
            process,
        };
        server.run(arguments);
        server
    }

    pub fn run(&mut self, arguments: &[&str]) {
        let server = std::env::var("RWLOCK_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(server);
        command.args(["--port", &self.port.to_string(), "--save", "", "--dir"]);
        command
            .arg(&self.folder)
            .args(arguments)
            .stdout(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        until("the server answers", || {
            let open = Client::open(self.url()).unwrap().get_connection();
            open.is_ok_and(|mut server| cmd("INFO").exec(&mut server).is_ok())
        });
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn connection(&self) -> Connection {
        Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// STOP or CONT: a server that is there and does nothing.
    pub fn signal(&self, name: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        let kill = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(kill.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn module() -> String {
    if let Ok(module) = std::env::var("RWLOCK_MODULE") {
        return module;
    }
    let modules: Vec<Vec<Value>> = cmd("MODULE").arg("LIST").query(&mut server()).unwrap();
    redis::from_redis_value(value(&modules[0], "path")).unwrap()
}
