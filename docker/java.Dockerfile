# Debian with a Java to run everything on. Without a UTF-8 locale Java finds no file whose name is not ASCII.
ARG BASE=debian:bookworm-slim
FROM $BASE
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless procps >/dev/null \
 && rm -rf /var/lib/apt/lists/*
ENV JAVA_HOME=/usr/lib/jvm/java-17-openjdk-amd64 TZ=UTC LANG=C.UTF-8
