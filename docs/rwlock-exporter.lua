-- The figures of `INFO rwlock` for redis_exporter's --script: names and numbers
-- in turn. See monitoring.md.
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
return out
