#!/usr/bin/env bash
# Changes the rules in src/core, in one place at a time, and runs their unit tests: a mutant
# that no test notices is a gap in the tests. .cargo/mutants.toml has the mutants that are left
# out, each with the reason. Exits 2 if mutants survive, 3 if the tests of one run without end.
#
# The rules use nothing else of the module but planted.rs, which does nothing here. So they are tested here as a package of their own,
# which compiles in a third of the time, and in a copy, so that src stays as it is. The long
# tests run in a small size first, and in full only for the mutants that survive that.
#
# ONLY=      a pattern of mutants, such as src/core/release or WaitList
# SHORTER=   by how much the long tests are shorter, run by run; else "300 15 1"
set -eu
cd "$(dirname "$0")/.."
version=27.1.0

cargo mutants --version >/dev/null 2>&1 || {
    scripts/setup.sh build
    cargo install cargo-mutants --locked --version "$version"
}
mkdir -p "${CARGO_TARGET_DIR:-target}/mutants"
out=$(cd "${CARGO_TARGET_DIR:-target}/mutants" && pwd)
package=$out/rules
rm -rf "$package" "$out/mutants.out"
mkdir -p "$package/src"
cp -R src/core src/planted.rs "$package/src"
cp Cargo.lock "$package"
printf 'pub mod core;\nmod planted;\n' >"$package/src/lib.rs"
cat >"$package/Cargo.toml" <<END
[package]
name = "rules"
version = "0.0.0"
edition = "2021"

[workspace]

[features]
planted-bugs = []

[profile.mutants]
inherits = "dev"
opt-level = 2
debug = false

[dependencies]
$(grep -E '^(hashbrown|smallvec) ' Cargo.toml)

[dev-dependencies]
$(grep -E '^proptest ' Cargo.toml)
END

export CARGO_TARGET_DIR="$out/build" RUST_BACKTRACE=0
# The smallest history that shows a mutant is of no use here.
export PROPTEST_MAX_SHRINK_ITERS=0
# A loop without end may take memory as well as time.
ulimit -v 8000000 2>/dev/null || :

run() {
    nice -n 10 cargo mutants --dir "$package" --in-place --config .cargo/mutants.toml \
        --output "$out" --no-times ${ONLY:+--re "$ONLY"} "$@"
}
again=
for RWLOCK_TESTS_SHORTER in ${SHORTER:-300 15 1}; do
    export RWLOCK_TESTS_SHORTER
    echo "mutants: long tests in 1/$RWLOCK_TESTS_SHORTER of their size"
    status=0
    # --iterate: without the mutants that an earlier run has caught.
    run ${again:+--iterate} || status=$?
    again=1
    case $status in
    2 | 3) ;;
    *) exit "$status" ;;
    esac
done
exit "$status"
