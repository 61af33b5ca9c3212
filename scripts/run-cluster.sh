#!/usr/bin/env bash
# Builds the module and runs a cluster of primaries with it on this machine, in the foreground.
#
# PORT=7001        of the first node, the others follow; each also needs its port + 10000
# NODES=3          primaries
# SERVER=, ENGINE= the server program
# DIR=             where the data is kept; else .run/cluster-PORT
set -eu
cd "$(dirname "$0")/.."
port=${PORT:-7001} nodes=${NODES:-3} target=${CARGO_TARGET_DIR:-target}

fail() {
    echo "run-cluster: $*" >&2
    exit 1
}

number() { [[ $2 =~ ^[1-9][0-9]{0,4}$ && $2 -ge $3 && $2 -le $4 ]] || fail "$1=$2 is not from $3 to $4"; }
number NODES "$nodes" 1 1000
number PORT "$port" 1 $((55536 - nodes))
scripts/setup.sh build server
server=$(scripts/server.sh)
cli=$(command -v redis-cli || command -v valkey-cli) || fail "there is no redis-cli and no valkey-cli"
ports=$(seq "$port" $((port + nodes - 1)))
for node in $ports; do
    for used in "$node" $((node + 10000)); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$used") 2>/dev/null; then
            fail "port $used is in use: stop what listens there, or choose another with PORT="
        fi
    done
done
cargo build --release --locked
library=librwlock.so
[ "$(uname)" != Darwin ] || library=librwlock.dylib
library=$(cd "$target/release" && pwd)/$library
dir=${DIR:-.run/cluster-$port}

pids=''
stop() {
    trap '' INT TERM
    for pid in $pids; do kill "$pid" 2>/dev/null || :; done
    wait
}
trap stop EXIT
trap 'exit 0' INT TERM HUP

for node in $ports; do
    mkdir -p "$dir/$node"
    "$server" redis.conf --port "$node" --dir "$dir/$node" --logfile log --loadmodule "$library" \
        --cluster-enabled yes --cluster-announce-ip 127.0.0.1 &
    pids="$pids $!"
done

# alive: else says why not
alive() {
    local pid node
    for pid in $pids; do
        kill -0 "$pid" 2>/dev/null && continue
        for node in $ports; do tail -n 3 "$dir/$node/log" >&2 || :; done
        fail "a server does not run, its log is in $dir"
    done
}

# until_all <what> <word> <command>...: until the reply of each node has the word.
until_all() {
    local what=$1 word=$2 node tries=0
    shift 2
    for node in $ports; do
        until "$cli" -p "$node" "$@" 2>/dev/null | grep -q "$word"; do
            alive
            tries=$((tries + 1))
            [ $tries -lt 1200 ] || fail "$what: not within a minute"
            sleep 0.05
        done
    done
}

until_all "the servers answer" PONG PING
# Servers that were a cluster before are one again.
if ! "$cli" -p "$port" CLUSTER INFO | grep -q 'cluster_slots_assigned:16384'; then
    first=0 number=0
    for node in $ports; do
        number=$((number + 1))
        last=$((16384 * number / nodes - 1))
        "$cli" -p "$node" CLUSTER SET-CONFIG-EPOCH $number >/dev/null
        "$cli" -p "$node" CLUSTER ADDSLOTSRANGE $first $last >/dev/null
        "$cli" -p "$port" CLUSTER MEET 127.0.0.1 "$node" >/dev/null
        first=$((last + 1))
    done
fi
until_all "the nodes agree" "cluster_known_nodes:$nodes" CLUSTER INFO
until_all "all slots are served" cluster_state:ok CLUSTER INFO

cat <<EOF

The cluster is ready: $nodes primaries from 127.0.0.1:$port on. In another terminal:

  $(basename "$cli") -c -p $port RWLOCK.WLOCK hello ann 600000   take the lock "hello" for ten minutes: OK
  $(basename "$cli") -c -p $port RWLOCK.RLOCK hello bob 600000   refused: the ms until it ends
  $(basename "$cli") -c -p $port RWLOCK.UNLOCK hello ann         give it back
  make top URL=redis://127.0.0.1:$port                  the locks of all nodes

Ctrl-C stops the servers. Their locks stay in $dir.

EOF
wait -n || :
alive
