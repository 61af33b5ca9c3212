"""What the driver sends besides the commands of a history."""

DUMP = """
local rows = {}
for db = 0, 1 do
  redis.call('SELECT', db)
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind, value = redis.call('TYPE', key).ok, ''
    if kind == 'hash' then value = redis.call('HGETALL', key) end
    if kind == 'string' then value = redis.call('GET', key) end
    rows[#rows + 1] = {db, key, kind, redis.call('PEXPIRETIME', key), value}
  end
end
return rows
"""

# The words of all commands in one list, each command behind the number of its words.
SCRIPT = """
local replies, at = {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return replies
"""

DEFAULTS = {"rwlock.policy": "fifo", "rwlock.deadlock-detection": "yes",
            "rwlock.max-waiters": "100000", "rwlock.fence-ttl": "604800000",
            "maxmemory": "0", "min-replicas-to-write": "0"}

REFUSE = {"oom": ("CONFIG", "SET", "maxmemory", "1"),
          "noreplicas": ("CONFIG", "SET", "min-replicas-to-write", "1"),
          "paused": ("CLIENT", "PAUSE", "100000", "WRITE")}
ALLOW = {"oom": ("CONFIG", "SET", "maxmemory", "0"),
         "noreplicas": ("CONFIG", "SET", "min-replicas-to-write", "0"),
         "paused": ("CLIENT", "UNPAUSE")}
