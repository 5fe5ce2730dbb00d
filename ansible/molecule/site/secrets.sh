#!/usr/bin/env bash
# secrets.sh COUNT: fails when one of the COUNT lines of standard input is in the journal, in a command line, or in a
# file below /etc, /opt, /run, /tmp or /var that others may read. Exit status: 0 nowhere, 3 journal, 4 command line, 5 file.
set -euo pipefail
patterns=$(mktemp -p /run)
trap 'rm -f "$patterns"' EXIT
cat >"$patterns"
[ "$(grep -c . "$patterns")" -eq "$1" ]
if journalctl --no-pager --quiet | grep -qF -f "$patterns"; then exit 3; fi
for line in /proc/[0-9]*/cmdline; do
    if tr '\0' ' ' <"$line" 2>/dev/null | grep -qF -f "$patterns"; then exit 4; fi
done
if find /etc /opt /run /tmp /var -xdev -type f -perm -o=r ! -name '*.jar' -exec grep -lF -f "$patterns" {} + | grep -q .; then exit 5; fi
