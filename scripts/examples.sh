#!/usr/bin/env bash
# Builds and tests every example whose toolchain is there. Then lets the workers of
# all of them contend for the same locks at once: on the server that is installed, on
# a Valkey if there is one, and on a cluster of three.
#
# A folder of examples/ may have
#   build.sh  installs the library and builds into $OUT; exits 3 when tools are missing
#   test.sh   tests the helper on the server at $RWLOCK_URL, which is for it alone; it may
#             start others of $RWLOCK_SERVER with $RWLOCK_MODULE
#   workers   a line for each library: its id, and how to start its worker
# Limited by RWLOCK_EXAMPLES_ONLY="python go" and RWLOCK_EXAMPLES_SECONDS=10.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-target}
seconds=${RWLOCK_EXAMPLES_SECONDS:-10}
locks='orders stock prices menu'

scripts/setup.sh build server
server=$(scripts/server.sh)
cargo build --release --locked
target=$(cd "$target" && pwd)
library=$target/release/librwlock.so
[ "$(uname)" != Darwin ] || library=${library%.so}.dylib
cli=$(command -v redis-cli || command -v valkey-cli || echo "$(dirname "$server")/redis-cli")
work=$target/examples
mkdir -p "$work"
failed='' missing='' servers=''

fail() {
    failed="$failed${failed:+, }$1"
    echo "examples: $1  FAIL${2:+ (see $2)}"
    [ -z "${2:-}" ] || tail -n 40 "$2"
}

# Stops what was started here, by its pid.
stop_servers() {
    local pid
    for pid in $servers; do
        kill "$pid" 2>/dev/null || :
        wait "$pid" 2>/dev/null || :
    done
    servers=
}
trap stop_servers EXIT
trap 'exit 1' HUP INT TERM

# start <server> [argument...]: sets port.
start() {
    local binary=$1 folder pid tries=0
    shift
    free 1
    folder=$(mktemp -d "$work/server.XXXXXX")
    "$binary" --port "$port" --dir "$folder" --save '' --loadmodule "$library" "$@" \
        >"$folder/log" 2>&1 &
    pid=$!
    servers="$servers $pid"
    until [ "$("$cli" -p "$port" PING 2>/dev/null)" = PONG ]; do
        tries=$((tries + 1))
        if [ $tries -gt 500 ] || ! kill -0 $pid 2>/dev/null; then
            echo "examples: $binary does not start" >&2
            tail -n 20 "$folder/log" >&2
            exit 1
        fi
        sleep 0.02
    done
}

# free <number>: sets port, the first of so many in a row that nothing uses.
free() {
    local of=$1 used=1 offset
    while [ $used = 1 ]; do
        # Below the ephemeral ports, also the bus of a cluster.
        port=$((20000 + RANDOM % 2000)) used=0
        for offset in $(seq 0 $((of - 1))); do
            ! (: <>"/dev/tcp/127.0.0.1/$((port + offset))") 2>/dev/null &&
                ! (: <>"/dev/tcp/127.0.0.1/$((port + offset + 10000))") 2>/dev/null || used=1
        done
    done
}

# Three nodes with all slots: sets port and nodes.
start_cluster() {
    local folder pid
    free 3
    folder=$(mktemp -d "$work/server.XXXXXX")
    PORT=$port NODES=3 DIR=$folder SERVER=$server scripts/run-cluster.sh >"$folder/log" 2>&1 &
    pid=$!
    servers="$servers $pid"
    until grep -q 'cluster is ready' "$folder/log"; do
        if ! kill -0 $pid 2>/dev/null; then
            echo "examples: no cluster" >&2
            tail -n 20 "$folder/log" >&2
            exit 1
        fi
        sleep 0.05
    done
    nodes=$(seq "$port" $((port + 2)))
}

# build <language>
build() {
    local log=$work/$1.log status=0
    mkdir -p "$work/$1"
    [ -x "examples/$1/build.sh" ] || return 0
    echo "examples: building $1"
    OUT=$work/$1 "examples/$1/build.sh" >"$log" 2>&1 || status=$?
    case $status in
    0) return 0 ;;
    3) missing="$missing
examples: NOT RUN: $1: $(grep '^missing' "$log" || tail -n 1 "$log")" ;;
    *) fail "$1: build.sh" "$log" ;;
    esac
    return 1
}

# try <language>: its own test, on a server of its own.
try() {
    local log=$work/$1.log
    [ -x "examples/$1/test.sh" ] || return 0
    start "$server"
    if OUT=$work/$1 RWLOCK_URL=redis://127.0.0.1:$port RWLOCK_SERVER=$server RWLOCK_MODULE=$library \
        "examples/$1/test.sh" >"$log" 2>&1; then
        echo "examples: $1  test ok"
    else
        fail "$1: test.sh" "$log"
    fi
    stop_servers
}

# contend <where>: all workers at once, on the server at port. Their results are in
# $work/<where>/<library>.json
contend() {
    local where=$1 folder=$work/$1 language id command pids='' pid lock key
    rm -rf "$folder"
    mkdir -p "$folder"
    for language in $built; do
        [ -e "examples/$language/workers" ] || continue
        while read -r id command; do
            (
                export OUT=$work/$language RWLOCK_URL=redis://127.0.0.1:$port
                export RWLOCK_LOCKS=$locks RWLOCK_SECONDS=$seconds
                [ "$where" != cluster ] || export RWLOCK_CLUSTER=1
                cd "$OUT"
                # No shell of its own takes the words apart: they may have stars.
                set -f
                # shellcheck disable=SC2086,SC2016 # a list of words, and one to replace
                exec ${command//'$OUT'/$OUT} "$id" >"$folder/$id.json" 2>"$folder/$id.log"
            ) &
            pids="$pids $id:$!"
        done <"examples/$language/workers"
    done
    # One that hangs does not hold up the others for ever.
    # shellcheck disable=SC2046,SC2086 # a list of words
    (sleep $((seconds + 90)) && kill $(printf '%s\n' $pids | sed 's/.*://')) 2>/dev/null &
    local watch=$!
    for pid in $pids; do
        if wait "${pid#*:}"; then
            verdicts="$verdicts
${pid%:*} $where ok"
        else
            verdicts="$verdicts
${pid%:*} $where FAIL"
            fail "${pid%:*} on $where" "$folder/${pid%:*}.log"
        fi
    done
    kill $watch 2>/dev/null || :
    wait $watch 2>/dev/null || :

    for lock in $locks; do
        for key in w r; do
            case $(ask GET "{$lock}:witness:$key") in '' | 0) ;; *) fail "$where: {$lock}:witness:$key is left" ;; esac
        done
        [ "$(ask RWLOCK.INSPECT "$lock" | sed -n 2p)" = free ] || fail "$where: $lock is still held"
    done
    for port in ${nodes:-$port}; do
        [ -z "$(ask RWLOCK.QUEUES)" ] || fail "$where: somebody still waits"
        ! ask INFO rwlock | grep -E '^rwlock_(waiters|queues|session_holds):' | grep -qv ':0\s*$' ||
            fail "$where: INFO rwlock still counts some"
    done
    stop_servers
}

ask() { "$cli" -c --raw -p "$port" "$@"; }

# The name of a server's line of versions, as in engines/.
name_of() { "$1" --version | sed -nE 's/^(\w+) server v=([0-9]+\.[0-9]+).*/\L\1\E-\2/p'; }

# The number behind a word in a line of JSON.
number() { sed -nE "s/.*\"$1\": ?([0-9]+).*/\1/p" "$2"; }

rm -rf "$work"/server.*
wanted=${RWLOCK_EXAMPLES_ONLY:-$(cd examples && for folder in */; do echo "${folder%/}"; done)}
built=
for language in $wanted; do
    [ -d "examples/$language" ] || { echo "examples: there is no examples/$language" >&2 && exit 1; }
    ! build "$language" || built="$built $language"
done
for language in $built; do
    try "$language"
done

places=$(name_of "$server") verdicts='' nodes=
start "$server"
contend "$places"
valkey=
for engine in "$root"/engines/valkey-*/server; do
    [ ! -x "$engine" ] || valkey=$engine
done
if [ "${places%-*}" = valkey ]; then
    : # It was one already.
elif [ -n "$valkey" ]; then
    place=$(name_of "$valkey")
    places="$places $place"
    start "$valkey"
    contend "$place"
else
    missing="$missing
examples: NOT RUN: any of them on Valkey: make engines fetches one"
fi
places="$places cluster"
start_cluster
contend cluster
rm -rf "$work"/server.*

ran=0 complete=0
ids=$(awk 'NF && !seen[$1]++ { print $1 }' <<<"$verdicts")
for id in $ids; do
    line='' name=$id reads=0 writes=0 timeouts=0 good=yes
    for place in $places; do
        verdict=$(awk -v id="$id" -v place="$place" '$1 == id && $2 == place { print $3 }' <<<"$verdicts")
        [ "$verdict" = ok ] || good=
        line="$line${line:+, }$place $verdict"
        result=$work/$place/$id.json
        [ -n "$(number reads "$result")" ] || continue
        name=$(sed -nE 's/.*"library": ?"([^"]+)".*/\1/p' "$result")
        reads=$((reads + $(number reads "$result")))
        writes=$((writes + $(number writes "$result")))
        timeouts=$((timeouts + $(number timeouts "$result")))
    done
    ran=$((ran + 1))
    [ -z "$good" ] || complete=$((complete + 1))
    printf 'examples: %-20s %s  (%d reads, %d writes, %d timeouts)\n' "$name" "$line" $reads $writes $timeouts
done
[ -z "$missing" ] || echo "${missing#?}" >&2
echo "examples: $complete of $ran libraries pass${failed:+; failed: $failed}"
[ -z "$failed" ] && [ $complete = $ran ] && [ $ran -gt 0 ] || exit 1
# What was asked for by name has to run.
[ -z "${RWLOCK_EXAMPLES_ONLY:-}" ] || [ -z "$missing" ]
