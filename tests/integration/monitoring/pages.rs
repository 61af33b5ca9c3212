//! `docs/monitoring.md`, the exporter's script and the dashboard name what there
//! is, all of it and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redis::Value;

use crate::monitoring::info::FIELDS;
use support::observe::run;
use support::{call, list, text, wait_until, Server};

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
    let script = doc("rwlock-exporter.lua");
    let values = list(call!(server.connection(), "EVAL_RO", script, 0));
    let texts: Vec<String> = values.into_iter().map(text).collect();
    texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
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
    let scripts: BTreeSet<String> = script_values(&server).into_keys().collect();
    for word in words(&page.replace(":rwlock_fence", ""), "rwlock_") {
        assert!(info.contains_key(&word) || scripts.contains(&word), "{word}");
    }
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

#[test]
fn the_page_names_every_metric_of_the_script() {
    let server = Server::builder().start();
    let page = doc("monitoring.md");
    for name in script_values(&server).into_keys() {
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
    let values = script_values(&server);
    let (mut shown, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for expression in expressions(&server) {
        shown.extend(words(&expression, "redis_"));
        keys.extend(words(&expression, "rwlock_"));
    }
    assert!(shown.is_subset(&metrics), "{:?}", shown.difference(&metrics));
    let known = values.keys().cloned().collect();
    assert!(keys.is_subset(&known), "{:?}", keys.difference(&known));
    // Whatever grows is worth a look, and so is what is now.
    for name in FIELDS.iter().filter(|name| !["version", "sweep"].contains(name)) {
        assert!(keys.contains(&format!("rwlock_{name}")), "{name} is not shown");
    }
}

#[test]
fn alerts_are_made_of_what_there_is() {
    let server = Server::builder().start();
    let page = doc("monitoring.md");
    let (_, alerts) = page.split_once("\n## Alerts\n").expect("alerts");
    let alerts = alerts.split("\n## ").next().unwrap_or_default();
    let metrics: BTreeSet<String> =
        cells(&page, "## Prometheus").iter().flat_map(|cell| words(cell, "redis_")).collect();
    let used = words(alerts, "redis_");
    assert!(used.is_subset(&metrics), "{:?}", used.difference(&metrics));
    let known: BTreeSet<String> = script_values(&server).into_keys().collect();
    let keys = words(alerts, "rwlock_");
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
