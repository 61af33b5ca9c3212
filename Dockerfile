# The official Redis image with the module. Its data is in the volume /data.
#
#   docker build -t redis-rwlock .
#   docker run -p 6379:6379 -v locks:/data redis-rwlock
#
# RUST and BASE name other images, such as --build-arg BASE=redis:7.4-bookworm.
# Both must be of the same Debian: then the module finds the C library it was built for.
ARG RUST=rust:1-bookworm
ARG BASE=redis:8.0-bookworm

FROM $RUST AS build
RUN apt-get update && apt-get install -y --no-install-recommends libclang-dev
WORKDIR /rwlock
COPY . .
RUN cargo build --release --locked && strip --strip-unneeded target/release/librwlock.so

FROM $BASE
COPY --from=build /rwlock/target/release/librwlock.so /usr/lib/redis/modules/
# Why these settings: see redis.conf.
CMD ["redis-server", "--appendonly", "yes", "--appendfsync", "always", "--save", "", \
    "--maxmemory-policy", "noeviction", "--tcp-keepalive", "60", \
    "--loadmodule", "/usr/lib/redis/modules/librwlock.so"]
