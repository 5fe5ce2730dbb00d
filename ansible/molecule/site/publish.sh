#!/usr/bin/env bash
# publish.sh FIRST LAST: a thermometer's readings with these numbers, one after the other, in one connection.
set -euo pipefail
for number in $(seq "$1" "$2"); do
    printf '{"device":"thermometer-1","seq":%d,"time_ms":%d,"value":20.5}\n' "$number" "$(date +%s%3N)"
done | mosquitto_pub -t sites/plant-7/devices/thermometer-1/readings -l
