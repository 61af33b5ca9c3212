#!/usr/bin/env bash
# Runs the test suites of Redis and Valkey themselves without the module and with it, on servers
# that are built from Debian's source packages. With the module, each server that a test starts
# first takes a lock and gives it back; without it, it writes and deletes a key instead.
# Fails if a test fails with the module and not without it. About an hour in all.
#
# SUITES="redis-7.0 valkey-unstable"   which servers, under the names of scripts/engines.sh
# ONLY=      parts of a suite, such as "unit/multi unit/scripting"; else all of it
# USE=0      servers are not used before the test: a few tests expect an AOF without anything else
# CLIENTS=4  how many parts run at once
# MODULE=    the module; else it is built
#
# Exits 3 where something that it needs is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() {
    echo "server-suites: NOT RUN: $*" >&2
    exit 3
}

# shellcheck source=own-apt.sh
. scripts/own-apt.sh
mirror=$(scripts/mirror.sh) || :
if [ ! -r "$keyring" ] || [ -z "$mirror" ]; then
    not_run "the sources come from Debian's archive, and this system has no apt sources for it"
fi
scripts/setup.sh suites
module=$(scripts/module.sh)
mkdir -p "${CARGO_TARGET_DIR:-target}/server-suites"
work=$(cd "${CARGO_TARGET_DIR:-target}/server-suites" && pwd)

# fetch <package> <Debian's suite> <folder>
fetch() {
    local folder=$3 state=$3.apt apt
    rm -rf "$folder" "$state"
    mkdir -p "$folder"
    own_apt "$state" deb-src "$mirror" "$2"
    (cd "$state" && "${apt[@]}" source --download-only "$1")
    tar -xzf "$state"/*.orig.tar.gz -C "$folder" --strip-components=1
    make -C "$folder" -j"$(nproc)"
    # Each server that a test starts calls this before the test does.
    cat >>"$folder/tests/support/server.tcl" <<'TCL'

proc use_before_the_test {} {
    if {!$::env(USE)} {
        return
    }
    if {$::env(WITH_MODULE)} {
        set requests {
            {rwlock.wlock suite owner 30000} {rwlock.rlock suite other 30000} {rwlock.unlock suite owner}
        }
    } else {
        set requests {{set suite owner} {get suite} {del suite}}
    }
    set replies {}
    foreach request $requests {
        catch {[srv 0 client] {*}$request} reply
        lappend replies $reply
    }
    set file [open $::env(REPLIES) a]
    puts $file $replies
    close $file
}
TCL
    sed -i 's/^\( *\)# remember previous num_failed to catch new errors$/\1use_before_the_test\n&/' \
        "$folder/tests/support/server.tcl"
    grep -q '^ *use_before_the_test$' "$folder/tests/support/server.tcl"
    touch "$folder/fetched"
}

# suite <folder> <0 or 1: with the module> <log>
suite() {
    local folder=$1 log=$3 options=(--clients "${CLIENTS:-4}")
    [ "$2" = 0 ] || options+=(--config loadmodule "$module")
    for part in ${ONLY:-}; do
        options+=(--single "$part")
    done
    : >"$log.replies"
    # Its exit code only says that some test failed: which ones is in the log.
    (cd "$folder" && WITH_MODULE=$2 USE=${USE:-1} REPLIES=$log.replies ./runtest "${options[@]}") >"$log" 2>&1 || :
    sed 's/\x1b\[[0-9;]*m//g' "$log" >"$log.plain"
    grep -q 'The End\|All tests passed\|tests failed' "$log.plain" ||
        { echo "server-suites: the suite did not end, see $log" >&2 && exit 1; }
    # "[err]: name of the test in tests/unit/x.tcl"
    grep -oE '\[(err|exception|TIMEOUT)\].*' "$log.plain" | sort -u >"$log.failed" || :
    echo "  $(grep -c '^\[ok\]' "$log.plain") passed, $(wc -l <"$log.failed") failed," \
        "$(wc -l <"$log.replies") servers used, the first replied: $(head -n 1 "$log.replies")"
}

status=0
for name in ${SUITES:-redis-7.0 valkey-unstable}; do
    read -r package release < <(scripts/engines.sh table | awk -v name="$name" '$1 == name { print $2, $NF }') || :
    [ -n "${package:-}" ] || { echo "server-suites: there is no server $name" >&2 && exit 1; }
    folder=$work/$name
    if [ ! -e "$folder/fetched" ]; then
        echo "server-suites: fetching and building $name"
        fetch "${package%-server}" "$release" "$folder" >"$work/$name.build.log" 2>&1 ||
            { echo "server-suites: see $work/$name.build.log" >&2 && exit 1; }
    fi
    echo "$name without the module:"
    suite "$folder" 0 "$work/$name.without"
    echo "$name with the module:"
    suite "$folder" 1 "$work/$name.with"
    [ "${USE:-1}" = 0 ] || grep -q '^OK' "$work/$name.with.replies" || { echo "no server took the lock" >&2 && exit 1; }
    if comm -13 "$work/$name.without.failed" "$work/$name.with.failed" | grep .; then
        echo "$name: the tests above failed with the module alone, see $work/$name.with" >&2
        status=1
    fi
done
exit $status
