//! The scripts, with what the module does otherwise on purpose made up for
//! (`docs/compatibility.md` has the list), so that the rest can be compared.

use support::redisson::{
    FORCE_UNLOCK, READ_LOCK, READ_RENEW, READ_UNLOCK, WRITE_LOCK, WRITE_RENEW, WRITE_UNLOCK,
};

/// One script that does what a command of the module does, by Redisson's
/// scripts: KEYS lock, the prefix of its derived keys, its channel, a latch;
/// ARGV the command's name with the word that chooses, owner, lease.
pub fn reference() -> String {
    let scripts = [
        ("read_lock", READ_LOCK),
        ("read_unlock", READ_UNLOCK),
        ("write_lock", WRITE_LOCK),
        ("write_unlock", WRITE_UNLOCK),
        ("force_unlock", FORCE_UNLOCK),
        ("read_renew", READ_RENEW),
        ("write_renew", WRITE_RENEW),
    ];
    let functions = scripts
        .map(|(name, script)| format!("local function {name}(KEYS, ARGV)\n{script}\nend\n"))
        .concat();
    functions + LOOK + MADE_UP + COMMANDS
}

/// What the rest needs to know of a lock.
const LOOK: &str = "
local call = redis.call
local lock, prefix, channel, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local command, owner, lease = ARGV[1], ARGV[2], ARGV[3]
local writer = owner .. ':write'
local timeouts = prefix .. ':' .. owner .. ':rwlock_timeout'

local function timeout(of, number)
    return prefix .. ':' .. of .. ':rwlock_timeout:' .. number
end

local function ends(name)
    return call('PEXPIRETIME', name)
end

local function lengthen(name, lease, before)
    call('PEXPIRE', name, lease)
    if ends(name) < before then
        call('PEXPIREAT', name, before)
    end
end

local function readers()
    local counts, fields = {}, call('HGETALL', lock)
    for at = 1, #fields, 2 do
        local field = fields[at]
        if field ~= 'mode' and field:sub(-6) ~= ':write' then
            counts[field] = tonumber(fields[at + 1])
        end
    end
    return counts
end

local function latest_read()
    local latest = 0
    for of, count in pairs(readers()) do
        for number = 1, count do
            latest = math.max(latest, ends(timeout(of, number)))
        end
    end
    return latest
end
";

/// Each function makes up for one difference, or calls a script and then does.
const MADE_UP: &str = "
-- Lapsed readers and holds stay; the module removes and renumbers them.
local function settle()
    local mode = call('HGET', lock, 'mode')
    if not mode then
        return
    end
    local held = mode == 'write'
    for of, count in pairs(readers()) do
        local kept = 0
        for number = 1, count do
            local at = ends(timeout(of, number))
            if at > 0 then
                kept = kept + 1
                if kept < number then
                    call('SET', timeout(of, kept), 1, 'PXAT', at)
                    call('DEL', timeout(of, number))
                end
            end
        end
        if kept == 0 then
            call('HDEL', lock, of)
        elseif kept < count then
            call('HSET', lock, of, kept)
        end
        held = held or kept > 0
    end
    if not held then
        call('DEL', lock)
    end
end

-- A re-entrant writer's lease is added; the module takes the later end.
local function lock_write()
    local re_entry, before = call('HEXISTS', lock, writer) == 1, ends(lock)
    local left = write_lock({lock}, {lease, writer})
    if re_entry then
        lengthen(lock, lease, before)
    end
    return left
end

-- A read unlock cuts a write lease; the module leaves it.
local function unlock_read()
    local mode, before = call('HGET', lock, 'mode'), ends(lock)
    local reply = read_unlock({lock, channel, timeouts, prefix, latch}, {0, owner, 'publish', 9})
    call('DEL', latch)
    if reply == 0 and mode == 'write' then
        call('PEXPIREAT', lock, before)
    end
    return reply
end

-- A partial write unlock sets the lease anew, the module leaves it. A last one
-- with own reads left leaves it and says 1; the module gives the lock the end
-- of the reads, and says 0.
local function unlock_write()
    local before = ends(lock)
    local reply = write_unlock({lock, channel, latch}, {1, 30000, writer, 'publish', 9})
    call('DEL', latch)
    if reply == 0 then
        call('PEXPIREAT', lock, before)
    elseif reply == 1 and call('EXISTS', lock) == 1 then
        call('PEXPIREAT', lock, latest_read())
        return 0
    end
    return reply
end

-- Timeout keys stay when a lock is forced open; the module removes them.
local function force(mode)
    local counts = readers()
    local reply = force_unlock({lock, channel}, {mode == 'read' and 0 or 1, 'publish', mode})
    if reply == 1 then
        for of, count in pairs(counts) do
            for number = 1, count do
                call('DEL', timeout(of, number))
            end
        end
    end
    return reply
end
";

/// The commands. What the scripts cannot do in one is put together.
const COMMANDS: &str = "
local not_held, done = {ok = 'NOTHELD'}, {ok = 'OK'}
local commands = {}

function commands.RLOCK()
    return read_lock({lock, timeouts}, {lease, owner, writer}) or done
end

function commands.WLOCK()
    return lock_write() or done
end

commands['UNLOCK READ'] = function()
    return unlock_read() or not_held
end

commands['UNLOCK WRITE'] = function()
    return unlock_write() or not_held
end

function commands.UNLOCK()
    if call('HEXISTS', lock, owner) == 1 then
        return unlock_read() or not_held
    end
    return unlock_write() or not_held
end

commands['UNLOCK ALL'] = function()
    local last = not_held
    for _, unlock in ipairs({unlock_read, unlock_write}) do
        local reply = unlock()
        while reply do
            last = reply
            reply = unlock()
        end
    end
    return last
end

function commands.RENEW()
    local reads = read_renew({lock, prefix}, {lease, owner})
    local writes = write_renew({lock}, {lease, writer})
    return reads + writes > 0 and done or not_held
end

function commands.DOWNGRADE()
    if call('HEXISTS', lock, writer) == 0 then
        return not_held
    end
    local holds = call('HGET', lock, owner)
    if holds then
        lengthen(timeout(owner, holds), lease, ends(timeout(owner, holds)))
    else
        read_lock({lock, timeouts}, {lease, owner, writer})
    end
    while unlock_write() do end
    return done
end

function commands.FORCEUNLOCK()
    return force(call('HGET', lock, 'mode') or 'read')
end

commands['FORCEUNLOCK READ'] = function()
    return force('read')
end

commands['FORCEUNLOCK WRITE'] = function()
    return force('write')
end

settle()
return commands[command]()
";

/// Makes live holds of a lock end within a ms, each as the next bit of a number
/// says, lowest first: read holds by owner and number, the write holds only
/// where there are no read holds. KEYS lock, the prefix of its derived keys;
/// ARGV the number.
pub const LAPSE: &str = "
local lock, bits = KEYS[1], tonumber(ARGV[1])
local function chosen()
    local bit = bits % 2
    bits = (bits - bit) / 2
    return bit == 1
end
local mode = redis.call('HGET', lock, 'mode')
if not mode then
    return
end
local owners, counts, fields = {}, {}, redis.call('HGETALL', lock)
for at = 1, #fields, 2 do
    if fields[at] ~= 'mode' and fields[at]:sub(-6) ~= ':write' then
        owners[#owners + 1] = fields[at]
        counts[fields[at]] = tonumber(fields[at + 1])
    end
end
table.sort(owners)
local lives, lapses, latest = false, false, 0
for _, owner in ipairs(owners) do
    for number = 1, counts[owner] do
        local timeout = KEYS[2] .. ':' .. owner .. ':rwlock_timeout:' .. number
        local at = redis.call('PEXPIRETIME', timeout)
        if at > 0 then
            lives = true
            if chosen() then
                lapses = true
                redis.call('PEXPIRE', timeout, 1)
            else
                latest = math.max(latest, at)
            end
        end
    end
end
if mode == 'read' and lapses and latest > 0 then
    redis.call('PEXPIREAT', lock, latest)
elseif mode == 'read' and lapses or mode == 'write' and not lives and chosen() then
    redis.call('PEXPIRE', lock, 1)
end
";

/// Seconds after which what [`LAPSE`] chose has ended.
pub const LAPSED: &str = "0.003";
