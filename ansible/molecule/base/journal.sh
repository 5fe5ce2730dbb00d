#!/usr/bin/env bash
# usage: journal.sh FOLDER MIB: writes more than the bound into the journal; FOLDER holds it, and not more than MIB.
set -euo pipefail
python3 - "$2" <<'PYTHON' | systemd-cat
import os, sys
for _ in range(int(sys.argv[1]) * 4 * 1024 // 40):  # few long lines: journald limits their rate
    print(os.urandom(20 * 1024).hex())
PYTHON
journalctl --sync
used=$(du --summarize --block-size=1M "$1" | cut -f1)
echo "$1: $used MiB"
[ "$used" -gt 4 ]
[ "$used" -le $(($2 * 9 / 8)) ] # journald leaves out the file in use, an eighth at most
