//! Replication.

use super::running::Server;
use crate::wait::wait_until;

/// Waits until `replica` has applied everything that `primary` had written when
/// this was called.
#[track_caller]
pub fn wait_synced(primary: &Server, replica: &Server) {
    let what = format!("replica {} has all that primary {} wrote", replica.port(), primary.port());
    // Up to where the replica must follow which history. A primary that meets
    // its first replica begins a new history, so it is looked up again until
    // both agree.
    let mut target: Option<(String, i64)> = None;
    wait_until(&what, || {
        let source = primary.info("replication");
        let now = &source["master_replid"];
        let (history, end) = match target.take().filter(|(history, _)| history == now) {
            Some(known) => known,
            None => (now.clone(), offset(&source["master_repl_offset"])),
        };
        let copy = replica.info("replication");
        let is = |field: &str, value: &str| copy.get(field).is_some_and(|found| found == value);
        let synced = is("master_link_status", "up")
            // While a sync is under way, the offset is that of before.
            && is("master_sync_in_progress", "0")
            && is("master_replid", &history)
            && offset(&copy["slave_repl_offset"]) >= end;
        target = Some((history, end));
        synced
    });
}

fn offset(text: &str) -> i64 {
    text.parse().unwrap_or_else(|error| panic!("replication offset {text:?}: {error}"))
}
