#!/usr/bin/env bash
# Tests what the helper promises against the server at RWLOCK_URL, which is no cluster,
# and runs the demonstration.
set -eu
cd "$(dirname "$0")"
# shellcheck source=rwlock.sh
. ./rwlock.sh
RWLOCK_CLI="redis-cli -u $RWLOCK_URL"
name="test:\"$$\\ "
passed=0

ask() { $RWLOCK_CLI --raw "$@"; }

check() { # <what> <expected> <actual>
    if [ "$2" != "$3" ]; then
        echo "not ok: $1: expected '$2', got '$3'"
        exit 1
    fi
    passed=$((passed + 1))
    echo "ok: $1"
}

# Of INSPECT: what stands behind a word, the first time.
inspect() { ask RWLOCK.INSPECT "$name" | awk -v word="$1" 'found { print; exit } $0 == word { found = 1 }'; }

until_() { # <word> <value>
    local tries=0
    until [ "$(inspect "$1")" = "$2" ]; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || check "$1 becomes $2" "$2" "$(inspect "$1")"
        sleep 0.01
    done
}

status_of() {
    local status=0
    "$@" || status=$?
    echo $status
}

inside() {
    first=$RWLOCK_TOKEN
    mode=$(inspect mode)
    refused=$(status_of with_write_lock -w 0 "$name" true 2>/dev/null)
    late=$(status_of with_read_lock -w 0.05 "$name" true 2>/dev/null)
}
with_write_lock -f "$name" inside
check 'a writer writes' write "$mode"
check 'another process is refused' 75 "$refused"
check 'and is not granted in time' 75 "$late"
check 'it is given back' free "$(inspect mode)"

next() { second=$RWLOCK_TOKEN; }
with_write_lock -f "$name" next
check 'tokens increase' yes "$([ "$second" -gt "$first" ] && echo yes)"
token() { echo "$RWLOCK_TOKEN"; }
check 'without -f there is none' '' "$(with_write_lock "$name" token)"

again() { with_write_lock -w 0 "$name" with_read_lock -w 0 "$name" inspect mode; }
check 'a process enters again' write "$(with_write_lock "$name" again)"
check 'and leaves as often' free "$(inspect mode)"

check "the command's status" 5 "$(status_of with_read_lock "$name" bash -c 'exit 5')"

lose() { ask RWLOCK.FORCEUNLOCK "$name" >/dev/null; }
check 'a lost hold is told' 77 "$(status_of with_write_lock "$name" lose 2>/dev/null)"

circle() { with_write_lock "$name" true; }
check 'a circle is told' 76 "$(status_of with_read_lock "$name" circle 2>/dev/null)"

ask SET "$name" 'no lock' >/dev/null
check 'other errors are told' 1 "$(status_of with_read_lock "$name" true 2>/dev/null)"
ask DEL "$name" >/dev/null
check 'so is a server that is not there' 1 \
    "$(RWLOCK_CLI='redis-cli -p 1' status_of with_read_lock "$name" true 2>/dev/null)"

# A connection that breaks while one waits, then a failover: it asks again.
broken() {
    with_write_lock -w 20 "$name" echo granted >"$granted" &
    waiter=$!
    until_ waiters_total 1
    client=$(inspect client)
    ask CLIENT KILL ID "$client" >/dev/null
    until [ "$(inspect client)" != "$client" ] && [ "$(inspect waiters_total)" = 1 ]; do sleep 0.01; done
    ask REPLICAOF 127.0.0.1 1 >/dev/null
    until_ waiters_total 0
    sleep 0.3 # it is told READONLY meanwhile
    ask REPLICAOF NO ONE >/dev/null
    until_ waiters_total 1
}
granted=$(mktemp)
with_read_lock "$name" broken
wait "$waiter"
check 'one who waits asks again after a break and a failover' granted "$(cat "$granted")"
rm "$granted"

# kill -9 of the script: the hold goes with what it ran, which here is a builtin.
pipe=$(mktemp -u)
mkfifo "$pipe"
RWLOCK_CLI=$RWLOCK_CLI bash -c '. ./rwlock.sh; hang() { read -r <>"$2"; }; with_write_lock "$1" hang "" "$2"' \
    _ "$name" "$pipe" &
script=$!
until_ mode write
rm "$pipe"
kill -9 $script
wait $script 2>/dev/null || :
check 'a session ends with its process' 0 "$(status_of with_write_lock -w 20 "$name" true)"

# So does a wait.
waits_no_longer() {
    RWLOCK_CLI=$RWLOCK_CLI bash -c '. ./rwlock.sh; with_write_lock "$1" true' _ "$name" &
    until_ waiters_total 1
    kill -9 $!
    wait $! 2>/dev/null || :
    until_ waiters_total 0
}
with_read_lock "$name" waits_no_longer
check 'and so does a wait' free "$(inspect mode)"

echo "$passed checks passed"
REDIS_URL=$RWLOCK_URL ./demo.sh
