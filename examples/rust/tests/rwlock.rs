//! On the server at RWLOCK_URL, which has to be the test's alone: it is demoted for a moment. "row"
//! is the row in the table of examples/README.md. Row 13 is in src/rwlock.rs: that program does not
//! compile.

mod server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn, JoinHandle};
use std::time::{Duration, Instant};

use redis::{cmd, Client, Connection, FromRedisValue, Value};
use rwlock_example::rwlock::{Error, Locks, Options, Owner, Wait};
use server::{module, Server};

/// The tests share the server's role.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn url() -> String {
    std::env::var("RWLOCK_URL").expect("RWLOCK_URL")
}

fn locks() -> Locks {
    Locks::new("the test\n", [url()]).unwrap()
}

fn owner() -> Owner {
    locks().owner()
}

fn server() -> Connection {
    Client::open(url()).unwrap().get_connection().unwrap()
}

fn key(name: &str) -> String {
    format!("rust:{name}:{}", std::process::id())
}

fn now() -> Options {
    Options::default()
}

fn soon() -> Options {
    Options::within(Duration::from_secs(20))
}

/// A plain lease that the thread of `Locks` has to renew soon.
fn leased() -> Options {
    Options {
        session: false,
        lease: Duration::from_millis(300),
        ..Options::default()
    }
}

fn take_and_give_back(key: &str, options: Options) -> JoinHandle<Result<(), Error>> {
    let key = key.to_owned();
    spawn(move || owner().write(&key, options)?.unlock())
}

/// A value of INSPECT, RESP2: names and values in turn.
fn inspect(key: &str, name: &str) -> Value {
    let seen: Vec<Value> = cmd("RWLOCK.INSPECT").arg(key).query(&mut server()).unwrap();
    value(&seen, name)
}

fn mode(key: &str) -> String {
    String::from_redis_value(inspect(key, "mode")).unwrap()
}

/// A value of the only holder or waiter.
fn of_one<T: FromRedisValue>(key: &str, list: &str, name: &str) -> T {
    let Value::Array(entries) = inspect(key, list) else {
        panic!("no list")
    };
    let [Value::Array(entry)] = &entries[..] else {
        panic!("not one of the {list}")
    };
    T::from_redis_value(value(entry, name)).ok().unwrap()
}

fn value(map: &[Value], name: &str) -> Value {
    let pair = map
        .chunks(2)
        .find(|pair| String::from_redis_value(pair[0].clone()).unwrap() == name);
    pair.unwrap()[1].clone()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited too long until {what}"
        );
        sleep(Duration::from_millis(5)); // between two looks
    }
}

/// The id of the one client that waits for the lock.
fn waiter(key: &str) -> i64 {
    until("one waits", || {
        inspect(key, "waiters_total") == Value::Int(1)
    });
    of_one(key, "waiters", "client")
}

fn kill(client: i64) {
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(client);
    kill.exec(&mut server()).unwrap();
}

fn force_unlock(key: &str) {
    cmd("RWLOCK.FORCEUNLOCK")
        .arg(key)
        .exec(&mut server())
        .unwrap();
}

fn replica_of(server: &mut Connection, host: &str, port: &str) {
    cmd("REPLICAOF").arg(host).arg(port).exec(server).unwrap();
}

#[test]
fn row_1_without_a_wait_it_tries_once_and_forever_is_said() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("wait");
    let (ann, bob) = (owner(), owner());
    let lock = ann.write(&key, now()).unwrap();
    let start = Instant::now();
    for options in [now(), Options::within(Duration::ZERO)] {
        let refused = bob.write(&key, options);
        assert!(matches!(refused, Err(Error::TimedOut { .. })));
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    let forever = Options {
        wait: Wait::Forever,
        ..now()
    };
    let other = take_and_give_back(&key, forever);
    waiter(&key);
    assert_eq!(of_one::<i64>(&key, "waiters", "timeout"), 0);
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn row_2_a_session_is_the_default_and_a_lease_is_renewed() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("session");
    let ann = owner();
    let lock = ann.write(&key, now()).unwrap();
    assert!(of_one::<i64>(&key, "holders", "session") > 0);
    lock.unlock().unwrap();
    let lock = ann.write(&key, leased()).unwrap();
    assert_eq!(of_one::<i64>(&key, "holders", "session"), 0);
    // Three times as long as the lease.
    sleep(Duration::from_millis(900));
    lock.check().unwrap();
    lock.unlock().unwrap();
    assert_eq!(mode(&key), "free");
}

#[test]
fn row_3_the_same_owner_enters_again() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("again");
    let (ann, bob) = (owner(), owner());
    let outer = ann.write(&key, now()).unwrap();
    {
        let _inner = ann.write(&key, now()).unwrap();
        let _reader = ann.read(&key, now()).unwrap();
        assert!(bob.read(&key, now()).is_err());
    }
    assert_eq!(mode(&key), "write");
    let fenced = Options {
        fence: true,
        ..now()
    };
    assert!(matches!(ann.write(&key, fenced), Err(Error::Misuse(_))));
    outer.unlock().unwrap();
    assert_eq!(mode(&key), "free");
    let _reader = ann.read(&key, now()).unwrap();
    // It would wait for itself.
    assert!(matches!(ann.write(&key, soon()), Err(Error::Deadlock(_))));
}

#[test]
fn row_4_upgrade_and_downgrade() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("upgrade");
    let (ann, bob) = (owner(), owner());
    let mut lock = ann.read(&key, now()).unwrap();
    let fenced = Options {
        fence: true,
        ..now()
    };
    lock.upgrade(fenced).unwrap();
    assert!(lock.token() > 0);
    assert_eq!(mode(&key), "write");
    lock.downgrade().unwrap();
    assert_eq!(mode(&key), "read");
    bob.read(&key, now()).unwrap().unlock().unwrap();
    assert!(matches!(lock.downgrade(), Err(Error::Misuse(_))));
    lock.unlock().unwrap();
    assert_eq!(mode(&key), "free");

    for options in [now(), leased()] {
        let (held, told) = channel();
        let other = spawn({
            let key = key.clone();
            move || {
                let bob = owner();
                let lock = bob.read(&key, options)?;
                held.send(()).unwrap();
                waiter(&key);
                lock.unlock()
            }
        });
        told.recv().unwrap();
        let mut lock = ann.read(&key, options).unwrap();
        assert!(matches!(lock.upgrade(now()), Err(Error::TimedOut { .. })));
        lock.check().unwrap();
        lock.upgrade(soon()).unwrap();
        other.join().unwrap().unwrap();
        assert_eq!(mode(&key), "write");
        lock.unlock().unwrap();
        assert_eq!(mode(&key), "free");
    }
}

/// What is left decides: the one who reads on keeps a read hold.
#[test]
fn row_4_the_last_writer_of_an_owner_downgrades() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("downgrade");
    let ann = owner();
    let writer = ann.write(&key, now()).unwrap();
    let mut reader = ann.read(&key, now()).unwrap();
    writer.unlock().unwrap();
    assert_eq!(mode(&key), "read");
    reader.upgrade(now()).unwrap();
    assert_eq!(mode(&key), "write");
    reader.unlock().unwrap();
    assert_eq!(mode(&key), "free");
}

#[test]
fn row_5_several_locks_in_one_step() {
    let _guard = ONE_AT_A_TIME.lock();
    let keys: Vec<String> = (1..=4).map(|i| key(&format!("all{i}"))).collect();
    let [a, b, c, d] = [&keys[0], &keys[1], &keys[2], &keys[3]].map(String::as_str);
    let (ann, bob) = (owner(), owner());
    let fenced = Options {
        fence: true,
        ..soon()
    };
    let lock = ann.all(&[c], &[a, b], fenced).unwrap();
    let tokens = lock.tokens();
    assert!(tokens.len() == 2 && tokens[a] > 0 && tokens[b] > 0);
    lock.check().unwrap();
    ann.write(a, now()).unwrap().unlock().unwrap();
    bob.read(c, now()).unwrap().unlock().unwrap();
    let refused = bob.all(&[], &[d, a], now()).err();
    assert!(matches!(refused, Some(Error::TimedOut { .. })));
    assert_eq!(mode(d), "free"); // it took none
    lock.unlock().unwrap();
    assert!([a, b, c].iter().all(|key| mode(key) == "free"));

    let lock = ann.all(&[], &[a, b], leased()).unwrap();
    sleep(Duration::from_millis(900)); // three times as long as the lease
    lock.check().unwrap();
    force_unlock(a);
    until("the loss is told", || lock.is_lost());
    assert!(matches!(lock.unlock(), Err(Error::NotHeld(_))));
    until("the lease ends", || mode(b) == "free");
}

#[test]
fn row_5_a_lock_that_is_named_twice_is_refused() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("twice");
    let ann = owner();
    let refused = || {
        for (reads, writes) in [
            (&["other", &*key, &*key][..], &[][..]),
            (&[&*key], &[&*key]),
        ] {
            let error = ann.all(reads, writes, soon()).err().unwrap();
            assert!(matches!(error, Error::Misuse(_)));
            assert_eq!(error.to_string(), format!("lock {key} is named twice"));
        }
    };
    refused();
    let lock = ann.write(&key, now()).unwrap();
    refused();
    lock.unlock().unwrap();
    assert_eq!(mode(&key), "free");
}

/// Row 6: the guard ends with its block; unlock ends it before, and says whether it was lost.
#[test]
fn row_6_unlock_beside_the_block() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("block");
    let ann = owner();
    {
        let _lock = ann.write(&key, now()).unwrap();
        assert_eq!(mode(&key), "write");
    }
    assert_eq!(mode(&key), "free");
    let lock = ann.write(&key, now()).unwrap();
    lock.unlock().unwrap();
    assert_eq!(mode(&key), "free");
}

#[test]
fn row_7_the_server_shows_the_name() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("name");
    let ann = owner();
    let lock = ann.write(&key, now()).unwrap();
    let shown: String = of_one(&key, "holders", "owner");
    assert!(shown.starts_with("the-test-@"), "{shown}");
    assert!(shown.len() <= 200, "{shown}");
    let clients: String = cmd("CLIENT").arg("LIST").query(&mut server()).unwrap();
    let session: i64 = of_one(&key, "holders", "session");
    let mut lines = clients.lines();
    let line = lines.find(|line| line.starts_with(&format!("id={session} ")));
    assert!(line.unwrap().contains(" name=the-test-@"), "{clients}");
    lock.unlock().unwrap();

    let unnamed = Locks::new("", [url()]).unwrap().owner();
    let _lock = unnamed.write(&key, now()).unwrap();
    let shown: String = of_one(&key, "holders", "owner");
    assert!(shown.starts_with("rwlock-"), "{shown}"); // the name of this test's file
}

#[test]
fn row_8_a_lost_session_is_told_within_a_second() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("killed");
    let ann = owner();
    let lock = ann.write(&key, soon()).unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&told);
    lock.on_lost(move || flag.store(true, Ordering::Relaxed));
    let other = take_and_give_back(&key, soon());
    waiter(&key);
    let start = Instant::now();
    kill(of_one(&key, "holders", "session"));
    until("the callback runs", || told.load(Ordering::Relaxed));
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(lock.is_lost());
    other.join().unwrap().unwrap();
    assert!(matches!(lock.check(), Err(Error::NotHeld(_))));
    assert!(matches!(lock.unlock(), Err(Error::NotHeld(_))));
}

#[test]
fn row_8_a_lost_lease_is_told() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("lease");
    let ann = owner();
    let lock = ann.write(&key, leased()).unwrap();
    let (lost, told) = channel();
    let lost = Mutex::new(lost);
    lock.on_lost(move || lost.lock().unwrap().send(()).unwrap());
    force_unlock(&key);
    told.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(lock.is_lost());
    assert!(matches!(lock.check(), Err(Error::NotHeld(_))));
    // The lost hold is still entered.
    assert!(matches!(ann.write(&key, now()), Err(Error::NotHeld(_))));
    assert!(matches!(lock.unlock(), Err(Error::NotHeld(_))));
    ann.write(&key, now()).unwrap().unlock().unwrap();
}

#[test]
fn row_9_after_a_restart_the_old_holder_knows() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("restart");
    let mut server = Server::start();
    let locks = Locks::new("", [server.url()]).unwrap();
    let (ann, bob) = (locks.owner(), locks.owner());
    let lock = ann.write(&key, now()).unwrap();
    server.kill();
    server.run(&["--loadmodule", &module()]);
    let next = bob.write(&key, soon()).unwrap();
    assert!(lock.is_lost());
    next.unlock().unwrap();
    assert!(matches!(lock.unlock(), Err(Error::NotHeld(_))));
}

#[test]
fn row_10_deadlines_hold_during_a_failover() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("deadline");
    let mut server = Server::start();
    let ann = Locks::new("", [server.url()]).unwrap().owner();
    let times_out = |code: Option<&str>| {
        let start = Instant::now();
        let error = ann.write(&key, Options::within(Duration::from_secs(1)));
        let took = start.elapsed().as_millis();
        assert!((1000..2000).contains(&took), "{took} ms");
        match error.err() {
            Some(Error::TimedOut {
                held_ms: None,
                why: Some(why),
                ..
            }) => {
                assert!(code.is_none() || why.code() == code, "{why}")
            }
            other => panic!("{other:?}"),
        }
    };
    ann.write(&key, now()).unwrap().unlock().unwrap();
    let mut control = server.connection();
    replica_of(&mut control, "127.0.0.1", "1");
    times_out(Some("READONLY"));
    let refused = ann.write(&key, now());
    assert!(matches!(refused, Err(Error::TimedOut { .. })));
    replica_of(&mut control, "NO", "ONE");

    server.signal("STOP");
    times_out(None);
    server.signal("CONT");

    let fill = "for i = 1, 20000 do redis.call('SET', 'key' .. i, 'value') end";
    cmd("EVAL").arg(fill).arg(0).exec(&mut control).unwrap();
    cmd("SAVE").exec(&mut control).unwrap();
    server.kill();
    times_out(None);
    let mut slow = vec!["--loadmodule".to_owned(), module()];
    slow.extend(["--key-load-delay", "1000"].map(str::to_owned));
    slow.extend(["--loading-process-events-interval-bytes", "1024"].map(str::to_owned));
    server.run(&slow.iter().map(String::as_str).collect::<Vec<_>>());
    times_out(Some("LOADING"));
}

#[test]
fn row_11_a_wrong_port_fails_at_once() {
    let _guard = ONE_AT_A_TIME.lock();
    let nobody = Locks::new("", ["redis://127.0.0.1:1"]).unwrap().owner();
    let forever = Options {
        wait: Wait::Forever,
        ..now()
    };
    for options in [now(), soon(), forever] {
        let start = Instant::now();
        let Err(Error::Redis(error)) = nobody.write("nothing", options) else {
            panic!("it has to be the error of the connection")
        };
        assert!(error.is_connection_refusal());
        assert!(start.elapsed() < Duration::from_secs(1));
    }
    // Of several addresses the first may be down.
    let second = Locks::new("", ["redis://127.0.0.1:1".to_owned(), url()]).unwrap();
    let ann = second.owner();
    ann.write(&key("second"), now()).unwrap().unlock().unwrap();
}

#[test]
fn row_12_after_the_last_owner_no_thread_and_no_connection_is_left() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("closed");
    let name = "row12";
    let locks = Locks::new(name, [url()]).unwrap();
    let ann = locks.owner();
    drop(locks);
    let lock = ann.write(&key, leased()).unwrap();
    assert!(keepers() > 0);
    drop(lock);
    drop(ann);
    assert_eq!(keepers(), 0);
    until("its connections are closed", || {
        let clients: String = cmd("CLIENT").arg("LIST").query(&mut server()).unwrap();
        !clients.contains(&format!(" name={name}@"))
    });
    assert_eq!(mode(&key), "free");
}

/// The threads of all `Locks` of this process.
fn keepers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default()
    };
    threads
        .map(name)
        .filter(|name| name == "rwlock-keeper\n")
        .count()
}

#[test]
fn row_14_a_server_without_the_module() {
    let _guard = ONE_AT_A_TIME.lock();
    let server = Server::plain(&[]);
    let ann = Locks::new("", [server.url()]).unwrap().owner();
    let error = ann.write("nothing", soon()).err().unwrap();
    assert!(matches!(error, Error::NotLoaded(_)));
    let told = error.to_string();
    assert!(told.contains("the rwlock module is not loaded"), "{told}");
}

#[test]
fn row_15_how_long_the_lock_is_still_held() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("left");
    let (ann, bob) = (owner(), owner());
    let minute = Options {
        lease: Duration::from_secs(60),
        ..now()
    };
    let _lock = ann.write(&key, minute).unwrap();
    let error = bob.write(&key, now()).err().unwrap();
    let told = error.to_string();
    let Error::TimedOut {
        held_ms: Some(ms), ..
    } = error
    else {
        panic!("{told}")
    };
    assert!((50_001..=60_000).contains(&ms), "{told}");
    assert!(
        told.contains(&format!("ends in {ms} ms, unless it is renewed")),
        "{told}"
    );
    cmd("PERSIST").arg(&key).exec(&mut server()).unwrap();
    let error = bob.write(&key, now()).err().unwrap();
    assert!(error.to_string().contains("without expiry"));
    assert!(matches!(
        error,
        Error::TimedOut {
            held_ms: Some(-1),
            ..
        }
    ));
}

#[test]
fn row_16_deadlock_is_an_error() {
    let _guard = ONE_AT_A_TIME.lock();
    let (one, two) = (key("one"), key("two"));
    let ann = owner();
    let lock = ann.write(&one, soon()).unwrap();
    let other = spawn({
        let (one, two) = (one.clone(), two.clone());
        move || {
            let bob = owner();
            let second = bob.write(&two, soon())?;
            bob.write(&one, soon())?.unlock()?;
            second.unlock()
        }
    });
    waiter(&one);
    assert!(matches!(ann.write(&two, soon()), Err(Error::Deadlock(_))));
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn row_17_readers_share_and_tokens_increase() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("share");
    let (ann, bob, cat) = (owner(), owner(), owner());
    {
        let a = ann.read(&key, now()).unwrap();
        let _b = bob.read(&key, leased()).unwrap();
        let refused = cat.write(&key, Options::within(Duration::from_millis(20)));
        assert!(matches!(refused, Err(Error::TimedOut { .. })));
        assert_eq!(a.token(), 0);
    }
    let fenced = Options {
        fence: true,
        ..soon()
    };
    let mut last = 0;
    for _ in 0..3 {
        let lock = cat.write(&key, fenced).unwrap();
        assert!(lock.token() > last);
        last = lock.token();
    }
}

#[test]
fn a_wait_goes_on_after_the_connection_broke() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("broken");
    let ann = owner();
    let lock = ann.write(&key, now()).unwrap();
    let other = take_and_give_back(&key, soon());
    let client = waiter(&key);
    kill(client);
    until("it asked again", || waiter(&key) != client);
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn a_connection_that_was_closed_while_idle_costs_no_try() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("idle");
    let ann = owner();
    ann.write(&key, now()).unwrap().unlock().unwrap();
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal");
    kill.exec(&mut server()).unwrap();
    ann.write(&key, now()).unwrap().unlock().unwrap();
}

#[test]
fn a_wait_and_a_lease_outlive_a_failover() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("failover");
    let ann = owner();
    let long = Options {
        lease: Duration::from_secs(30),
        ..leased()
    };
    let lock = ann.write(&key, long).unwrap();
    let other = take_and_give_back(&key, soon());
    waiter(&key);
    replica_of(&mut server(), "127.0.0.1", "1");
    // For so long the server answers READONLY to those who ask again.
    sleep(Duration::from_millis(200));
    replica_of(&mut server(), "NO", "ONE");
    waiter(&key);
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}

/// The trap of the asynchronous connections: they give up after half a second.
#[test]
fn a_wait_takes_as_long_as_it_takes() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("long");
    let ann = owner();
    let lock = ann.write(&key, now()).unwrap();
    let other = take_and_give_back(&key, soon());
    let client = waiter(&key);
    // Longer than the time-outs that the library has anywhere.
    sleep(Duration::from_secs(3));
    assert_eq!(waiter(&key), client, "it asked again");
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}
