//! Peers that are no Redis: PostgreSQL's advisory locks and etcd's lock, if
//! they are installed. Each is a process of its own, with its own folder.

use super::{Contender, Talk, Waits};
use crate::load::Protocol;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{chown, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{wait_until, Port};

/// A peer that runs, and goes with its folder when dropped.
pub struct Peer {
    child: Child,
    folder: PathBuf,
    port: Port,
    stop: libc::c_int,
    contend: fn(&Self) -> Contender,
}

impl Peer {
    pub fn contender(&self) -> Contender {
        (self.contend)(self)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: kill touches no memory of this process, and the child has
            // not been waited for, so that the number is still its own.
            unsafe { libc::kill(pid, self.stop) };
        }
        // It may have ended by itself; its folder goes in any case.
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rwlock-bench-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("make a folder");
    folder
}

fn start(mut command: Command, port: &Port) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[cfg(target_os = "linux")]
    // SAFETY: the closure runs between fork and exec; prctl is
    // async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().expect("start a peer");
    let address = (Ipv4Addr::LOCALHOST, port.number());
    wait_until("a peer serves", || TcpStream::connect(address).is_ok());
    child
}

/// `None`: not installed.
pub fn postgres() -> Option<Peer> {
    let bin = postgres_folder()?;
    let folder = folder("postgres");
    let port = Port::claim();
    // It refuses to run as root.
    let user = user_of_postgres();
    if let Some((uid, gid)) = user {
        chown(&folder, Some(uid), Some(gid)).expect("give the folder to its user");
    }
    let command = |program: &str| {
        let mut command = Command::new(bin.join(program));
        command.current_dir(&folder);
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command
    };
    let made = command("initdb")
        .args(["--auth=trust", "--username=bench", "--no-sync", "--no-locale", "-D"])
        .arg(&folder)
        .output()
        .expect("run initdb");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    let mut server = command("postgres");
    server.arg("-D").arg(&folder).args(["-p", &port.number().to_string()]);
    for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=600"]
    {
        server.args(["-c", setting]);
    }
    let child = start(server, &port);
    // SIGINT: close all connections and stop.
    let peer = Peer { child, folder, port, stop: libc::SIGINT, contend: postgres_contender };
    Some(peer)
}

/// The newest that Debian has put beside each other, or the one in the path.
fn postgres_folder() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders
        .into_iter()
        .rev()
        .chain(search_path())
        .find(|bin| ["initdb", "postgres"].iter().all(|program| bin.join(program).is_file()))
}

fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Debian's user for it, if this process is root.
fn user_of_postgres() -> Option<(u32, u32)> {
    let me = fs::metadata("/proc/self").ok()?;
    if me.uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Prepared statements, bound and executed in one message.
fn postgres_contender(peer: &Peer) -> Contender {
    let talk = |lock: &str, _| {
        let key = number_of(lock);
        let prepare =
            |name: &str, function: &str| prepare(name, &format!("SELECT {function}({key})"));
        let execute = |name: &str| execute(name, &[]);
        Talk {
            greet: vec![
                hello(),
                prepare("rlock", "pg_advisory_lock_shared"),
                prepare("wlock", "pg_advisory_lock"),
                prepare("runlock", "pg_advisory_unlock_shared"),
                prepare("wunlock", "pg_advisory_unlock"),
            ],
            take: [execute("rlock"), execute("wlock")],
            give: [execute("runlock"), execute("wunlock")],
            ..Talk::default()
        }
    };
    Contender {
        name: "PostgreSQL advisory lock",
        protocol: Protocol::Postgres,
        port: peer.port.number(),
        pid: peer.pid(),
        waits: Waits::InServer,
        shares: true,
        counted: [&[]; 2],
        // The answer to the bind, and so no error.
        yes: b"2",
        talk: Box::new(talk),
    }
}

/// Opens a session.
pub(super) fn hello() -> Vec<u8> {
    let hello = b"user\0bench\0database\0postgres\0\0";
    let length = u32::try_from(hello.len() + 8).unwrap_or_default();
    [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), hello].concat()
}

pub(super) fn prepare(name: &str, query: &str) -> Vec<u8> {
    [message(b'P', &[name.as_bytes(), b"\0", query.as_bytes(), b"\0\0\0"]), sync()].concat()
}

/// Binds parameters, as text, to a prepared statement and executes it.
pub(super) fn execute(name: &str, parameters: &[&str]) -> Vec<u8> {
    let count = u16::try_from(parameters.len()).unwrap_or_default();
    let mut values = Vec::new();
    for parameter in parameters {
        let length = u32::try_from(parameter.len()).unwrap_or_default();
        values.extend(length.to_be_bytes());
        values.extend(parameter.as_bytes());
    }
    let body: [&[u8]; 6] =
        [b"\0", name.as_bytes(), b"\0\0\0", &count.to_be_bytes(), &values, b"\0\0"];
    [message(b'B', &body), message(b'E', &[b"\0\0\0\0\0"]), sync()].concat()
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    [&[kind][..], &length.to_be_bytes(), &body].concat()
}

fn sync() -> Vec<u8> {
    message(b'S', &[])
}

/// FNV-1a, without the sign.
pub(super) fn number_of(lock: &str) -> u64 {
    let hash = lock.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash >> 1
}

/// `None`: not installed.
pub fn etcd() -> Option<Peer> {
    let program =
        search_path().into_iter().map(|bin| bin.join("etcd")).find(|file| file.is_file())?;
    let folder = folder("etcd");
    let (port, other) = (Port::claim(), Port::claim());
    let url = |port: &Port| format!("http://127.0.0.1:{}", port.number());
    let mut server = Command::new(program);
    server.arg("--data-dir").arg(folder.join("data")).args(["--name", "bench"]);
    for (option, value) in [
        ("--listen-client-urls", url(&port)),
        ("--advertise-client-urls", url(&port)),
        ("--listen-peer-urls", url(&other)),
        ("--initial-advertise-peer-urls", url(&other)),
        ("--initial-cluster", format!("bench={}", url(&other))),
    ] {
        server.args([option, &value]);
    }
    let child = start(server, &port);
    Some(Peer { child, folder, port, stop: libc::SIGTERM, contend: etcd_contender })
}

/// Its lock service, by its own gateway for HTTP and JSON. A client's holds
/// live as long as its lease, which is granted once.
fn etcd_contender(peer: &Peer) -> Contender {
    let talk = |lock: &str, number: usize| {
        // Ids are the client's choice; no two clients of a run have the same.
        let lease = (number_of(lock) & 0xffff_ffff) << 20 | (number as u64 + 1);
        let key = format!("{lock}/{lease:x}");
        let grant = format!(r#"{{"ID":"{lease}","TTL":"600"}}"#);
        let take = format!(r#"{{"name":"{}","lease":"{lease}"}}"#, base64(lock.as_bytes()));
        let give = format!(r#"{{"key":"{}"}}"#, base64(key.as_bytes()));
        let take = post("/v3/lock/lock", &take);
        let give = post("/v3/lock/unlock", &give);
        Talk {
            greet: vec![post("/v3/lease/grant", &grant)],
            take: [take.clone(), take],
            give: [give.clone(), give],
            ..Talk::default()
        }
    };
    Contender {
        name: "etcd lock",
        protocol: Protocol::Http,
        port: peer.port.number(),
        pid: peer.pid(),
        waits: Waits::InServer,
        shares: false,
        counted: [&[]; 2],
        yes: b"HTTP/1.1 200",
        talk: Box::new(talk),
    }
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
