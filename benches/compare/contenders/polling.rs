//! What one writes without a library: Lua that is asked again and again. A
//! writer that is refused leaves a reservation, so that new readers stay out
//! and it gets its turn. The lock has one lease, not one for each reader, which
//! makes these scripts lighter than those that know who has lapsed.

use super::{owner, Talk};
use redis::{Cmd, Connection};
use support::redisson::{load, tagged, DEFAULT_LEASE};

/// How long a reservation stands, in ms: some pauses between two tries.
const RESERVES: u32 = 250;

/// KEYS lock, reservation; ARGV lease, owner.
const READ_LOCK: &str = "
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode == 'write' then
    return redis.call('PTTL', KEYS[1])
end
if redis.call('EXISTS', KEYS[2]) == 1 then
    return redis.call('PTTL', KEYS[2])
end
if not mode then
    redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], 1)
else
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return nil
";

/// KEYS lock; ARGV owner.
const READ_UNLOCK: &str = "
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left > 0 then
    return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HLEN', KEYS[1]) > 1 then
    return 0
end
redis.call('DEL', KEYS[1])
return 1
";

/// KEYS lock, reservation; ARGV lease, owner, how long a reservation stands.
const WRITE_LOCK: &str = "
local reserved = redis.call('GET', KEYS[2])
if reserved and reserved ~= ARGV[2] then
    return redis.call('PTTL', KEYS[2])
end
if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
    return redis.call('PTTL', KEYS[1])
end
if reserved then
    redis.call('DEL', KEYS[2])
end
redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return nil
";

/// KEYS lock; ARGV owner.
const WRITE_UNLOCK: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call('DEL', KEYS[1])
return 1
";

/// What its clients say, the scripts being loaded.
pub fn talk(con: &mut Connection) -> impl Fn(&str, usize) -> Talk + 'static {
    let [read_lock, read_unlock, write_lock, write_unlock] =
        [READ_LOCK, READ_UNLOCK, WRITE_LOCK, WRITE_UNLOCK]
            .map(|script| load(con, script).expect("load a script"));
    move |lock, number| {
        let owner = owner(number);
        let reservation = format!("{}:wait_write", tagged(lock));
        let take = |digest: &str| {
            let mut command = evalsha(digest, &[lock, &reservation]);
            command.arg(DEFAULT_LEASE).arg(&owner).arg(RESERVES);
            command.get_packed_command()
        };
        let give = |digest: &str| evalsha(digest, &[lock]).arg(&owner).get_packed_command();
        Talk {
            take: [take(&read_lock), take(&write_lock)],
            give: [give(&read_unlock), give(&write_unlock)],
            ..Talk::default()
        }
    }
}

pub(super) fn evalsha(digest: &str, keys: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(keys.len()).arg(keys);
    command
}
