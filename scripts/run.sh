#!/usr/bin/env bash
# Builds the module and runs a server with it in the foreground.
set -eu
cd "$(dirname "$0")/.."
port=${PORT:-6379}
target=${CARGO_TARGET_DIR:-target}

fail() {
    echo "run: $*" >&2
    exit 1
}

answers() {
    (
        exec 3<>"/dev/tcp/127.0.0.1/$port"
        printf 'PING\r\n' >&3
        read -r -t 1 reply <&3
        [[ $reply == +PONG* ]]
    ) 2>/dev/null
}

# Once the server answers, so that its log does not scroll this away.
say_what_to_type() {
    until answers; do
        kill -0 $$ 2>/dev/null || exit 0
        sleep 0.1
    done
    local cli
    cli=$(command -v redis-cli >/dev/null && echo redis-cli || echo valkey-cli)
    [ "$port" = 6379 ] || cli="$cli -p $port"
    cat <<EOF

The lock server is ready on 127.0.0.1:$port. In another terminal:

  $cli RWLOCK.WLOCK hello ann 600000  take the lock "hello" for ten minutes: OK
  $cli RWLOCK.RLOCK hello bob 600000  refused: the ms until it ends
  $cli -3 RWLOCK.INSPECT hello        who holds it
  $cli RWLOCK.UNLOCK hello ann        give it back
  $cli RWLOCK.HELP                    all commands

Ctrl-C stops the server. Its locks stay in .run/$port.

EOF
}

[[ $port =~ ^[1-9][0-9]{0,4}$ && $port -le 65535 ]] || fail "PORT=$port is no port"
scripts/setup.sh build server
server=$(scripts/server.sh)
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is in use: stop what listens there, or choose another with PORT="
fi
cargo build --release --locked

library=librwlock.so
[ "$(uname)" != Darwin ] || library=librwlock.dylib
target=$(cd "$target" && pwd)
mkdir -p ".run/$port"
# Not a child of the server: it would wonder about one that it did not start.
(say_what_to_type &)
exec "$server" redis.conf --port "$port" --dir ".run/$port" --loadmodule "$target/release/$library"
