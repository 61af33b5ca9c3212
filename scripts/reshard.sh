#!/usr/bin/env bash
# Cluster clients of three languages (redis-py, node-redis, go-redis) take locks while slots move,
# primaries are killed, replicas are promoted, and nodes come and go: see
# tests/robustness/reshard/README.md.
#
# TIME=60    seconds
# SEED=      of the changes; else a random one
# ENGINE=    one of those that `make engines` fetches; else SERVER or the installed one
# MODULE=    the module; else it is built
# EACH=3     processes of each language
#
# Exits 1 after a violation, and 3 where something that it needs is missing.
set -eu
cd "$(dirname "$0")/.."
for program in go cc npm python3; do
    command -v $program >/dev/null || {
        echo "reshard: NOT RUN: missing: $program" >&2
        exit 3
    }
done
scripts/setup.sh server
server=$(scripts/server.sh)
module=$(scripts/module.sh)
mkdir -p "${CARGO_TARGET_DIR:-target}/reshard"
out=$(cd "${CARGO_TARGET_DIR:-target}/reshard" && pwd)
for language in python node; do
    mkdir -p "$out/$language"
    OUT=$out/$language "examples/$language/build.sh"
done
cp tests/robustness/reshard/worker.py "$out/python/reshard_worker.py"
cp tests/robustness/reshard/worker.mjs "$out/node/reshard-worker.mjs"
(cd tests/robustness/reshard/worker && go build -o "$out/go-worker" .)
(cd tests/robustness && go build -o "$out/reshard" ./reshard)
exec "$out/reshard" -server "$server" -engine "${ENGINE:-$(basename "$server")}" -module "$module" \
    -clock "$PWD/tests/support/src/server/clock.c" -out "$out/run-${ENGINE:-$(basename "$server")}" \
    -time "${TIME:-60}" -each "${EACH:-3}" ${SEED:+-seed "$SEED"} -workers "python $out/python/venv/bin/python $out/python/reshard_worker.py
node node $out/node/reshard-worker.mjs
go $out/go-worker"
