#!/usr/bin/env bash
# Fuzzes by coverage (libFuzzer): runs the inputs of fuzz/corpus, then new ones for TIME seconds.
# Exits 3 where there is no nightly Rust, which the sanitizer and the counters need.
#
# TARGET=    one of fuzz/fuzz_targets, or all (two at a time)
# TIME=      seconds for each; 0: only the inputs of fuzz/corpus, which any Rust can run
# CORPUS=    where new inputs are kept; else they are dropped: fuzz/corpus stays as it is
set -euo pipefail
cd "$(dirname "$0")/.."
time=${TIME:-60} target=${TARGET:-all}
# A folder of its own: one compiler would throw away what the other built.
CARGO_TARGET_DIR=$(mkdir -p "${CARGO_TARGET_DIR:-target}/fuzz" && cd "${CARGO_TARGET_DIR:-target}/fuzz" && pwd)
export CARGO_TARGET_DIR
# Where a process may not trace another, the search for leaks fails. The targets count strings,
# keys and clients that are left, and libFuzzer ends a process that grows.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}

not_run() {
    echo "fuzz: NOT RUN: $*" >&2
    exit 3
}

all=$(find fuzz/fuzz_targets -name '*.rs' -exec basename {} .rs \; | sort)
if [ "$target" = all ]; then
    targets=$all
else
    grep -qx "$target" <<<"$all" || {
        echo "fuzz: no target $target, there are: ${all//$'\n'/ }" >&2
        exit 1
    }
    targets=$target
fi

if [ "$time" = 0 ]; then
    scripts/setup.sh build fuzz
    replay=$CARGO_TARGET_DIR/replay
    RUSTFLAGS='--cfg fuzzing' cargo build --release --locked --manifest-path fuzz/Cargo.toml --target-dir "$replay"
    for name in $targets; do
        log=$CARGO_TARGET_DIR/$name.log
        "$replay/release/$name" "fuzz/corpus/$name"/* >"$log" 2>&1 || {
            tail -n 60 "$log" >&2
            echo "fuzz: $name FAILED at the input that it names last, the whole output is in $log" >&2
            exit 1
        }
        echo "fuzz: $name: $(grep -c '^Executed ' "$log") inputs"
    done
    exit
fi

command -v rustup >/dev/null || not_run "there is no rustup, which has a nightly Rust"
rustc +nightly --version >/dev/null 2>&1 ||
    rustup toolchain install nightly --profile minimal --no-self-update ||
    not_run "rustup could not install a nightly Rust"
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked ||
    not_run "cargo-fuzz could not be installed"
scripts/setup.sh build fuzz

# Only what a target needs is built. The first build takes some minutes, later ones are short.
if [ "$target" = all ]; then
    cargo +nightly fuzz build
else
    cargo +nightly fuzz build "$target"
fi

mkdir -p "$CARGO_TARGET_DIR/artifacts"
# fuzz_one <target>: with a corpus of its own, so that the one that is committed stays small.
fuzz_one() {
    local name=$1 log=$CARGO_TARGET_DIR/$1.log new binary
    new=${CORPUS:+$CORPUS/$name}
    new=${new:-$CARGO_TARGET_DIR/new/$name}
    [ -n "${CORPUS:-}" ] || rm -rf "$new"
    mkdir -p "$new" "fuzz/corpus/$name"
    binary=$(find "$CARGO_TARGET_DIR" -path "*/release/$name" -type f -perm -u+x | head -n 1)
    if "$binary" "$new" "fuzz/corpus/$name" -max_total_time="$time" -max_len=1000 -len_control=0 -timeout=60 \
        -artifact_prefix="$CARGO_TARGET_DIR/artifacts/$name-" -print_final_stats=1 >"$log" 2>&1; then
        # The line that libFuzzer ends with, and how much it covered.
        sed -nE 's/^#[0-9]+[[:space:]]+DONE +(.*) lim:.*/\1/p; s/^Done /  /p' "$log" | paste -sd' ' |
            sed "s/^/fuzz: $name: /"
        return
    fi
    tail -n 60 "$log" >&2
    local artifact
    artifact=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    cat >&2 <<END
fuzz: $name FAILED, the whole output is in $log
fuzz: to run this input again:
    CARGO_TARGET_DIR=$CARGO_TARGET_DIR cargo +nightly fuzz run $name $artifact
fuzz: to make it smaller:
    CARGO_TARGET_DIR=$CARGO_TARGET_DIR cargo +nightly fuzz tmin $name $artifact
END
    return 1
}

failed=''
while read -r one other; do
    fuzz_one "$one" &
    first=$!
    if [ -n "$other" ]; then
        fuzz_one "$other" || failed="$failed $other"
    fi
    wait "$first" || failed="$failed $one"
done < <(paste -sd' \n' <<<"$targets")
[ -z "$failed" ] || {
    echo "fuzz: failed:$failed" >&2
    exit 1
}
