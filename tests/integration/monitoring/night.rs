//! A muddled night, and what an operator finds in the morning: LOG, HOTLOCKS and LIST tell all of
//! it, as the clients know it.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use support::observe::run;
use support::{
    assert_error, assert_ok, call, int, list, map, text, wait_until, Client, Crowd, Server,
};

type Entry = BTreeMap<String, Value>;

/// A client whose connection has this name.
fn named(server: &Server, name: &str) -> Client {
    let mut client = Client::new(server);
    assert_ok(call!(client.con, "CLIENT", "SETNAME", name));
    client
}

fn maps(reply: &Value) -> Vec<Entry> {
    list(reply).iter().map(map).collect()
}

/// The entry of this event, lock and owner. There is exactly one.
#[track_caller]
fn entry<'e>(log: &'e [Entry], event: &str, key: &str, owner: &str) -> &'e Entry {
    let is_it = |entry: &&Entry| {
        [("event", event), ("key", key), ("owner", owner)]
            .iter()
            .all(|(name, value)| text(&entry[*name]) == *value)
    };
    let mut found = log.iter().filter(is_it);
    let first = found.next().unwrap_or_else(|| panic!("no {event} of {key} by {owner}: {log:?}"));
    assert!(found.next().is_none(), "{event} of {key} by {owner} twice");
    first
}

fn blockers(entry: &Entry) -> String {
    let shown = maps(&entry["blockers"]).into_iter().map(|blocker| {
        let holds = if int(&blocker["holding"]) == 1 { "holds" } else { "waits" };
        format!("{} {} {holds}", text(&blocker["owner"]), text(&blocker["kind"]))
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[test]
fn the_morning_after_a_muddled_night() {
    let settings = "log-slower-than 0 log-holds-over 50";
    let server = Server::builder().module_arguments(settings).start();
    let mut crowd = Crowd::on(&server);
    let mut admin = server.connection();
    let queue = |crowd: &mut Crowd<'_>, expected: &str| {
        wait_until(expected, || crowd.queue("orders") == expected);
    };

    // A job that hangs, and a queue behind it. One gives up, the client of another is killed.
    let mut job = named(&server, "night-job");
    job.send("WLOCK orders job 600000");
    job.granted();
    let mut first = named(&server, "invoices");
    first.send("WLOCK orders ann 600000 BLOCK 0");
    queue(&mut crowd, "ann write");
    let mut killed = named(&server, "export");
    killed.send("RLOCK orders bob 600000 BLOCK 0");
    queue(&mut crowd, "ann write, bob read");
    crowd.waits("WLOCK orders cat 600000 BLOCK 60").refused();
    assert_eq!(int(call!(admin, "CLIENT", "KILL", "ID", killed.id)), 1);
    queue(&mut crowd, "ann write");

    // Two that lock two accounts in opposite order.
    crowd.ok("WLOCK account:1 dan 600000");
    crowd.ok("WLOCK account:2 eve 600000");
    let mut dan = crowd.waits("WLOCK account:2 dan 600000 BLOCK 0");
    assert_error(crowd.run("WLOCK account:1 eve 600000 BLOCK 0"), "DEADLOCK");
    crowd.gives("UNLOCK account:2 eve", 1);
    dan.granted();

    // A lease that runs out, and a session that is killed.
    crowd.ok("WLOCK cache fred 100");
    wait_until("it lapses", || int(crowd.plain("EXISTS cache")) == 0);
    let mut session = named(&server, "robot-7");
    session.send("RLOCK robot gus 600000 SESSION");
    session.granted();
    assert_eq!(int(call!(admin, "CLIENT", "KILL", "ID", session.id)), 1);
    wait_until("its hold is gone", || int(crowd.plain("EXISTS robot")) == 0);

    // An operator frees the job's lock.
    assert_eq!(int(run(&mut admin, "RWLOCK.FORCEUNLOCK orders")), 1);
    first.granted();

    let told = |con: &mut Connection| maps(&run(con, "RWLOCK.LOG COUNT 1000").expect("the log"));
    // The session may have lasted long enough for an entry of its own.
    let is_session =
        |entry: &Entry| text(&entry["event"]) == "hold" && text(&entry["key"]) == "robot";
    let told = |con: &mut Connection| -> Vec<Entry> {
        told(con).into_iter().filter(|entry| !is_session(entry)).collect()
    };
    wait_until("all is told", || told(&mut admin).len() >= 9);
    let log = told(&mut admin);
    let mut events: Vec<_> = log.iter().map(|entry| text(&entry["event"])).collect();
    events.sort();
    assert_eq!(
        events,
        ["deadlock", "disconnect", "forced", "hold", "lapse", "session", "timeout", "wait", "wait"],
    );

    let timeout = entry(&log, "timeout", "orders", "cat");
    assert_eq!(blockers(timeout), "job write holds, ann write waits, bob read waits");
    assert!(int(&timeout["waited"]) >= 60);
    let disconnect = entry(&log, "disconnect", "orders", "bob");
    assert_eq!(blockers(disconnect), "job write holds, ann write waits");
    assert_eq!(int(&disconnect["client"]), killed.id);
    let deadlock = entry(&log, "deadlock", "account:1", "eve");
    assert_eq!(text(&deadlock["detail"]), "eve waits for dan, dan waits for eve");
    assert_eq!(int(&deadlock["client"]), crowd_id(&mut crowd));
    let lapse = entry(&log, "lapse", "cache", "fred");
    assert!(int(&lapse["held"]) >= 80, "{lapse:?}");
    assert_eq!(text(&lapse["kind"]), "write");
    let hold = entry(&log, "hold", "cache", "fred");
    assert!(int(&hold["held"]) >= 80, "{hold:?}");
    let given_back = entry(&log, "session", "robot", "gus");
    assert_eq!(int(&given_back["client"]), session.id);
    let forced = entry(&log, "forced", "orders", "job");
    assert_eq!(text(&forced["detail"]), "by user \"default\"; held by \"job\" (write)");
    assert!(int(&forced["held"]) >= 60);
    let long_wait = entry(&log, "wait", "orders", "ann");
    assert_eq!(blockers(long_wait), "job write holds");
    assert_eq!(text(&long_wait["name"]), "invoices");
    assert_eq!(int(&long_wait["client"]), first.id);
    assert!(int(&long_wait["waited"]) >= 60);
    assert_eq!(blockers(entry(&log, "wait", "account:2", "dan")), "eve write holds");

    // Which lock cost most, and who holds what now.
    let hot = maps(&run(&mut admin, "RWLOCK.HOTLOCKS").expect("hot locks"));
    let figures: BTreeMap<_, _> = hot
        .iter()
        .map(|lock| {
            let figures = ["waits", "timeouts", "deadlocks"].map(|name| int(&lock[name]));
            (text(&lock["key"]), figures)
        })
        .collect();
    assert_eq!(text(&hot[0]["key"]), "orders");
    assert_eq!(figures["orders"], [3, 1, 0]);
    assert_eq!(figures["account:2"], [1, 0, 0]);
    assert_eq!(figures["account:1"], [0, 0, 1]);
    let page = list(run(&mut admin, "RWLOCK.LIST 0 COUNT 100"));
    let mut held: Vec<_> = maps(&page[1]).iter().map(|lock| text(&lock["key"])).collect();
    held.sort();
    assert_eq!(held, ["account:1", "account:2", "orders"]);

    // The server's own log has the deadlock and the operator.
    let log = server.log();
    assert!(log.contains("eve waits for dan, dan waits for eve"), "{log}");
    assert!(log.contains("FORCEUNLOCK of lock \"orders\""), "{log}");
}

fn crowd_id(crowd: &mut Crowd<'_>) -> i64 {
    int(crowd.plain("CLIENT ID"))
}
