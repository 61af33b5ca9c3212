//! `docs/monitoring.md`, the exporter's script and the dashboard name what there
//! is, all of it and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redis::{Connection, Value};

use crate::monitoring::info::FIELDS;
use support::observe::run;
use support::{assert_ok, call, int, list, map, text, wait_until, Server};

fn doc(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first cells of a page's tables, from this heading on until the next of
/// the same level, without their backquotes.
fn cells<'p>(page: &'p str, heading: &str) -> Vec<&'p str> {
    let (_, part) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let level = heading.split(' ').next().unwrap_or_default();
    let part = part.split(&format!("\n{level} ")).next().unwrap_or_default();
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap_or_default()).collect()
}

/// The words that begin with this.
fn words(text: &str, start: &str) -> BTreeSet<String> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_in_word(c))
        .filter(|word| word.starts_with(start))
        .map(str::to_owned)
        .collect()
}

/// A server whose INFO has every field that there is.
fn server_with_all_fields() -> Server {
    Server::builder().config("maxmemory", "200mb").config("maxmemory-policy", "allkeys-lru").start()
}

/// What the exporter's script gives, names and values in turn.
fn script_values(server: &Server) -> BTreeMap<String, String> {
    script_values_on(&mut server.connection())
}

fn script_values_on(con: &mut Connection) -> BTreeMap<String, String> {
    let script = doc("rwlock-exporter.lua");
    let values = list(call!(con, "EVAL_RO", script, 0));
    let texts: Vec<String> = values.into_iter().map(text).collect();
    assert_eq!(texts.len() % 2, 0, "{texts:?}");
    texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// What the script's values are called, after somebody waited for the lock `orders`.
fn script_names(server: &Server) -> BTreeSet<String> {
    wait_in_vain(server, "orders", 20);
    script_values(server).into_keys().collect()
}

/// The same without the names of locks.
fn script_words(server: &Server) -> BTreeSet<String> {
    let names = script_names(server);
    names.iter().filter_map(|name| name.split(':').next()).map(str::to_owned).collect()
}

fn wait_in_vain(server: &Server, lock: &str, ms: u64) {
    let mut con = server.connection();
    call!(con, "RWLOCK.WLOCK", lock, "holder", 60000).expect("granted");
    call!(con, "RWLOCK.WLOCK", lock, "waiter", 60000, "BLOCK", ms).expect("timed out");
}

#[test]
fn every_field_is_documented_and_no_other() {
    let server = server_with_all_fields();
    let info = server.info("rwlock");
    let page = doc("monitoring.md");
    let documented = cells(&page, "## INFO");
    assert_eq!(info.keys().map(String::as_str).collect::<BTreeSet<_>>(), {
        documented.iter().copied().collect()
    });
    assert_eq!(documented.len(), FIELDS.len() + 1, "one is there twice");
    // The page tells of no other, wherever; one lock's last token is a key.
    let scripts = script_words(&server);
    for word in words(&page.replace(":rwlock_fence", ""), "rwlock_") {
        assert!(info.contains_key(&word) || scripts.contains(&word), "{word}");
    }
}

#[test]
fn the_section_begins_as_the_page_shows() {
    let server = Server::builder().start();
    let page = doc("monitoring.md");
    let (_, sample) = page.split_once("\n```text\n# rwlock\n").expect("the sample");
    let (sample, _) = sample.split_once("\n…\n```\n").expect("its end");
    let section = text(call!(server.connection(), "INFO", "rwlock"));
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let begins: Vec<String> = section.lines().skip(1).map(name).collect();
    let shown: Vec<String> = sample.lines().map(name).collect();
    assert_eq!(section.lines().next(), Some("# rwlock"));
    assert_eq!(shown, begins[..shown.len()]);
    assert!(shown.len() > 2 && section.contains(sample.lines().next().unwrap_or_default()));
}

#[test]
fn the_exporters_script_gives_the_figures_as_numbers() {
    let server = server_with_all_fields();
    let mut con = server.connection();
    wait_until("the sweep is over", || server.info("rwlock")["rwlock_sweep"] == "done");
    for line in ["RWLOCK.WLOCK a h 60000", "RWLOCK.WLOCK a h 60000", "RWLOCK.WLOCK a x 1000"] {
        run(&mut con, line).expect(line);
    }
    let info = server.info("rwlock");
    let mut given = script_values(&server);
    for name in FIELDS.iter().filter(|name| !["version", "sweep"].contains(name)) {
        let name = format!("rwlock_{name}");
        assert_eq!(given.remove(&name), info.get(&name).cloned(), "{name}");
    }
    assert_eq!(info["rwlock_acquired"], "2");
    let texts = |running: u8, done: u8, warned: u8| {
        [("sweep_running", running), ("sweep_done", done), ("warned", warned)]
            .map(|(name, value)| (format!("rwlock_{name}"), value.to_string()))
            .into()
    };
    assert_eq!(given, texts(0, 1, 1));
    run(&mut con, "CONFIG SET maxmemory 0").expect("set");
    let mut given = script_values(&server);
    given.retain(|name, _| name == "rwlock_warned");
    assert_eq!(given["rwlock_warned"], "0");
}

/// The script's values of locks, without the beginning of their names.
fn hot_locks(values: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let named = values.iter().filter_map(|(name, value)| {
        Some((name.strip_prefix("rwlock_hot_wait_ms:")?, value.as_str()))
    });
    named.collect()
}

#[test]
fn the_exporters_script_gives_the_ten_locks_that_were_waited_for_longest() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert!(hot_locks(&script_values(&server)).is_empty());
    for number in 0..12 {
        wait_in_vain(&server, &format!("lock:{number}"), 20 + 20 * number);
    }
    let listed = list(call!(con, "RWLOCK.HOTLOCKS"));
    let listed: BTreeMap<String, String> = listed
        .iter()
        .map(map)
        .map(|lock| (format!("db0:{}", text(&lock["key"])), int(&lock["total"]).to_string()))
        .collect();
    let values = script_values(&server);
    let given = hot_locks(&values);
    assert_eq!(given.len(), 10);
    assert!(given.iter().all(|(name, total)| listed[*name] == *total), "{given:?} {listed:?}");

    // What no label may be, or is too long for one.
    let long = format!("b\u{fc}\n{}", "x".repeat(200));
    wait_in_vain(&server, &long, 500);
    let shown = format!("db0:b\\xc3\\xbc\\x0a{}...", "x".repeat(96));
    assert!(hot_locks(&script_values(&server)).contains_key(shown.as_str()));
}

/// It gives what its user may know.
#[test]
fn the_exporters_script_needs_no_right_to_list_locks() {
    let server = Server::builder().start();
    wait_in_vain(&server, "orders", 20);
    let mut admin = server.connection();
    let mut values_of = |rules: &str| {
        let set = format!("ACL SETUSER exporter reset on >secret +info +eval +eval_ro {rules}");
        run(&mut admin, &set).expect("set");
        let mut con = server.connection();
        assert_ok(call!(con, "AUTH", "exporter", "secret"));
        script_values_on(&mut con)
    };
    for rules in ["", "+rwlock.hotlocks", "+rwlock.hotlocks ~other"] {
        let values = values_of(rules);
        assert_eq!(values["rwlock_timeouts"], "1", "{rules}");
        assert!(hot_locks(&values).is_empty(), "{rules}");
    }
    let values = values_of("+rwlock.hotlocks %R~*");
    assert_eq!(hot_locks(&values).into_keys().collect::<Vec<_>>(), ["db0:orders"]);
}

#[test]
fn the_page_names_every_metric_of_the_script() {
    let server = Server::builder().start();
    let page = doc("monitoring.md");
    for name in script_names(&server) {
        let field = server.info("rwlock").contains_key(&name);
        let row = format!("| `redis_script_values{{key=\"{name}\"}}` |");
        assert!(field || page.contains(&row), "{name} is no field, and has no row");
    }
}

/// Every expression and query of the dashboard, read by the server's own JSON
/// reader.
fn expressions(server: &Server) -> Vec<String> {
    const WALK: &str = "local found = {}
        local function walk(node, name)
            if type(node) == 'table' then
                for key, value in pairs(node) do walk(value, key) end
            elseif (name == 'expr' or name == 'definition') and type(node) == 'string' then
                found[#found + 1] = node
            end
        end
        walk(cjson.decode(ARGV[1]))
        return found";
    let dashboard = doc("grafana-dashboard.json");
    list(call!(server.connection(), "EVAL", WALK, 0, dashboard)).into_iter().map(text).collect()
}

#[test]
fn the_dashboard_is_one_and_shows_what_the_page_lists() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let dashboard = doc("grafana-dashboard.json");
    let look = "local board = cjson.decode(ARGV[1])
        local ids, panels = {}, 0
        for _, panel in ipairs(board.panels) do
            if not panel.title or not panel.gridPos or ids[panel.id] then return {-1, panel.id} end
            ids[panel.id] = true
            if panel.type ~= 'row' then
                if #panel.targets == 0 or panel.description == '' then return {-2, panel.id} end
                panels = panels + 1
            end
        end
        return {board.schemaVersion, panels}";
    let told = list(call!(con, "EVAL", look, 0, dashboard));
    assert!(matches!(told[..], [Value::Int(30..), Value::Int(10..)]), "{told:?}");

    let page = doc("monitoring.md");
    let metrics: BTreeSet<String> =
        cells(&page, "## Prometheus").iter().flat_map(|cell| words(cell, "redis_")).collect();
    assert!(metrics.len() > 10, "{metrics:?}");
    let known = script_words(&server);
    let (mut shown, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for expression in expressions(&server) {
        shown.extend(words(&expression, "redis_"));
        keys.extend(words(&expression, "rwlock_"));
    }
    assert!(shown.is_subset(&metrics), "{:?}", shown.difference(&metrics));
    assert!(keys.is_subset(&known), "{:?}", keys.difference(&known));
    assert!(keys.contains("rwlock_hot_wait_ms"), "{keys:?}");
    // Whatever grows is worth a look, and so is what is now.
    for name in FIELDS.iter().filter(|name| !["version", "sweep"].contains(name)) {
        assert!(keys.contains(&format!("rwlock_{name}")), "{name} is not shown");
    }
}

#[test]
fn alerts_are_made_of_what_there_is() {
    let server = Server::builder().start();
    let page = doc("monitoring.md");
    let alerts = doc("alerts.yml");
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 8, "{names:?}");
    assert_eq!(names, cells(&page, "## Alerts"), "the page lists the same, in the same order");
    let metrics: BTreeSet<String> =
        cells(&page, "## Prometheus").iter().flat_map(|cell| words(cell, "redis_")).collect();
    let used = words(&alerts.replace("redis_exporter", ""), "redis_");
    assert!(used.is_subset(&metrics), "{:?}", used.difference(&metrics));
    let known = script_words(&server);
    let keys = words(&alerts, "rwlock_");
    assert!(keys.len() >= 8 && keys.is_subset(&known), "{:?}", keys.difference(&known));
    // Commands, as the server names them.
    for part in page.split("cmd=\"").skip(1) {
        let name = part.split('"').next().unwrap_or_default();
        let info = list(call!(server.connection(), "COMMAND", "INFO", name));
        assert!(matches!(info[..], [Value::Array(_)]), "{name}: {info:?}");
    }
}

/// What the page says of the server's own figures.
#[test]
fn the_server_counts_calls_and_errors_of_the_module() {
    let server = Server::builder().start();
    let mut crowd = support::Crowd::on(&server);
    crowd.ok("WLOCK a h 60000");
    crowd.refused("WLOCK a w 60000");
    // No failure is what was refused, nor what was refused after waiting.
    crowd.refused("WLOCK a w 60000 BLOCK 20");
    crowd.ok("WLOCK b h 60000");
    crowd.run("UNLOCK c h").expect_err("NOTHELD");
    let stats = server.info("commandstats");
    let count = |name: &str, field: &str| -> u64 {
        let stats = &stats[&format!("cmdstat_rwlock.{name}")];
        let value = stats.split(',').find_map(|part| part.strip_prefix(&format!("{field}=")));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {stats}"))
    };
    assert_eq!([count("wlock", "calls"), count("wlock", "failed_calls")], [4, 0]);
    assert_eq!([count("unlock", "calls"), count("unlock", "failed_calls")], [1, 1]);
    assert_eq!(server.info("errorstats")["errorstat_NOTHELD"], "count=1");
}

/// The examples' test cannot compare CLIENT LIST: each of its numbers varies.
#[test]
fn a_line_of_client_list_begins_as_the_page_shows() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "CLIENT", "SETNAME", "nightly-report"));
    let id = int(call!(con, "CLIENT", "ID"));
    let told = text(call!(con, "CLIENT", "LIST", "ID", id));
    let page = doc("monitoring.md");
    let (_, line) = page.split_once("\n    redis> CLIENT LIST ID 7\n    ").expect("the command");
    let shown = line.split(" …\n").next().unwrap_or_default();
    let names = |line: &str| -> Vec<String> {
        line.split(' ').filter_map(|field| field.split('=').next()).map(str::to_owned).collect()
    };
    let shown_names = names(shown);
    assert!(shown_names.len() > 5 && names(&told).starts_with(&shown_names), "{told}");
    for line in [shown, &told] {
        assert!(
            line.contains(" addr=127.0.0.1:") && line.contains(" name=nightly-report "),
            "{line}"
        );
    }
}
