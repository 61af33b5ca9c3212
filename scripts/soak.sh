#!/usr/bin/env bash
# Plays traffic on servers with the module while faults strike, and checks what the
# clients saw: see tests/robustness/README.md.
#
# TIME=60          seconds of traffic
# SEED=            of a run; it also chooses the mode of persistence. Else a random one
# ENGINE=          one of those that `make engines` fetches; else SERVER or the installed one
# TOPOLOGY=single  single, sentinel or cluster
# MODULE=          the module; else it is built
# FAULT=           only this kind of fault
# FIRST=1          stop at the first violation
# REPLAY=          a folder of a failed round: check its history again
#
# Exits 1 after a violation, and 3 where something that it needs is missing.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

for program in go cc; do
    command -v $program >/dev/null || {
        echo "soak: NOT RUN: missing: $program (Go 1.26 or later, a C compiler)" >&2
        exit 3
    }
done
mkdir -p "$target/soak"
out=$(cd "$target/soak" && pwd)
(cd tests/robustness && go build -o "$out/soak" .)
if [ -n "${REPLAY:-}" ]; then
    exec "$out/soak" -replay "$REPLAY"
fi

scripts/setup.sh server
server=$(scripts/server.sh)
module=$(scripts/module.sh)
exec "$out/soak" -server "$server" -engine "${ENGINE:-$(basename "$server")}" -module "$module" \
    -clock "$PWD/tests/support/src/server/clock.c" -out "$out" -topology "${TOPOLOGY:-single}" \
    -time "${TIME:-60}" ${SEED:+-seed "$SEED"} ${FAULT:+-fault "$FAULT"} ${FIRST:+-first}
