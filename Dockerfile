# syntax=docker/dockerfile:1
# sizegate as a container image: one static binary, no shell, not root, nothing written to disk.
#
#   docker build -t sizegate .                                       for this machine
#   docker buildx build --platform linux/amd64,linux/arm64 -t … .    for both (docs/operations.md)
#
# The binary is linked statically with glibc: its allocator is several times faster under threads than musl's, and
# since 2.34 name resolution by /etc/hosts and DNS is part of it.

FROM rust:1.95-bookworm AS build
WORKDIR /src
# Which commit this is: the image's context has no .git.
ARG COMMIT=unknown
COPY Cargo.toml Cargo.lock build.rs README.md ./
COPY src src
# What the manifest names beside src must be there, and is not built.
COPY benches/*.rs benches/
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target=$(uname -m)-unknown-linux-gnu && \
    SIZEGATE_COMMIT=$COMMIT CARGO_PROFILE_RELEASE_DEBUG=0 RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=/src=. --remap-path-prefix=$CARGO_HOME=cargo" \
        cargo build --release --locked --bin sizegate --target "$target" && \
    install -D -s "target/$target/release/sizegate" /root-fs/sizegate
# What a static binary still wants: authorities to trust, a name for its user, and a folder to mount configs at.
RUN mkdir -p /root-fs/etc/ssl/certs /root-fs/etc/sizegate && \
    cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/ && \
    echo 'sizegate:x:65532:65532:sizegate:/:/sbin/nologin' >/root-fs/etc/passwd && \
    echo 'sizegate:x:65532:' >/root-fs/etc/group

FROM scratch
ARG COMMIT=unknown
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="sizegate" \
      org.opencontainers.image.description="A Kafka proxy that enforces message size policy and explains every refusal" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /root-fs /
USER 65532:65532
# Inside a container loopback is nobody's: clients and Prometheus come from outside. Say in the config, or in
# SIZEGATE__LISTENER__ADVERTISED_HOST, what clients are told.
ENV SIZEGATE__LISTENER__BIND=0.0.0.0:19092 \
    SIZEGATE__ADMIN__BIND=0.0.0.0:9644
EXPOSE 19092 19093-19102 9644
# `start-period` is how long Kafka may take; a proxy without its cluster is alive, and not ready.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["/sizegate", "check", "--ready"]
# PID 1: SIGTERM stops accepting and answers what is in flight, 25 s at most (--drain-timeout). Give it 30.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/sizegate"]
CMD ["run"]
