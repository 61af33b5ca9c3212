//! On the server at RWLOCK_URL, which has to be the test's alone: it is demoted for a moment.

use std::sync::Mutex;
use std::thread::{sleep, spawn, JoinHandle};
use std::time::{Duration, Instant};

use redis::{cmd, Client, Connection, FromRedisValue, Value};
use rwlock_example::rwlock::{Error, Options, Owner};

/// The tests share the server's role.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn url() -> String {
    std::env::var("RWLOCK_URL").expect("RWLOCK_URL")
}

fn owner() -> Owner {
    Owner::new([url()]).unwrap()
}

fn server() -> Connection {
    Client::open(url()).unwrap().get_connection().unwrap()
}

fn key(name: &str) -> String {
    format!("rust:{name}:{}", std::process::id())
}

fn soon() -> Options {
    Options::within(Duration::from_secs(20))
}

fn take_and_give_back(key: &str) -> JoinHandle<Result<(), Error>> {
    let key = key.to_owned();
    spawn(move || owner().write(&key, soon())?.unlock())
}

/// A value of INSPECT, RESP2: names and values in turn.
fn inspect(key: &str, name: &str) -> Value {
    let seen: Vec<Value> = cmd("RWLOCK.INSPECT").arg(key).query(&mut server()).unwrap();
    value(&seen, name)
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
        sleep(Duration::from_millis(5));
    }
}

/// The id of the one client that waits for the lock.
fn waiter(key: &str) -> i64 {
    let mut id = 0;
    until("one waits", || {
        let Value::Array(waiters) = inspect(key, "waiters") else {
            panic!("no list")
        };
        if let [Value::Array(waiter)] = &waiters[..] {
            id = i64::from_redis_value(value(waiter, "client")).unwrap();
        }
        waiters.len() == 1
    });
    id
}

fn kill(client: i64) {
    cmd("CLIENT")
        .arg("KILL")
        .arg("ID")
        .arg(client)
        .exec(&mut server())
        .unwrap();
}

#[test]
fn readers_share_and_writers_exclude() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("share");
    let (ann, bob, cat) = (owner(), owner(), owner());
    {
        let _a = ann.read(&key, Options::default()).unwrap();
        let b = bob
            .read(
                &key,
                Options {
                    session: true,
                    ..soon()
                },
            )
            .unwrap();
        assert!(matches!(ann.read(&key, soon()), Err(Error::Reentry)));
        let refused = cat.write(&key, Options::within(Duration::from_millis(20)));
        assert!(matches!(refused, Err(Error::TimedOut)));
        b.unlock().unwrap();
    }
    let mut last = 0;
    for _ in 0..3 {
        let lock = cat
            .write(
                &key,
                Options {
                    fence: true,
                    ..soon()
                },
            )
            .unwrap();
        assert!(lock.token() > last);
        last = lock.token();
    }
}

#[test]
fn a_lease_is_renewed_and_its_loss_is_told() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("lease");
    let ann = owner();
    let lock = ann
        .write(
            &key,
            Options {
                lease: Duration::from_millis(300),
                ..soon()
            },
        )
        .unwrap();
    // Three times as long as the lease.
    sleep(Duration::from_millis(900));
    lock.check().unwrap();
    cmd("RWLOCK.FORCEUNLOCK")
        .arg(&key)
        .exec(&mut server())
        .unwrap();
    until("the loss is told", || lock.is_lost());
    assert!(matches!(lock.check(), Err(Error::NotHeld(_))));
    assert!(matches!(lock.unlock(), Err(Error::NotHeld(_))));
}

#[test]
fn a_session_ends_with_its_connection() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("session");
    let ann = owner();
    let options = Options {
        session: true,
        lease: Duration::from_secs(60),
        ..soon()
    };
    let lock = ann.write(&key, options).unwrap();
    let other = take_and_give_back(&key);
    waiter(&key);
    let Value::Array(holders) = inspect(&key, "holders") else {
        panic!("no list")
    };
    let [Value::Array(holder)] = &holders[..] else {
        panic!("not one holder")
    };
    kill(i64::from_redis_value(value(holder, "session")).unwrap());
    other.join().unwrap().unwrap();
    assert!(matches!(lock.unlock(), Err(Error::NotHeld(_))));
}

#[test]
fn deadlock_is_an_error() {
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
fn a_wait_goes_on_after_the_connection_broke() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("broken");
    let ann = owner();
    let lock = ann.write(&key, soon()).unwrap();
    let other = take_and_give_back(&key);
    let client = waiter(&key);
    kill(client);
    until("it asked again", || waiter(&key) != client);
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn a_wait_goes_on_after_a_failover() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("failover");
    let ann = owner();
    let lock = ann.write(&key, soon()).unwrap();
    let other = take_and_give_back(&key);
    waiter(&key);
    cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(1)
        .exec(&mut server())
        .unwrap();
    // A replica for a while, on which those who ask again are refused.
    sleep(Duration::from_millis(200));
    cmd("REPLICAOF")
        .arg("NO")
        .arg("ONE")
        .exec(&mut server())
        .unwrap();
    waiter(&key);
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}

/// The trap of the asynchronous connections: half a second.
#[test]
fn a_wait_takes_as_long_as_it_takes() {
    let _guard = ONE_AT_A_TIME.lock();
    let key = key("long");
    let ann = owner();
    let lock = ann.write(&key, soon()).unwrap();
    let other = take_and_give_back(&key);
    let client = waiter(&key);
    sleep(Duration::from_secs(3));
    assert_eq!(waiter(&key), client, "it asked again");
    lock.unlock().unwrap();
    other.join().unwrap().unwrap();
}
