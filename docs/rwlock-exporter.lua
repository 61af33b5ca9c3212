-- The figures of `INFO rwlock`, and the locks that were waited for longest, for
-- redis_exporter's --script: names and numbers in turn. See monitoring.md.
local out = {}
local function add(name, value)
    out[#out + 1] = name
    out[#out + 1] = tostring(value)
end
local texts = {}
for name, value in string.gmatch(redis.call('INFO', 'rwlock'), '(rwlock_[%w_]+):([^\r\n]*)') do
    if name ~= 'rwlock_version' and tonumber(value) then
        add(name, value)
    else
        texts[name] = value
    end
end
add('rwlock_sweep_running', texts.rwlock_sweep == 'running' and 1 or 0)
add('rwlock_sweep_done', texts.rwlock_sweep == 'done' and 1 or 0)
add('rwlock_warned', texts.rwlock_warning and 1 or 0)

-- At most 10, longest total first. An error, as without the right to the command: none.
local seen = {}
for _, reply in ipairs(redis.pcall('RWLOCK.HOTLOCKS', 'COUNT', 10)) do
    local lock = {}
    for i = 1, #reply, 2 do lock[reply[i]] = reply[i + 1] end
    -- A label has to be text, so other bytes are shown as \xNN; and not too long.
    local key = string.gsub(string.sub(lock.key, 1, 100), '[^ -~]', function(byte)
        return string.format('\\x%02x', string.byte(byte))
    end)
    local name = 'rwlock_hot_wait_ms:db' .. lock.db .. ':' .. key .. (#lock.key > 100 and '...' or '')
    if not seen[name] then add(name, lock.total) end
    seen[name] = true
end
return out
