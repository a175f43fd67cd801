#!/usr/bin/env bash
#
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# For maintainers: clones HEAD, without uncommitted changes, and runs `make test`
# (or the given targets) in the clone. With --chroot DIR this happens inside a
# system made by, for example,
#   debootstrap --include=ca-certificates,git,make bookworm DIR
# which shows what a fresh machine lacks.

set -euo pipefail

chroot=
if [[ ${1:-} == --chroot ]]; then
  chroot=${2:?expected a directory after --chroot}
  shift 2
fi
targets=("${@:-test}")

root=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)
clone=$(mktemp -d "$chroot/tmp/zpp-fresh.XXXXXX")
trap 'rm -rf "$clone"' EXIT

git clone --quiet --no-hardlinks "$root" "$clone/zpp"
echo "fresh clone of $(git -C "$clone/zpp" log -1 --format='%h %s')"
if [[ -n $chroot ]]; then
  chroot "$chroot" make -C "${clone#"$chroot"}/zpp" "${targets[@]}"
else
  make -C "$clone/zpp" "${targets[@]}"
fi

# Tests and builds must leave a clean tree behind.
changes=$(git -C "$clone/zpp" status --porcelain)
if [[ -n $changes ]]; then
  printf 'error: expected a clean tree, but got\n%s\n' "$changes" >&2
  exit 1
fi
