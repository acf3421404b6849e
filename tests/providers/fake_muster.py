"""A program in place of ``muster agent``, which takes longer: it sleeps until it is ended."""

FAKE_MUSTER = """#!/bin/sh
# Notes its words, and that it is up as an agent does.
umask 077
directory= end= wipe= words="$*"
while [ $# -gt 0 ]; do
case $1 in --dir) directory=$2 ;; --end) end=1 ;; --wipe) wipe=1 ;; esac
shift
done
if [ -n "$end" ]; then
[ ! -e "$directory/pid" ] || kill "$(cat "$directory/pid")" 2>/dev/null || :
[ -z "$wipe" ] || rm -rf "$directory"
exit 0
fi
mkdir -p "$directory"
echo "$words" >"$directory/words"
echo $$ >"$directory/pid"
echo $$ >"$directory/agent.lock"
exec sleep 600
"""
