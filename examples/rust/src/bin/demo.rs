//! Readers and writers in processes of their own, on one lock, as a timeline.

use std::env;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rwlock_example::rwlock::{Locks, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    if let [_, who, start] = &args[..] {
        return take(who, start.parse()?);
    }
    let start = now().to_string();
    let mut processes = Vec::new();
    for who in ["reader-1", "reader-2", "reader-3", "writer-1", "writer-2"] {
        processes.push(
            Command::new(env::current_exe()?)
                .args([who, &start])
                .spawn()?,
        );
    }
    for mut process in processes {
        if !process.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    Ok(())
}

fn take(who: &str, start: u64) -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let locks = Locks::new(who, [url])?;
    let me = locks.owner();
    let options = Options {
        fence: true,
        ..Options::within(Duration::from_secs(5))
    };
    let say = |what: &str| println!("{:5} ms  {who}  {what}", now() - start);
    for _ in 0..3 {
        // So that they do not all ask at once.
        sleep(Duration::from_millis(RandomState::new().hash_one(0) % 200));
        say("asks");
        if who.starts_with("writer") {
            let lock = me.write("demo", options)?;
            say(&format!("          WRITES  (token {})", lock.token()));
            sleep(Duration::from_millis(100)); // stands for the work
            say("          done");
        } else {
            let _lock = me.read("demo", options)?;
            say("     reads");
            sleep(Duration::from_millis(150)); // stands for the work
            say("     done");
        }
    }
    Ok(())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as u64)
}
