#!/bin/sh
# Puts the built module where servers have their modules, or takes it away.
# PREFIX is /usr if not given; DESTDIR stands before it while a package is made.
set -eu
cd "$(dirname "$0")/.."

library=librwlock.so
[ "$(uname)" != Darwin ] || library=librwlock.dylib
built=${CARGO_TARGET_DIR:-target}/release/$library
path=${PREFIX:-/usr}/lib/redis/modules/$library
there=${DESTDIR:-}$path

case ${1:-} in
install)
    [ -f "$built" ] || { echo "install: $built is not there: make build" >&2 && exit 1; }
    install -d "$(dirname "$there")"
    # Never into the old file: a server that has loaded it would crash.
    install -m 755 "$built" "$there.new"
    # Debug information is most of the built file. It stays in target/.
    if command -v strip >/dev/null; then strip -x "$there.new"; fi
    mv -f "$there.new" "$there"
    cat <<EOF
$there is installed. In redis.conf or valkey.conf:

    loadmodule $path
EOF
    ;;
uninstall)
    [ -e "$there" ] || { echo "uninstall: $there is not there" >&2 && exit 1; }
    rm -f "$there"
    echo "$there is removed. A server with a loadmodule line for it does not start any more."
    ;;
*)
    echo "usage: install.sh install | uninstall" >&2
    exit 2
    ;;
esac
