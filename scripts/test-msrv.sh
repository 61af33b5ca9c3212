#!/bin/sh
# Builds all there is, tests and benchmarks too, with the oldest Rust that
# Cargo.toml promises. Exits 3 where that Rust cannot be had.
set -eu
cd "$(dirname "$0")/.."

version=$(awk -F '"' '$1 == "rust-version = " { print $2; exit }' Cargo.toml)

not_run() {
    echo "test-msrv: NOT RUN: $*" >&2
    exit 3
}

# is_version <cargo...>: whether it is that Rust.
is_version() {
    case $("$@" --version 2>/dev/null) in
    "cargo $version."*) return 0 ;;
    *) return 1 ;;
    esac
}

if is_version cargo; then
    toolchain=
else
    command -v rustup >/dev/null || not_run "Rust $version is missing, and there is no rustup to install it"
    toolchain=+$version
    is_version cargo "$toolchain" ||
        rustup toolchain install "$version" --profile minimal --no-self-update ||
        not_run "rustup could not install Rust $version"
fi
scripts/setup.sh build
# A folder of its own: one compiler would throw away what the other built.
cargo ${toolchain:+"$toolchain"} check --locked --all-targets --target-dir "${CARGO_TARGET_DIR:-target}/msrv"
echo "test-msrv: passed with Rust $version"
