#!/usr/bin/env bash
# Compares a server with the model of the contract in tests/model, for TIME seconds.
#
# SEED=      the first history; else a random one
# ENGINE=    one of those that `make engines` fetches; else SERVER or the installed one
# PROFILE=   mixed, circles or sessions; else all three in turn
# WITHOUT=   kinds of steps to leave out
# MODULE=    the module; else it is built
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "model-test: NOT RUN: it needs Python 3.11 or later" >&2
    exit 3
fi
scripts/setup.sh server
server=$(scripts/server.sh)
module=$(scripts/module.sh)
mkdir -p "$target/model"
out=$(cd "$target/model" && pwd)
cd tests
export PYTHONDONTWRITEBYTECODE=1
python3 -m unittest -q model.test_model
exec python3 -m model --server "$server" --module "$module" --out "$out" --time "${TIME:-60}" \
    ${SEED:+--seed "$SEED"} --profile "${PROFILE:-}" --without "${WITHOUT:-}"
