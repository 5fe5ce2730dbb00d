#!/usr/bin/env bash
# Writes the pins of what boards install, drupelet/pins/*.txt, by `uv pip compile`: a file for each extra of pyproject.toml,
# and `broker` for what every board has. A line pins a version and the SHA-256 of each of its files, for every Python from
# 3.11 on and every machine. `build` pins the tools that pyspark is built with. Pins that still fit stay; --upgrade takes
# the newest. Needs uv in the virtual environment and the package index; `make pins` runs it.
# usage: pins.sh VENV [--upgrade]
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/../.."
uv=$1/bin/uv
shift
EXTRAS=(compression gateway hardware mirror cluster spark)
folder=drupelet/pins
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compile SOURCE WORD ...: to standard output. No address of an index gets into a file.
compile() {
    "$uv" pip compile --quiet --universal --generate-hashes --python-version=3.11 --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-config "$@"
}

# pins FILE FOR: from standard input, with a line that says what they are.
pins() {
    { echo "# What $2 needs, by \`make pins\`. Change pyproject.toml, not this file."; cat; } >"$work/$1.txt"
}

cat "$folder"/*.txt >"$work/all" 2>/dev/null || true # what is pinned now is preferred
mapfile -t every < <(printf -- '--extra=%s\n' "${EXTRAS[@]}")
compile pyproject.toml "${every[@]}" --output-file="$work/all" "$@" >/dev/null
compile pyproject.toml --constraints="$work/all" | pins broker "every board"
mapfile -t without < <(sed -nE 's/^([A-Za-z0-9._-]+)==.*/--no-emit-package=\1/p' "$work/broker.txt")
for extra in "${EXTRAS[@]}"; do
    compile pyproject.toml --constraints="$work/all" --extra="$extra" "${without[@]}" | pins "$extra" "the extra $extra beyond broker.txt"
done
grep -hsE -A 1000 '^setuptools==' "$folder/build.txt" >"$work/tools" || true
compile - --output-file="$work/tools" "$@" <<<setuptools >/dev/null
pins build "the build of pyspark, which is published as source alone," <"$work/tools"
mkdir -p "$folder"
mv "$work"/*.txt "$folder/"
