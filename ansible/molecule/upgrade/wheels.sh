#!/usr/bin/env bash
# Builds three more releases from copies of the checkout: B is the same code under another version; C says that it is
# healthy and mirrors nothing, and has a program more; the broker of D does not start. usage: wheels.sh CHECKOUT DESTINATION PYTHON
set -euo pipefail
checkout=$1 destination=$2 python=$3

# copy NAME VERSION
copy() {
    mkdir -p "$destination/$1"
    cp -r "$checkout"/{drupelet,edge_broker,kafka_wire,gateway,mirror,spark,hardware,pyproject.toml,build_walker.py,build_texts.py,README.md,LICENSE} "$destination/$1"
    sed -i "s/^version = .*/version = \"$2\"/" "$destination/$1/pyproject.toml"
}

build() {
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir="$destination/wheel-$1" "$destination/$1"
}

rm -rf "$destination"/{b,c,d,wheel-b,wheel-c,wheel-d}
copy b 900.1
copy c 900.2
copy d 900.3
sed -i 's/^edge-mirror = .*/&\nedge-novelty = "mirror.__main__:main"/' "$destination/c/pyproject.toml"
cat >>"$destination/c/mirror/app.py" <<'PYTHON'


async def _mirror_nothing(self: Replicator, stop: asyncio.Event) -> None:
    await stop.wait()


Replicator.run = _mirror_nothing
Replicator.trouble = lambda self: ""
PYTHON
cat >>"$destination/d/edge_broker/app.py" <<'PYTHON'


def run(options: Options) -> int:
    """Fail, as a broker that does not start."""
    raise SystemExit("edge-broker: this release does not start")
PYTHON
build b &
build c
wait $!
build d
