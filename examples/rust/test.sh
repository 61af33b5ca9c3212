#!/bin/sh
# Tests the helper on the server at $RWLOCK_URL, which has to be the test's alone:
# it is demoted for a moment. Then runs the code of README.md.
set -eu
cd "$(dirname "$0")"
out=${OUT:-../../target/examples/rust}
CARGO_TARGET_DIR=$out cargo test --quiet --release --locked
../../scripts/readme.sh readme.rs.in >"$out/readme.rs"
# In place of the files of the helper, which are in the library already.
echo 'pub use rwlock_example::rwlock::*;' >"$out/rwlock.rs"
rustc --edition 2021 -L "dependency=$out/release/deps" \
    --extern "rwlock_example=$out/release/librwlock_example.rlib" -o "$out/readme" "$out/readme.rs"
"$out/readme" >"$out/readme.txt"
grep "orders now: token [1-9]" "$out/readme.txt"
