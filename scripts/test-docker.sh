#!/usr/bin/env bash
# Builds the Dockerfile, starts containers from the image and takes locks in them. In
# place of the official images it uses two made from Debian's archive. So it needs
# neither Docker nor a registry of images: buildah alone, as root, with namespaces.
# Exits 3 where these cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() {
    echo "test-docker: NOT RUN: $*" >&2
    exit 3
}

# The first release whose Rust can build the module. Its Redis is 8.0.
suite=trixie
mirror=$(scripts/mirror.sh || :)
[ -n "$mirror" ] || not_run "the images are made from Debian's archive, and this system has no apt sources for it"
unshare --mount --pid --net --fork true || not_run "no namespaces"
scripts/setup.sh docker system || not_run "no buildah or debootstrap"
work=$(mktemp -d)
# What an interrupted step had started may still write there for a moment.
trap 'rm -rf --one-file-system "$work" || { sleep 1; rm -rf --one-file-system "$work"; }' EXIT
mkdir "$work"/{cargo,data,tmp}

# Nothing of it is kept, nor mixed with the system's own images. chroot and the low
# limits work also where this already runs in a container.
cat >"$work/storage.conf" <<END
[storage]
driver = "vfs"
graphroot = "$work/storage"
runroot = "$work/run"
END
cat >"$work/containers.conf" <<'END'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
END
export TMPDIR=$work/tmp BUILDAH_ISOLATION=chroot
export CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf

# logged <command>...: shows what it prints only if it fails. In namespaces of its own:
# what it mounts and starts ends with it.
logged() {
    unshare --mount --pid --fork --kill-child --mount-proc "$@" >"$work/log" 2>&1 || {
        tail -n 40 "$work/log" >&2
        exit 1
    }
}

echo "test-docker: images of Debian $suite with Redis, and with Rust"
cat >"$work/images.sh" <<'END'
set -eux
container=$(buildah from scratch)
root=$(buildah mount "$container")
debootstrap --variant=minbase --include=redis-server "$1" "$root" "$2"
rm -rf "$root"/var/cache/apt/archives/*.deb
buildah config --workingdir /data "$container"
buildah commit "$container" localhost/redis
buildah run --network host "$container" -- apt-get install -qy --no-install-recommends cargo gcc libc6-dev
buildah commit --rm "$container" localhost/rust
END
logged sh "$work/images.sh" "$suite" "$mirror"

# The libraries come from here: a build in a container knows nothing of a mirror or
# certificates that cargo uses on this system.
echo "test-docker: building the Dockerfile"
cargo vendor --locked --quiet "$work/cargo/vendor" >/dev/null
cat >"$work/cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/.cargo/vendor"
# Whether it builds does not depend on how much is optimised.
[profile.release]
opt-level = 0
lto = "off"
debug = false
codegen-units = 16
END
logged buildah build --pull-never --network host --volume "$work/cargo:/.cargo:ro" \
    --build-arg RUST=localhost/rust --build-arg BASE=localhost/redis --tag localhost/redis-rwlock .

cat >"$work/test.sh" <<'END'
set -eu
fail() {
    echo "test-docker: $*" >&2
    tail -n 20 "$work/server.log" >&2 || :
    exit 1
}
is() {
    [ "$1" = "$2" ] || fail "$3: expected '$2', got '$1'"
}
cli() { buildah run --network host "$container" -- redis-cli "$@"; }

# A container with the image's own command, as `docker run -v` starts it.
start() {
    container=$(buildah from --pull-never localhost/redis-rwlock)
    mapfile -t command < <(buildah inspect --type image --format \
        '{{range .OCIv1.Config.Cmd}}{{println .}}{{end}}' localhost/redis-rwlock | sed '$ { /^$/d }')
    buildah run --network host --volume "$work/data:/data" "$container" -- "${command[@]}" \
        >"$work/server.log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        [ "$(cli PING 2>/dev/null)" != PONG ] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    fail "no server"
}
stop() {
    cli SHUTDOWN >/dev/null 2>&1 || :
    wait "$server" || :
    buildah rm "$container" >/dev/null
}

ip link set lo up
start
is "$(cli RWLOCK.WLOCK orders me 600000)" OK WLOCK
is "$(cli RWLOCK.UNLOCK orders you)" 'NOTHELD the lock is held by others, in write mode' 'UNLOCK by another'
is "$(cli CONFIG GET appendfsync | tail -n 1)" always appendfsync
stop
# The lock is in the volume, and so in the next container.
start
is "$(cli RWLOCK.UNLOCK orders me)" 1 'UNLOCK in a second container'
stop
END
echo "test-docker: a lock in a container, and in the next one with its volume"
# A network of its own: the server has its usual port.
export work
unshare --mount --pid --net --fork --kill-child --mount-proc bash "$work/test.sh"
echo "test-docker: passed"
