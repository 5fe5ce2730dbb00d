#!/usr/bin/env bash
# Builds the wheel of a checkout and prints where it is: FOLDER/CHECKSUM/drupelet-VERSION-....whl. Each run builds in a
# folder of its own, and what differs has another checksum, so two runs never take a wheel from each other. Wheels of
# more than a day ago, and what runs that were killed have left, are removed.
# usage: wheel.sh CHECKOUT FOLDER; PYTHON is the interpreter whose pip builds
set -euo pipefail
shopt -s inherit_errexit
if [ $# -ne 2 ]; then
    sed -n 5p "$0" >&2
    exit 2
fi
checkout=$1 folder=$2
if [ ! -e "$checkout/pyproject.toml" ]; then
    echo "$checkout is no checkout of Drupelet, so no wheel can be built from it: set drupelet_wheel to one." >&2
    exit 1
fi

mkdir -p "$folder"
part=$(mktemp -d "$folder/part.XXXXXX")
trap 'rm -rf "$part"' EXIT
"${PYTHON:-python3}" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir="$part" "$checkout" >&2
chmod 0755 "$part"
built=("$part"/*.whl)
sum=$(sha256sum <"${built[0]}" | cut -c 1-8)

exec 9>"$folder/lock" # else one run could remove the folder that another is about to use again
flock 9
mkdir -p "$folder/$sum"
mv "${built[0]}" "$folder/$sum/"
find "$folder" -mindepth 1 -maxdepth 1 -type d -mmin +1440 ! -name "$sum" -exec rm -rf {} +
echo "$folder/$sum/${built[0]##*/}"
