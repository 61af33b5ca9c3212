#!/usr/bin/env bash
# Tests that the real Redisson and clients of the module share locks: on the server
# that is installed and on a Valkey, if there is one; then both kinds at once on the
# same locks, for a while.
#
# REDISSON="4.7.0 3.52.0"  the versions, from Maven's registry; Valkey gets the first
# SOAK_SECONDS=60          how long the soak lasts; 0: none
# SOAK_OPERATIONS=         or how many acquisitions, as fast as they go
# SOAK_HOLD_MS=3, SOAK_LONG=2000, SOAK_THREADS=8, SOAK_LOCKS=20: see Soak.java
set -eu
cd "$(dirname "$0")/.."
versions=${REDISSON:-4.7.0 3.52.0}
target=${CARGO_TARGET_DIR:-target}

missing=
command -v javac >/dev/null || missing="$missing javac (a JDK, 17 or later)"
command -v mvn >/dev/null || missing="$missing mvn (Maven, 3.8 or later)"
if [ -n "$missing" ]; then
    echo "test-redisson: NOT RUN: missing:$missing" >&2
    exit 3
fi
scripts/setup.sh build server
server=$(scripts/server.sh)
cargo build --release --locked
target=$(cd "$target" && pwd)
library=$target/release/librwlock.so
[ "$(uname)" != Darwin ] || library=${library%.so}.dylib
logs=$target/redisson
mkdir -p "$logs"

pid=
stop() {
    [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || :
    pid=
}
trap stop EXIT
trap 'exit 1' HUP INT TERM

# start <server>: a fresh one, with the module. Sets RWLOCK_URL.
start() {
    local port folder tries=0
    until port=$((20000 + RANDOM % 2000)) && ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    folder=$(mktemp -d "$logs/server.XXXXXX")
    "$1" --port "$port" --dir "$folder" --save '' --loadmodule "$library" >"$folder/log" 2>&1 &
    pid=$!
    export RWLOCK_URL=redis://127.0.0.1:$port
    until grep -q 'Ready to accept' "$folder/log"; do
        tries=$((tries + 1))
        if [ $tries -gt 500 ] || ! kill -0 $pid 2>/dev/null; then
            echo "test-redisson: $1 does not start" >&2
            tail -n 20 "$folder/log" >&2
            exit 1
        fi
        sleep 0.02
    done
}

# interop <version> <server>
interop() {
    local out=$logs/$1 log=$logs/interop-$1.log name
    name=$("$2" --version | sed -nE 's/^(\w+) server v=([0-9.]+).*/\1 \2/p')
    start "$2"
    if mvn -B test -f tests/redisson -Dredisson="$1" -Dout="$out" >"$log" 2>&1; then
        grep '^measured' "$log" | sort || :
        echo "test-redisson: Redisson $1, $name: $(sed -nE 's/.*(Tests run: [0-9]+, Failures: [0-9]+).*/\1/p' "$log" | tail -n 1): ok"
    else
        echo "test-redisson: Redisson $1, $name: FAIL (see $log)"
        tail -n 60 "$log"
        exit 1
    fi
    stop
}

rm -rf "$logs"/server.*
valkey=
for engine in engines/valkey-*/server; do
    [ ! -x "$engine" ] || valkey=$PWD/$engine
done
for version in $versions; do
    interop "$version" "$server"
done
if [ -n "$valkey" ]; then
    interop "${versions%% *}" "$valkey"
else
    echo "test-redisson: NOT RUN: Redisson on Valkey: make engines fetches one" >&2
fi

start "$server"
out=$logs/${versions%% *}
scripts/readme.sh tests/redisson/Migration.java.in docs/migration.md >"$out/Migration.java"
java -cp "$out/lib/*" "$out/Migration.java" | grep -x 'saved 1'
stop

if [ -n "${SOAK_OPERATIONS:-}" ] || [ "${SOAK_SECONDS:-60}" != 0 ]; then
    start "$server"
    java -cp "$out/test-classes:$out/lib/*" Soak
    stop
fi
rm -rf "$logs"/server.*
