#!/bin/sh
# Makes the base of all images out of Debian's packages, for where no image registry is reached. As root on Debian, with
# debootstrap and a running docker. Argument: the name that the image gets.
set -eu
name=${1:-skep/debian}
mirror=${DEBIAN_MIRROR:-$(sed -n 's/^\(URIs:\|deb\) *\(\[[^]]*\] *\)\?\([^ ]*\).*/\3/p' \
  /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include=ca-certificates bookworm "$folder/root" $mirror >"$folder/log" 2>&1 || {
  tail -n 20 "$folder/log" >&2
  exit 1
}
rm -rf "$folder/root/var/cache/apt/archives"/*.deb
# Whoever this machine trusts to sign for its mirrors, the image trusts too.
cp /etc/ssl/certs/ca-certificates.crt "$folder/root/etc/ssl/certs/"
tar -C "$folder/root" -c --exclude=./proc --exclude=./sys --exclude=./dev . | docker import - "$name" >/dev/null
