#!/usr/bin/env bash
# Three readers and two writers, each a process, on one lock. Prints what happens when.
set -eu
cd "$(dirname "$0")"
# shellcheck source=rwlock.sh
. ./rwlock.sh
# shellcheck disable=SC2034 # rwlock.sh reads it
RWLOCK_CLI="redis-cli -u ${REDIS_URL:-redis://127.0.0.1:6379}"
start=${EPOCHREALTIME/[.,]/}

says() { printf '%5d ms  %s  %s\n' $(((${EPOCHREALTIME/[.,]/} - start) / 1000)) "$who" "$1"; }

reads() {
    says reads
    sleep 0.3
    says 'is done'
}

writes() {
    says "WRITES, with token $RWLOCK_TOKEN"
    sleep 0.2
    says 'is done'
}

run() {
    who=$1
    # shellcheck disable=SC2034 # rwlock.sh reads it
    RWLOCK_NAME=$1
    for _ in 1 2; do
        says asks
        case $who in
        reader*) with_read_lock --wait-ms 10000 demo reads ;;
        writer*) with_write_lock --wait-ms 10000 --fence demo writes ;;
        esac
    done
}

pids=
for who in 'reader 1' 'reader 2' 'writer 1' 'reader 3' 'writer 2'; do
    run "$who" &
    pids="$pids $!"
    sleep 0.05 # so that they ask in this order
done
for pid in $pids; do
    wait "$pid"
done
