#!/bin/sh
# Installs what is missing. What is wanted: build, fuzz, server, peers, deb, system, docker,
# valgrind, suites, fmt, clippy, shellcheck, actionlint.
set -eu

fail() {
    echo "setup: $*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Whether one of the files exists.
any() {
    for file; do
        [ ! -e "$file" ] || return 0
    done
    return 1
}

# bindgen needs libclang and the headers that come with the compiler.
have_libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    any /usr/lib*/llvm*/lib*/libclang.so* /usr/lib*/llvm*/lib*/libclang-[0-9]*.so* \
        /usr/lib*/libclang.so* /usr/lib/*/libclang-[0-9]*.so* \
        /Library/Developer/CommandLineTools/usr/lib/libclang.dylib \
        /Applications/Xcode.app/Contents/Developer/Toolchains/*/usr/lib/libclang.dylib \
        /opt/homebrew/opt/llvm*/lib/libclang.dylib /usr/local/opt/llvm*/lib/libclang.dylib &&
        { [ "$(uname)" = Darwin ] ||
            any /usr/lib*/llvm*/lib*/clang/*/include/stddef.h /usr/lib*/clang/*/include/stddef.h; }
}

have cargo || fail "no cargo: install a Rust toolchain first, see https://rustup.rs"

missing=
for want; do
    case $want in
    build)
        have cc || missing="$missing gcc libc6-dev"
        have_libclang || missing="$missing libclang-dev"
        ;;
    fuzz) have c++ || missing="$missing g++" ;;
    server)
        [ -n "${SERVER:-}${ENGINE:-}" ] || have redis-server || have valkey-server ||
            missing="$missing redis-server"
        ;;
    deb) have dpkg-shlibdeps || missing="$missing dpkg-dev" ;;
    system)
        have debootstrap || missing="$missing debootstrap"
        have ip || missing="$missing iproute2"
        ;;
    valgrind)
        # It replaces functions of the C library, which it finds by their debug information.
        have valgrind || missing="$missing valgrind libc6-dbg"
        ;;
    suites)
        have c++ || missing="$missing g++"
        have make || missing="$missing make"
        have tclsh || missing="$missing tcl"
        ;;
    docker) have buildah || missing="$missing buildah" ;;
    peers)
        have postgres || any /usr/lib/postgresql/*/bin/postgres || missing="$missing postgresql"
        have etcd || missing="$missing etcd-server"
        ;;
    fmt) cargo fmt --version >/dev/null 2>&1 || fail "no rustfmt: rustup component add rustfmt" ;;
    clippy) cargo clippy --version >/dev/null 2>&1 || fail "no clippy: rustup component add clippy" ;;
    actionlint) have actionlint || have go || missing="$missing golang-go" ;;
    shellcheck) have shellcheck || missing="$missing shellcheck" ;;
    esac
done
[ -n "$missing" ] || exit 0

[ "$(uname)" != Darwin ] || fail "missing (in Debian's names):$missing; try: brew install redis llvm"
have apt-get || fail "missing (in Debian's names):$missing; install them with your system's packages"
as_root=
if [ "$(id -u)" != 0 ]; then
    have sudo || fail "missing, and this is neither root nor sudo: apt-get install$missing"
    as_root=sudo
fi

# Debian starts a server that it installs. Nobody asked for that one, and it
# would take our port: this policy keeps it from starting.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi

echo "setup: installing$missing"
# The package lists of a fresh system may be absent or old.
$as_root apt-get -qq update || :
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null ||
    fail "apt-get could not install$missing"
for service in redis-server postgresql etcd; do
    case $missing in *$service*)
        [ ! -d /run/systemd/system ] || $as_root systemctl --quiet disable $service
        ;;
    esac
done
