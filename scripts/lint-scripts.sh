#!/usr/bin/env bash
# Checks the shell scripts with shellcheck, and the workflows and the scripts in them
# with actionlint. Exits 3, after all other checks, where one of the two cannot be had.
set -eu
cd "$(dirname "$0")/.."
# The last one that Debian 12's Go can build.
actionlint=github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
target=${CARGO_TARGET_DIR:-target}
status=0

not_run() {
    echo "lint-scripts: NOT CHECKED: $*" >&2
    status=3
}

if scripts/setup.sh shellcheck; then
    mapfile -t scripts < <(grep -rlE --exclude='*.md' '^#!.*[/ ](ba)?sh$|^# shellcheck shell=bash$' .ci scripts examples packaging tests)
    (set -x && shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}")
else
    not_run "the shell scripts: no shellcheck"
fi

# From the PATH, or built here.
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
PATH=$PATH:$tools
if ! command -v actionlint >/dev/null && scripts/setup.sh actionlint; then
    GOBIN=$tools go install "$actionlint" || :
fi
if command -v actionlint >/dev/null; then
    (set -x && actionlint)
else
    not_run "the workflows: no actionlint, nor a Go that could build it"
fi
exit $status
