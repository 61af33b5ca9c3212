#!/usr/bin/env bash
# Tests of the helper, on the server at RWLOCK_URL. It is no cluster and serves nobody else.
# They start more servers, of RWLOCK_SERVER with RWLOCK_MODULE, on Unix sockets. `row N` is
# the number of a promise in the table of ../README.md.
# shellcheck disable=SC2016 # scripts in single quotes
set -eu
cd "$(dirname "$0")"
# shellcheck source=rwlock.sh
. ./rwlock.sh
export RWLOCK_CLI="redis-cli -u $RWLOCK_URL"
main=$RWLOCK_CLI
name="test:\"$$\\ "
passed=0 failed=0 servers=
work=$(mktemp -d)

ask() { $RWLOCK_CLI --raw "$@"; }

clean() {
    local pid
    for pid in $servers $(jobs -p); do
        kill -CONT "$pid" && kill -9 "$pid"
    done 2>/dev/null || :
    rm -r "$work"
}
trap clean EXIT

check() { # <what> <expected> <actual>
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
        echo "ok: $1"
    else
        failed=$((failed + 1))
        echo "not ok: $1: expected '$2', got '$3'"
    fi
}

check_like() { # <what> <pattern> <actual>
    # shellcheck disable=SC2053 # a pattern
    if [[ $3 == $2 ]]; then check "$1" "$3" "$3"; else check "$1" "$2" "$3"; fi
}

# Of INSPECT: what stands behind a word, the first time.
inspect() { ask RWLOCK.INSPECT "${2-$name}" | awk -v word="$1" 'found { print; exit } $0 == word { found = 1 }'; }

until_() { # <command>...: until it succeeds, for 10 s at most
    local end=$((SECONDS + 10))
    until "$@"; do
        if [ $SECONDS -ge $end ]; then
            echo "not ok: it does not come true: $*"
            exit 1
        fi
        sleep 0.01
    done
}
is() { [ "$(inspect "$1")" = "$2" ]; } # <word of INSPECT> <value>

# Runs a command as somebody else would, in a script of its own; sets status, said and ms.
other() {
    local begun=${EPOCHREALTIME/[.,]/}
    status=0
    said=$(env -u RWLOCK_HELD bash -euc '. ./rwlock.sh; "$@"' other "$@" 2>&1) || status=$?
    ms=$(((${EPOCHREALTIME/[.,]/} - begun) / 1000))
}

status_of() {
    local status=0
    "$@" 2>/dev/null || status=$?
    echo $status
}

between() { [ "$2" -le "$1" ] && [ "$1" -le "$3" ] && echo yes || echo "$1 ms"; }

# <folder> [<option>...] starts a server of its own, which RWLOCK_CLI then is; sets server.
serve() {
    mkdir -p "$work/$1"
    "${RWLOCK_SERVER:-redis-server}" --port 0 --unixsocket "$work/$1/socket" --dir "$work/$1" --save '' \
        "${@:2}" >/dev/null &
    server=$!
    servers="$servers $server"
    RWLOCK_CLI="redis-cli -s $work/$1/socket"
    until_ answers
}
answers() { [ "$(ask PING 2>/dev/null)" = PONG ]; }
module=${RWLOCK_MODULE-$(ask MODULE LIST | awk '$0 == "rwlock" { found = 1 } found && last == "path" { print; exit } { last = $0 }')}

# row 1: wait
tries() {
    other with_read_lock "$name" true
    check 'row 1: without --wait-ms it tries once' "75 yes" "$status $(between "$ms" 0 600)"
    other with_read_lock --wait-ms 300 "$name" true
    check 'row 1: --wait-ms is a limit' "75 yes" "$status $(between "$ms" 300 1200)"
    other with_read_lock --wait-ms "$name" true
    check 'row 1: --wait-ms needs a number' 1 "$status"
}
with_write_lock "$name" tries
endless() {
    env -u RWLOCK_HELD bash -euc '. ./rwlock.sh; with_write_lock --wait-ms forever "$1" true' _ "$name" &
    waiter=$!
    until_ is waiters_total 1
    check 'row 1: --wait-ms forever has no limit' 0 "$(inspect timeout)"
}
with_read_lock "$name" endless
wait "$waiter"
check 'and is granted' free "$(inspect mode)"

# row 2: a session ends with its process, which here runs a builtin; so does a wait
mkfifo "$work/pipe"
hangs='. ./rwlock.sh; hang() { read -r <>"$2"; }; with_write_lock --wait-ms 10000 "$1" hang "" "$2"'
bash -c "$hangs" _ "$name" "$work/pipe" &
script=$!
until_ is mode write
check_like 'row 2: a hold is a session' '[1-9]*' "$(inspect session)"
bash -c "$hangs" _ "$name" "$work/pipe" &
waiter=$!
until_ is waiters_total 1
kill -9 $waiter
wait $waiter 2>/dev/null || :
until_ is waiters_total 0
kill -9 $script
wait $script 2>/dev/null || :
check 'row 2: it ends with its process' 0 "$(status_of with_write_lock --wait-ms 5000 "$name" true)"
renewed() {
    check 'row 2: without a session' 0 "$(inspect session)"
    sleep 1 # more than three leases
    rwlock_check
    inspect mode >"$work/mode"
}
with_write_lock --no-session --lease-ms 300 "$name" renewed
check 'row 2: a lease is renewed' 'write free' "$(cat "$work/mode") $(inspect mode)"

# row 3: re-entry
again() { with_write_lock "$name" with_read_lock "$name" bash -c '. ./rwlock.sh; with_write_lock "$1" true' _ "$name"; }
for session in --fence --no-session; do
    check "row 3: a nested call enters again ($session)" 0 "$(status_of with_write_lock $session "$name" again)"
    check 'row 3: and leaves as often' free "$(inspect mode)"
done
still() {
    with_write_lock "$name" true
    inspect mode
}
check 'row 3: the outer hold stays' write "$(with_write_lock "$name" still)"
other_owner() {
    other with_read_lock "$name" true
    check 'row 3: another script does not enter' 75 "$status"
}
with_write_lock "$name" other_owner
reader_writes() { with_write_lock --wait-ms 9000 "$name" true; }
check 'row 3: a reader that asks to write is told at once' 76 "$(status_of with_read_lock "$name" reader_writes)"

# row 4: upgrade and downgrade
changes() {
    rwlock_upgrade --fence
    echo "$(inspect mode) $([ "$RWLOCK_TOKEN" = "$(inspect fence)" ] && echo token)"
    rwlock_downgrade
    echo "$(inspect mode) $RWLOCK_TOKEN"
    rwlock_upgrade --wait-ms 500
    inspect mode
}
for session in '' --no-session; do
    # shellcheck disable=SC2086 # a word or none
    check "row 4: upgrade and downgrade $session" 'write token read  write free' \
        "$(with_read_lock $session "$name" changes | tr '\n' ' ')$(inspect mode)"
done
lets_in() {
    rwlock_downgrade
    other with_read_lock "$name" true
    check 'row 4: after a downgrade others read' 0 "$status"
    other with_write_lock "$name" true
    check 'row 4: and do not write' 75 "$status"
}
with_write_lock "$name" lets_in
blocked() {
    local -x RWLOCK_HELD=
    with_read_lock "$name" upgrades
}
upgrades() {
    status_of rwlock_upgrade --wait-ms 100
    rwlock_check
}
check 'row 4: an upgrade that is refused still reads' 75 "$(with_read_lock "$name" blocked)"
check 'row 4: only inside' 1 "$(status_of rwlock_downgrade)"

# row 5: several locks in one step
a="{$name}a" b="{$name}b" c="{$name}c"
both() {
    other with_locks --write "$c" --write "$b" true
    echo "$(inspect mode "$a") $(inspect mode "$b") $(inspect mode "$c") $status"
    [ "$RWLOCK_TOKEN" = "$(inspect fence "$b") $(inspect fence "$c")" ] && echo tokens
    rwlock_check && with_locks --read "$a" --write "$b" true
}
for session in '' --no-session; do
    # shellcheck disable=SC2086 # a word or none
    check "row 5: several locks in one step $session" 'read write write 75 tokens free free' \
        "$(with_locks $session --wait-ms 500 --fence --read "$a" --write "$b" --write "$c" both 2>&1 |
            tr '\n' ' ')$(inspect mode "$b") $(inspect mode "$c")"
done
lose_one() { ask RWLOCK.FORCEUNLOCK "$b" >/dev/null; }
check 'row 5: one of them is lost' '77 free' \
    "$(status_of with_locks --write "$a" --write "$b" lose_one) $(inspect mode "$a")"
other with_locks --wait-ms 9000 --read "$a" --write "$b" --write "$a" true
check_like 'row 5: a lock that is named twice is an error' '1 yes *is named twice' \
    "$status $(between "$ms" 0 5000) $said"

# row 6: acquire and release
rwlock_acquire --fence --write "$name"
check 'row 6: acquire' "write $(inspect fence)" "$(inspect mode) $RWLOCK_TOKEN"
check 'row 6: one at a time' 1 "$(status_of rwlock_acquire --write "$name")"
check 'row 6: with another one inside' 0 "$(status_of with_write_lock "$name" true)"
rwlock_release
check 'row 6: release' free "$(inspect mode)"

# row 7: the name
named() {
    inspect owner
    ask CLIENT LIST ID "$(inspect session)" | sed 's/.* name=\([^ ]*\) .*/\1/'
}
export RWLOCK_NAME='nightly "report"'
with_write_lock "$name" named >"$work/names"
{ read -r owner && read -r client; } <"$work/names"
unset RWLOCK_NAME
check_like 'row 7: of the owner' "nightly--report-@${HOSTNAME:0:60}:$$:????????????" "$owner"
check 'row 7: of the connection' "${owner%:*}" "$client"
check_like 'row 7: that of the script' 'test.sh@*' "$(with_write_lock "$name" inspect owner)"

# row 8: a lost hold is told at the end, and by rwlock_check
lose() {
    ask RWLOCK.FORCEUNLOCK "$name" >/dev/null
    status_of rwlock_check >"$work/status"
}
killed() { ask CLIENT KILL ID "$(inspect session)" >/dev/null; }
for session in --fence --no-session; do
    check "row 8: a lost hold is told ($session)" '77 77' \
        "$(status_of with_write_lock $session "$name" lose) $(cat "$work/status")"
done
check 'row 8: also a killed connection' 77 "$(status_of with_write_lock "$name" killed)"
check 'row 8: the status of a command comes first' 5 "$(
    status_of with_write_lock "$name" eval 'lose; (exit 5)'
)"

# row 9: after a restart of the server
restarted() {
    kill -9 "$server"
    wait "$server" || :
    serve restart --loadmodule "$module"
    rwlock_check || said=$?
}
serve restart --loadmodule "$module"
status=0
with_write_lock a restarted 2>/dev/null || status=$?
check 'row 9: a holder knows of a restart' '77 77' "$said $status"
kill "$server"
wait "$server"
RWLOCK_CLI=$main

# row 10: deadlines hold during a failover. The event comes between two holds of a script.
serve failover --loadmodule "$module"
for event in 'ask REPLICAOF 127.0.0.1 1' "kill -STOP $server" "kill -9 $server"; do
    said=$(
        with_write_lock a true
        $event >/dev/null
        begun=${EPOCHREALTIME/[.,]/}
        with_write_lock --wait-ms 1000 a true 2>&1 || echo "status $? $RWLOCK_LEFT_MS"
        between $(((${EPOCHREALTIME/[.,]/} - begun) / 1000)) 800 2000
    ) || :
    check_like "row 10: a deadline holds: $event" '*no server took the request*status 75 *yes' "$said"
    [[ $event != ask* ]] || ask REPLICAOF NO ONE >/dev/null
    [[ $event != *STOP* ]] || kill -CONT "$server"
done
wait "$server" 2>/dev/null || :
RWLOCK_CLI=$main
# A connection that breaks while one waits, then a failover: it asks again.
broken() {
    env -u RWLOCK_HELD bash -c '. ./rwlock.sh; with_write_lock --wait-ms 20000 "$1" echo granted' \
        _ "$name" >"$work/granted" &
    waiter=$!
    until_ is waiters_total 1
    client=$(ask RWLOCK.INSPECT "$name" | awk '$0 == "client" { getline; print }')
    ask CLIENT KILL ID "$client" >/dev/null
    until_ came_again
    ask REPLICAOF 127.0.0.1 1 >/dev/null
    until_ is waiters_total 0
    sleep 0.3 # meanwhile it is told READONLY, more than once
    ask REPLICAOF NO ONE >/dev/null
    until_ is waiters_total 1
}
came_again() {
    is waiters_total 1 &&
        [ "$(ask RWLOCK.INSPECT "$name" | awk '$0 == "client" { getline; print }')" != "$client" ]
}
with_read_lock "$name" broken
wait "$waiter"
check 'row 10: a waiter outlives a break and a failover' granted "$(cat "$work/granted")"

# row 11: a server that was never reached
for wait in 0 5000 forever; do
    RWLOCK_CLI='redis-cli -p 1' other with_write_lock --wait-ms $wait "$name" true
    check "row 11: it fails at once (--wait-ms $wait)" '1 yes' "$status $(between "$ms" 0 1000)"
done

# row 12: nothing remains
alone() { ! command -v pgrep >/dev/null || ! pgrep -P $$ >/dev/null; }
unconnected() { ! ask CLIENT LIST | grep -q "name=test.sh@"; }
with_write_lock "$name" true
with_write_lock --no-session "$name" true
status_of with_write_lock "$name" lose >/dev/null
until_ alone
until_ unconnected
check 'row 12: no process and no connection remains' free "$(inspect mode)"
daemon() {
    sleep 60 &
    started=$!
}
with_write_lock "$name" daemon
until_ unconnected
check 'row 12: nor beside a job in the background' free "$(inspect mode)"
kill "$started"
bash -c '. ./rwlock.sh; rwlock_acquire --no-session --lease-ms 600 --write "$1"' _ "$name"
until_ is mode free
check 'row 12: nothing renews after the end of the script' free "$(inspect mode)"

# row 13: a second release
rwlock_acquire --write "$name"
rwlock_release
status=0
said=$(rwlock_release 2>&1) || status=$?
check_like 'row 13: a second release' '1 *gave it back already' "$status $said"

# row 14: a server without the module
serve plain
other with_write_lock a true
check_like 'row 14: the module is not loaded' '1 the rwlock module is not loaded*' "$status $said"
RWLOCK_CLI=$main

# row 15: how long it is still held
left() {
    with_write_lock "$1" true 2>"$work/said" || :
    [ "$(between "$RWLOCK_LEFT_MS" 700000 760000)" = yes ] &&
        grep -c "ends in $RWLOCK_LEFT_MS ms, unless it is renewed" "$work/said"
}
as_other() {
    local -x RWLOCK_HELD=
    left "$name"
    ask PERSIST "$name" >/dev/null
    with_write_lock "$name" true 2>"$work/said" || :
    echo "$RWLOCK_LEFT_MS $(grep -c 'without expiry' "$work/said")"
}
check 'row 15: how long it is still held' '1 -1 1' \
    "$(with_write_lock --lease-ms 759999 "$name" as_other | tr '\n' ' ' | sed 's/ $//')"
# The lock $b is free, but one that waits for both is ahead.
ahead() {
    env -u RWLOCK_HELD bash -c '. ./rwlock.sh; with_locks --wait-ms 9000 --write "$1" --write "$2" true' \
        _ "$name" "$b" &
    until_ is waiters_total 1
    local -x RWLOCK_HELD=
    with_write_lock "$b" true 2>"$work/said" || :
    echo "$RWLOCK_LEFT_MS $(grep -c 'others are ahead in its queue' "$work/said")"
}
check 'row 15: others are ahead' '0 1' "$(with_write_lock "$name" ahead)"
until_ is mode free

# row 16: errors
crossed() {
    bash -c '. ./rwlock.sh
        unset RWLOCK_HELD
        inner() { with_write_lock --wait-ms 9000 "$1" true; }
        with_write_lock "$2" inner "$1"' _ "$name" "$b" &
    waiter=$!
    until_ is waiters_total 1
    status_of with_write_lock --wait-ms 9000 "$b" true
}
check 'row 16: a deadlock of two locks' 76 "$(with_write_lock "$name" crossed)"
until_ is mode free
ask SET "$name" 'no lock' >/dev/null
check 'row 16: other errors are told' 1 "$(status_of with_read_lock "$name" true)"
ask DEL "$name" >/dev/null
check 'the status of the command' 5 "$(status_of with_read_lock "$name" bash -c 'exit 5')"

# row 17: fencing tokens
token() { echo "$RWLOCK_TOKEN"; }
first=$(with_write_lock --fence "$name" token)
second=$(with_write_lock --fence "$name" token)
check 'row 17: tokens increase' yes "$([ "$second" -gt "$first" ] && echo yes)"
check 'row 17: without --fence there is none' '' "$(with_write_lock "$name" token)"

../../scripts/readme.sh readme.sh.in >"$work/readme.sh"
check 'the code of README.md' 0 "$(status_of bash "$work/readme.sh")"

echo "$passed checks passed, $failed failed"
REDIS_URL=$RWLOCK_URL ./demo.sh
[ $failed = 0 ]
