#!/usr/bin/env bash
# Takes locks for a while, in turns with the workers of all other languages, and checks
# that nobody else is in: `worker.sh <name>`. See ../README.md.
set -eu
cd "$(dirname "$0")"
# shellcheck source=rwlock.sh
. ./rwlock.sh
name=$1
read -r -a locks <<<"$RWLOCK_LOCKS"
RWLOCK_CLI="redis-cli -u $RWLOCK_URL ${RWLOCK_CLUSTER:+-c}"
reads=0 writes=0 timeouts=0 violations=0

ask() { $RWLOCK_CLI --raw "$@"; }

violated() {
    violations=$((violations + 1))
    echo "$name: $lock: $1" >&2
}

pause() { sleep "0.00$((RANDOM % 4))"; }

write() {
    local readers last
    [ "$(ask SET "{$lock}:witness:w" "$name" NX)" = OK ] || violated 'another writer'
    readers=$(ask GET "{$lock}:witness:r")
    [ "${readers:-0}" = 0 ] || violated "$readers readers beside a writer"
    last=$(ask GET "{$lock}:witness:token")
    [ "$RWLOCK_TOKEN" -gt "${last:-0}" ] || violated "token $RWLOCK_TOKEN after $last"
    ask SET "{$lock}:witness:token" "$RWLOCK_TOKEN" >/dev/null
    pause
    ask DEL "{$lock}:witness:w" >/dev/null
    writes=$((writes + 1))
}

read_() {
    local writer
    ask INCR "{$lock}:witness:r" >/dev/null
    writer=$(ask GET "{$lock}:witness:w")
    [ -z "$writer" ] || violated "the writer $writer beside a reader"
    pause
    ask DECR "{$lock}:witness:r" >/dev/null
    reads=$((reads + 1))
}

end=$((SECONDS + ${RWLOCK_SECONDS:-10}))
while [ $SECONDS -lt $end ]; do
    lock=${locks[RANDOM % ${#locks[@]}]} status=0
    if [ $((RANDOM % 3)) = 0 ]; then
        with_write_lock --wait-ms 5000 --fence "$lock" write || status=$?
    else
        with_read_lock --wait-ms 5000 "$lock" read_ || status=$?
    fi
    case $status in
    0) ;;
    75) timeouts=$((timeouts + 1)) ;;
    *) violated "status $status" ;;
    esac
done
printf '{"name": "%s", "library": "redis-cli", "reads": %d, "writes": %d, "timeouts": %d, "violations": %d}\n' \
    "$name" $reads $writes $timeouts $violations
[ $violations = 0 ] && [ $((reads + writes)) -gt 0 ]
