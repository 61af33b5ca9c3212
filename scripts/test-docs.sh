#!/usr/bin/env bash
# Runs the commands of README.md and docs/ that no other test runs: the first ones, in a clone of
# what is committed; redis_exporter with the script; `make top` with a password; the setting of
# the kernel, in a network namespace. Exits 3 if the machine lacks what one of them needs.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
not_run=''

fail() {
    echo "test-docs: $*" >&2
    exit 1
}

# command_of <page> <words>: the one indented line of the page that begins with these words.
command_of() {
    local found
    found=$(sed -nE "s/^    ($2( .*|\$))/\1/p" "$1")
    case $found in
    '' | *$'\n'*) fail "$1 has not one line '$2'" ;;
    *) echo "$found" ;;
    esac
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# answers <port> <line to send> <what comes back, as a pattern>
answers() {
    (
        exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf '%b' "$2" >&3
        timeout 5 grep -qaE -m 1 "$3" <&3
    ) 2>/dev/null
}

# soon <seconds> <what> <command...>
soon() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "$what: not within its time, see $work"
        sleep 0.2
    done
}

work=$(mktemp -d)
groups=''
stop() {
    for group in $groups; do
        kill -- "-$group" 2>/dev/null || :
        wait "$group" 2>/dev/null || :
    done
}
trap stop EXIT

# begin <log> <command...>: in the background, as a process group of its own. Reads its input.
begin() {
    local log=$1
    shift
    setsid "$@" >"$log" 2>&1 <&0 &
    groups="$groups $!"
}

git -C "$root" rev-parse HEAD >/dev/null 2>&1 || {
    echo "test-docs: NOT RUN: $root is no repository that can be cloned" >&2
    exit 3
}
port=$(free_port)
clone=$(command_of README.md 'git clone')
steps="${clone/<this repository>/$root} && $(command_of README.md 'make run')"
echo "test-docs: $steps"
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
cd "$work"
begin "$work/run.log" env PORT="$port" CARGO_TARGET_DIR="$target" bash -c "$steps" </dev/null
soon 900 'make run' answers "$port" 'RWLOCK.WLOCK hello ann 600000\r\n' '^\+OK'
soon 10 'make run tells what to type' grep -q 'The lock server is ready' "$work/run.log"
cd "$root"

version=$(sed -nE 's/.*redis_exporter.*\(here: ([0-9.]+)\).*/\1/p' docs/monitoring.md)
[ -n "$version" ] || fail 'docs/monitoring.md names no version of redis_exporter'
if command -v go >/dev/null; then
    mkdir "$work/exporter"
    cat >"$work/exporter/go.mod" <<EOF
module exporter

go 1.24

require github.com/oliver006/redis_exporter v$version.0
EOF
    cat >"$work/exporter/import.go" <<EOF
package exporter

import _ "github.com/oliver006/redis_exporter"
EOF
    (cd "$work/exporter" && go build -mod=mod -o redis_exporter github.com/oliver006/redis_exporter) \
        >"$work/exporter.log" 2>&1 || { cat "$work/exporter.log" >&2 && fail 'redis_exporter'; }
    line=$(command_of docs/monitoring.md redis_exporter)
    line=${line/localhost:6379/localhost:$port}
    echo "test-docs: $line"
    web=$(free_port)
    begin "$work/exporter.log" env PATH="$work/exporter:$PATH" \
        bash -c "$line --web.listen-address 127.0.0.1:$web" </dev/null
    # The lock that was taken above.
    soon 30 redis_exporter answers "$web" 'GET /metrics HTTP/1.0\r\n\r\n' \
        '^redis_script_values\{.*key="rwlock_held_locks".*\} 1$'
else
    not_run="$not_run redis_exporter (there is no Go)"
fi

steps="$(command_of docs/monitoring.md 'read -rs')"$'\n'"$(command_of docs/monitoring.md 'make top')"
steps=${steps/127.0.0.1:6379/127.0.0.1:$port}
echo "test-docs: $steps"
answers "$port" 'ACL SETUSER operator on >secret ~* &* +@all\r\n' '^\+OK' || fail 'ACL SETUSER'
begin "$work/top.log" bash -c "$steps" <<<secret
soon 30 'make top' grep -qa 'hello.*ann' "$work/top.log"

line=$(command_of docs/operations.md sysctl)
if unshare --net true 2>/dev/null && command -v sysctl >/dev/null; then
    echo "test-docs: $line"
    unshare --net bash -c "$line >/dev/null && cat /proc/sys/net/ipv4/tcp_retries2" >"$work/retries"
    [ "$(cat "$work/retries")" = "${line##*=}" ] || fail "$line gives $(cat "$work/retries")"
else
    not_run="$not_run sysctl (no network namespaces)"
fi

[ -z "$not_run" ] || { echo "test-docs: NOT RUN:$not_run" >&2 && exit 3; }
stop
groups=''
rm -rf "$work"
