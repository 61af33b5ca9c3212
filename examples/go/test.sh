#!/bin/sh
# Tests the helper on the server at $RWLOCK_URL, which has to be the test's alone:
# it is demoted for a moment. Then runs the code of README.md.
set -eu
cd "$(dirname "$0")"
go test -count=1 ./rwlock
# The program is in $out only: an overlay shows it to Go as a folder of this module.
out=$(cd "${OUT:-../../target/examples/go}" && pwd)
../../scripts/readme.sh readme.go.in >"$out/readme.go"
printf '{"Replace": {"%s": "%s"}}' "$PWD/readme/main.go" "$out/readme.go" >"$out/overlay.json"
go run -buildvcs=false -overlay "$out/overlay.json" ./readme >"$out/readme.txt"
grep "orders now: token [1-9]" "$out/readme.txt"
