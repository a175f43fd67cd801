#!/bin/sh
# small_disk.sh FILE COMMAND...
#
# Runs a command that is to write disk/FILE, in place of an old one, on a disk
# that is full before it is done, and on one that can only be read. Prints what it
# says, the old file, and what is there then.
file=$1
shift
mkdir -p disk
exec unshare --map-root-user --mount sh -c '
  file=$1
  shift
  mount -t tmpfs -o size=8k disk disk && cd disk || exit 1
  echo old > "$file"
  for kind in full read-only; do
    "$@" && echo "not $kind: the command succeeded"
    echo "$kind: $(cat "$file"), $(ls -A | wc -l) file"
    mount -o remount,ro,size=8k "$PWD"
  done' sh "$file" "$@"
