#!/usr/bin/env bash
# Adds the inputs that `make fuzz CORPUS=<folder>` has found to fuzz/corpus, and keeps the fewest
# that reach the same code. Needs the targets that `make fuzz` has built.
#
# fuzz-corpus.sh <folder> [target...]
set -euo pipefail
export ASAN_OPTIONS=detect_leaks=0
found=$(cd "${1:?usage: fuzz-corpus.sh <folder> [target...]}" && pwd)
cd "$(dirname "$0")/.."
shift
if [ $# = 0 ]; then
    mapfile -t all < <(cd fuzz/fuzz_targets && basename -s .rs -- *.rs)
    set -- "${all[@]}"
fi
for name; do
    binary=$(find "${CARGO_TARGET_DIR:-target}/fuzz" -path "*/release/$name" -type f -perm -u+x | head -n 1)
    new=$(mktemp -d)
    mkdir -p "fuzz/corpus/$name"
    # How often a line runs makes no difference here, or the corpus would be ten times as large.
    "$binary" -set_cover_merge=1 -use_counters=0 "$new" "fuzz/corpus/$name" "$found/$name" 2>&1 | tail -n 1
    rm -rf "fuzz/corpus/$name"
    mv "$new" "fuzz/corpus/$name"
    chmod 755 "fuzz/corpus/$name"
    echo "fuzz-corpus: $name: $(find "fuzz/corpus/$name" -type f | wc -l) inputs, $(du -sb --apparent-size "fuzz/corpus/$name" | cut -f1) bytes"
done
