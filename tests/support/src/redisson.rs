//! What a Redisson client does to an `RReadWriteLock`, for comparison: Lua of
//! our own that stands for its scripts. Each does what the original does, with
//! the same number of calls on every path, and takes the same keys and
//! arguments in the same order.
//!
//! Also used by `benches/compare`.

use redis::{Cmd, Connection, RedisResult};

/// Read `tryLock`: KEYS lock, timeout prefix; ARGV lease, owner, writer.
pub const READ_LOCK: &str = "
local lock, timeouts = KEYS[1], KEYS[2]
local lease, owner, writer = ARGV[1], ARGV[2], ARGV[3]
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call('HSET', lock, 'mode', 'read')
    redis.call('HSET', lock, owner, 1)
    redis.call('SET', timeouts .. ':1', 1)
    redis.call('PEXPIRE', timeouts .. ':1', lease)
    redis.call('PEXPIRE', lock, lease)
    return nil
end
local admitted = mode == 'read'
if mode == 'write' then
    admitted = redis.call('HEXISTS', lock, writer) == 1
end
if not admitted then
    return redis.call('PTTL', lock)
end
local timeout = timeouts .. ':' .. redis.call('HINCRBY', lock, owner, 1)
redis.call('SET', timeout, 1)
redis.call('PEXPIRE', timeout, lease)
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))
return nil
";

/// Read `unlock`: KEYS lock, channel, timeout prefix, key prefix, latch; ARGV
/// message, owner, publish command, how long the latch stands.
pub const READ_UNLOCK: &str = "
local lock, channel, timeouts, prefix, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local message, owner, publish, stands = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local answered = redis.call('GET', latch)
if answered then
    return tonumber(answered)
end
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call(publish, channel, message)
    redis.call('SET', latch, 1, 'PX', stands)
    return nil
end
if redis.call('HEXISTS', lock, owner) == 0 then
    return nil
end
local left = redis.call('HINCRBY', lock, owner, -1)
if left == 0 then
    redis.call('HDEL', lock, owner)
end
redis.call('DEL', timeouts .. ':' .. (left + 1))
if redis.call('HLEN', lock) > 1 then
    local latest = -3
    for _, field in ipairs(redis.call('HKEYS', lock)) do
        local holds = tonumber(redis.call('HGET', lock, field))
        if holds then
            local timeout = prefix .. ':' .. field .. ':rwlock_timeout:'
            for number = holds, 1, -1 do
                latest = math.max(latest, redis.call('PTTL', timeout .. number))
            end
        end
    end
    if latest > 0 then
        redis.call('PEXPIRE', lock, latest)
        redis.call('SET', latch, 0, 'PX', stands)
        return 0
    end
    if mode == 'write' then
        redis.call('SET', latch, 0, 'PX', stands)
        return 0
    end
end
redis.call('DEL', lock)
redis.call(publish, channel, message)
redis.call('SET', latch, 1, 'PX', stands)
return 1
";

/// Write `tryLock`: KEYS lock; ARGV lease, writer.
pub const WRITE_LOCK: &str = "
local lock, lease, writer = KEYS[1], ARGV[1], ARGV[2]
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call('HSET', lock, 'mode', 'write')
    redis.call('HSET', lock, writer, 1)
    redis.call('PEXPIRE', lock, lease)
    return nil
end
if mode == 'write' and redis.call('HEXISTS', lock, writer) == 1 then
    redis.call('HINCRBY', lock, writer, 1)
    redis.call('PEXPIRE', lock, redis.call('PTTL', lock) + lease)
    return nil
end
return redis.call('PTTL', lock)
";

/// Write `unlock`: KEYS lock, channel, latch; ARGV message, the client's own
/// lease, writer, publish command, how long the latch stands.
pub const WRITE_UNLOCK: &str = "
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local message, lease, writer, publish, stands = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local answered = redis.call('GET', latch)
if answered then
    return tonumber(answered)
end
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    redis.call(publish, channel, message)
    redis.call('SET', latch, 1, 'PX', stands)
    return nil
end
if mode ~= 'write' or redis.call('HEXISTS', lock, writer) == 0 then
    return nil
end
if redis.call('HINCRBY', lock, writer, -1) > 0 then
    redis.call('PEXPIRE', lock, lease)
    redis.call('SET', latch, 0, 'PX', stands)
    return 0
end
redis.call('HDEL', lock, writer)
if redis.call('HLEN', lock) == 1 then
    redis.call('DEL', lock)
    redis.call(publish, channel, message)
else
    redis.call('HSET', lock, 'mode', 'read')
end
redis.call('SET', latch, 1, 'PX', stands)
return 1
";

/// `forceUnlock` of a read (mode `read`, message 0) or a write lock (mode
/// `write`, message 1): KEYS lock, channel; ARGV message, publish command, mode.
pub const FORCE_UNLOCK: &str = "
if redis.call('HGET', KEYS[1], 'mode') ~= ARGV[3] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1
";

/// The watchdog's renewal of the read holds of one owner on one lock: KEYS
/// lock, key prefix; ARGV lease, owner.
pub const READ_RENEW: &str = "
local holds = redis.call('HGET', KEYS[1], ARGV[2])
if not holds then
    return 0
end
for number = tonumber(holds), 1, -1 do
    redis.call('PEXPIRE', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. number, ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
";

/// The watchdog's renewal of a write hold: KEYS lock; ARGV lease, writer.
pub const WRITE_RENEW: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
";

/// What a client puts before the name of an unlock latch.
pub const LATCH: &str = "redisson_unlock_latch:";

/// How long a latch stands, in ms: about this with a client's default settings.
const LATCH_STANDS: u32 = 18_000;

/// The lease that a client without one of its own takes.
pub const DEFAULT_LEASE: u32 = 30_000;

/// A lock's name as its derived keys have it.
pub fn tagged(lock: &str) -> String {
    if lock.contains('{') {
        lock.to_owned()
    } else {
        format!("{{{lock}}}")
    }
}

/// The timeout key of a read hold.
pub fn timeout(lock: &str, owner: &str, number: u64) -> String {
    format!("{}:{owner}:rwlock_timeout:{number}", tagged(lock))
}

/// The lock's channel.
pub fn channel(lock: &str) -> String {
    format!("redisson_rwlock:{}", tagged(lock))
}

/// The key that keeps the answer to an unlock request, for its repetition.
/// A client deletes it when it has the answer.
pub fn latch(lock: &str, request: &str) -> String {
    format!("{LATCH}{}:{request}", tagged(lock))
}

/// Loads a script and gives its digest.
pub fn load(con: &mut Connection, script: &str) -> RedisResult<String> {
    redis::cmd("SCRIPT").arg("LOAD").arg(script).query(con)
}

/// The scripts, loaded; each method gives the command that a client sends.
#[derive(Clone, Debug)]
pub struct Redisson {
    read_lock: String,
    read_unlock: String,
    write_lock: String,
    write_unlock: String,
    force_unlock: String,
    read_renew: String,
    write_renew: String,
}

impl Redisson {
    /// Loads all scripts.
    pub fn load(con: &mut Connection) -> RedisResult<Self> {
        Ok(Self {
            read_lock: load(con, READ_LOCK)?,
            read_unlock: load(con, READ_UNLOCK)?,
            write_lock: load(con, WRITE_LOCK)?,
            write_unlock: load(con, WRITE_UNLOCK)?,
            force_unlock: load(con, FORCE_UNLOCK)?,
            read_renew: load(con, READ_RENEW)?,
            write_renew: load(con, WRITE_RENEW)?,
        })
    }

    /// Nil: held. An integer: the ms that the lock lives.
    pub fn read_lock(&self, lock: &str, owner: &str, lease: u32) -> Cmd {
        let mut command = evalsha(&self.read_lock, &[lock, &timeouts(lock, owner)]);
        command.arg(lease).arg(owner).arg(writer(owner));
        command
    }

    /// 1: the lock is free. 0: given back. Nil: not held. `request` is an id
    /// of its own for each unlock.
    pub fn read_unlock(&self, lock: &str, owner: &str, request: &str) -> Cmd {
        let (channel, timeouts, prefix) = (channel(lock), timeouts(lock, owner), tagged(lock));
        let keys = [lock, &channel, &timeouts, &prefix, &latch(lock, request)];
        let mut command = evalsha(&self.read_unlock, &keys);
        command.arg(0).arg(owner).arg("publish").arg(LATCH_STANDS);
        command
    }

    /// As [`Redisson::read_lock`].
    pub fn write_lock(&self, lock: &str, owner: &str, lease: u32) -> Cmd {
        let mut command = evalsha(&self.write_lock, &[lock]);
        command.arg(lease).arg(writer(owner));
        command
    }

    /// 1: given back, other than the lock's readers nobody holds it. Else as
    /// [`Redisson::read_unlock`].
    pub fn write_unlock(&self, lock: &str, owner: &str, request: &str) -> Cmd {
        let keys = [lock, &channel(lock), &latch(lock, request)];
        let mut command = evalsha(&self.write_unlock, &keys);
        command.arg(1).arg(DEFAULT_LEASE).arg(writer(owner)).arg("publish").arg(LATCH_STANDS);
        command
    }

    /// 1: forced open.
    pub fn force_read_unlock(&self, lock: &str) -> Cmd {
        let mut command = evalsha(&self.force_unlock, &[lock, &channel(lock)]);
        command.arg(0).arg("publish").arg("read");
        command
    }

    /// 1: forced open.
    pub fn force_write_unlock(&self, lock: &str) -> Cmd {
        let mut command = evalsha(&self.force_unlock, &[lock, &channel(lock)]);
        command.arg(1).arg("publish").arg("write");
        command
    }

    /// 1: renewed.
    pub fn read_renew(&self, lock: &str, owner: &str, lease: u32) -> Cmd {
        let mut command = evalsha(&self.read_renew, &[lock, &tagged(lock)]);
        command.arg(lease).arg(owner);
        command
    }

    /// 1: renewed.
    pub fn write_renew(&self, lock: &str, owner: &str, lease: u32) -> Cmd {
        let mut command = evalsha(&self.write_renew, &[lock]);
        command.arg(lease).arg(writer(owner));
        command
    }
}

/// The field that counts an owner's write holds.
fn writer(owner: &str) -> String {
    format!("{owner}:write")
}

fn timeouts(lock: &str, owner: &str) -> String {
    format!("{}:{owner}:rwlock_timeout", tagged(lock))
}

fn evalsha(digest: &str, keys: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(keys.len()).arg(keys);
    command
}
