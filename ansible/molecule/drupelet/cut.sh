#!/usr/bin/env bash
# Starts a provision, pulls the host's plug once a file that matches PATTERN (below the host's root) is there, and leaves
# of what was being built what a disk may leave: every third file empty, every third half. The provision must fail.
# usage: cut.sh LAB NAME PATTERN COMMAND ...
set -euo pipefail
lab=$1 name=$2 pattern=$3 root=/var/tmp/drupelet-lab/$1/$2/root
shift 3
"$@" >"$root/../cut.log" 2>&1 &
provision=$!

is_there() {
    compgen -G "$root/$pattern" >/dev/null
}

for _ in $(seq 3000); do # 150 s
    if is_there || ! kill -0 $provision 2>/dev/null; then break; fi
    sleep 0.05
done
if ! is_there; then
    cat "$root/../cut.log" >&2
    echo "$pattern did not come to be." >&2
    exit 1
fi
"$(dirname "$0")/../lab/lab.sh" restart "$lab" "$name"
if wait $provision; then
    echo "The provision was through before the plug was pulled." >&2
    exit 1
fi
spoilt=0
while read -r -d '' file; do
    case $((spoilt % 3)) in
    0) truncate -s 0 "$file" ;;
    1) truncate -s $(($(stat -c %s "$file") / 2)) "$file" ;;
    esac
    spoilt=$((spoilt + 1))
done < <(find "$root"/opt/drupelet/*.part -type f -print0 2>/dev/null)
echo "cut at $pattern, $spoilt files spoilt"
