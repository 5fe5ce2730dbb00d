#!/usr/bin/env bash
# Units with Spark's OOM score take more memory together than the host has, each of them less than the broker: the
# kernel must end some of them, and never the broker. With a score of 0 it ends the broker first.
set -euo pipefail
UNITS=16
trap 'systemctl stop "spark-like-*"; systemctl reset-failed "spark-like-*"' EXIT

ended() { systemctl list-units --state=failed --plain --no-legend 'spark-like-*' | wc -l; }

broker=$(systemctl show edge-broker --property=MainPID --value)
for number in $(seq $UNITS); do
    systemd-run --quiet --unit="spark-like-$number" --property=OOMScoreAdjust=400 \
        python3 -c 'import time; kept = [time.sleep(0.02) or b"x" * (1 << 20) for _ in range(15)]; time.sleep(60)'
done
for _ in $(seq 60); do
    [ "$(ended)" -lt 3 ] || break
    sleep 0.5
done
[ "$(ended)" -ge 3 ]
[ "$(systemctl show edge-broker --property=MainPID --value)" = "$broker" ]
