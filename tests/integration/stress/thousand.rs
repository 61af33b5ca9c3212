//! A thousand clients that wait for one lock.

use std::fs;
use std::thread;
use std::time::Duration;

use serial_test::serial;

use support::{call, int, map, text, wait_until, Client, Crowd, Server};

const CLIENTS: usize = 1_000;

/// All of them, waiting in this order.
fn all_wait(crowd: &mut Crowd<'_>, clients: &mut [Client]) {
    crowd.ok("WLOCK k h 1000000");
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(&format!("WLOCK k c{at} 1000000 BLOCK 0"));
        // One after the other, so that there is an order.
        wait_until("it waits", || total(crowd) == at + 1);
    }
}

fn total(crowd: &mut Crowd<'_>) -> usize {
    let total = int(&map(crowd.run("INSPECT k COUNT 1"))["waiters_total"]);
    usize::try_from(total).expect("a count")
}

// A thousand connections, and two thousand in the other test: together they would be more
// than many machines let a process open.
#[test]
#[serial]
fn they_are_served_in_the_order_in_which_they_came_each_once() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| crowd.client()).collect();
    all_wait(&mut crowd, &mut clients);
    crowd.gives("UNLOCK k h", 1);
    for (at, client) in clients.iter_mut().enumerate() {
        client.granted();
        assert_eq!(crowd.holders("k"), format!("c{at} write"));
        assert_eq!(total(&mut crowd), CLIENTS - 1 - at);
        client.send(&format!("UNLOCK k c{at}"));
        assert_eq!(client.refused(), 1);
    }
    // Nobody was answered twice.
    for client in &mut clients {
        assert_eq!(text(call!(client.con, "PING")), "PONG");
    }
    crowd.nobody_waits();
    assert_eq!(int(crowd.plain("DBSIZE")), 0);
    assert_eq!(server.info("clients")["blocked_clients"], "0");
}

#[test]
#[serial]
fn they_use_no_more_of_the_server_than_idle_connections() {
    const WINDOWS: usize = 5;
    const WINDOW: Duration = Duration::from_secs(1);
    // Two servers side by side in the same windows of time, so that what else
    // the machine does slows both.
    let servers = [Server::builder().start(), Server::builder().start()];
    let crowds = servers.each_ref().map(Crowd::on);
    let mut clients: Vec<Vec<Client>> =
        crowds.iter().map(|crowd| (0..CLIENTS).map(|_| crowd.client()).collect()).collect();
    let [_, mut crowd] = crowds;
    all_wait(&mut crowd, &mut clients[1]);

    let used = || servers.each_ref().map(|server| cpu_time(server.pid()));
    let mut more: Vec<i128> = (0..WINDOWS)
        .map(|_| {
            let before = used();
            thread::sleep(WINDOW);
            let after = used();
            let [idle, waiting] = [0, 1].map(|at| i128::from(after[at]) - i128::from(before[at]));
            waiting - idle
        })
        .collect();
    // The lower quartile: what a busy machine disturbs is more than half of the windows,
    // what the server does for those that wait is in each.
    more.sort_unstable();
    let allowed = i128::try_from(WINDOW.as_nanos()).expect("a second") / 1_000;
    assert!(more[WINDOWS / 4] <= allowed, "{more:?} ns more in each {WINDOW:?}");
    assert_eq!(total(&mut crowd), CLIENTS);
}

/// The ns of CPU that a process has used.
fn cpu_time(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the threads of the server");
    let used = |task: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(task.expect("a thread").path().join("schedstat"));
        let stat = stat.expect("what a thread has used");
        stat.split(' ').next().and_then(|used| used.parse::<u64>().ok()).expect("a number")
    };
    tasks.map(used).sum()
}
