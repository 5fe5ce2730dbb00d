#!/usr/bin/env bash
# Makes the parts of a bundle in the folder BUNDLE_DIR, for playbooks/bundle.yml. A part is a flat tar with a line in
# SHA256SUMS; it is written only when its content is new. `made` or `unchanged` is printed.
#   bundle.sh wheels VERSION MACHINE GLIBC WHEEL EXTRAS      what WHEEL pins for, as an example, 3.11 aarch64 36
#   bundle.sh spark WHEEL                                    what WHEEL pins for its extra `spark`
#   bundle.sh packages SUITE ARCHITECTURE PACKAGE ...        a flat apt repository with all they depend on
#   bundle.sh add TAR NAME                                   a tar that something else has made
# A part is not looked at again for VALID_S seconds, unless it is asked for with other arguments or WHEEL pins other
# things. What was downloaded is kept: by pip in its own cache, Debian packages and pyspark's wheel in BUNDLE_CACHE.
# BUNDLE_CACHE/made has a file for each part that was made here, named by its SHA-256, with what it was made from: a part
# that something else put into the folder is made again, and bundle.py signs no other.
# PYTHON is the interpreter whose pip is asked; DEBIAN_URL and SECURITY_URL are Debian's archives.
set -euo pipefail
shopt -s inherit_errexit
: "${BUNDLE_DIR:?}" "${BUNDLE_CACHE:?}"
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
    echo "$*" >&2
    exit 1
}

is_there() {
    local sum=$1 name=$2
    grep -qsFx "$sum  $name" "$BUNDLE_DIR/SHA256SUMS" && [ ! -L "$BUNDLE_DIR/$name" ] && [ -f "$BUNDLE_DIR/$name" ] &&
        [ "$(sha256sum <"$BUNDLE_DIR/$name" | cut -d ' ' -f 1)" = "$sum" ]
}

# The line in SHA256SUMS comes last: a part that is not whole has none.
add() {
    local tar=$1 name=$2 sums=$BUNDLE_DIR/SHA256SUMS sum
    sum=$(sha256sum <"$tar" | cut -d ' ' -f 1)
    touch "$BUNDLE_CACHE/made/$sum"
    if is_there "$sum" "$name"; then
        echo unchanged
        return
    fi
    { grep -vsF "  $name" "$sums" || true; } >"$sums.part"
    cp "$sums.part" "$sums"
    cp "$tar" "$BUNDLE_DIR/$name.part"
    mv "$BUNDLE_DIR/$name.part" "$BUNDLE_DIR/$name"
    echo "$sum  $name" >>"$sums.part"
    LC_ALL=C sort -k 2 -o "$sums.part" "$sums.part"
    mv "$sums.part" "$sums"
    echo made
}

# sum_of NAME: what SHA256SUMS says of a part.
sum_of() {
    sed -n "s/^\([0-9a-f]\{64\}\)  $1\$/\1/p" "$BUNDLE_DIR/SHA256SUMS" 2>/dev/null | head -n 1
}

# recent NAME FROM: the part was made here from the same, not long ago.
recent() {
    local sum stamp
    sum=$(sum_of "$1")
    stamp=$BUNDLE_CACHE/made/$sum
    [ -n "$sum" ] && [ -e "$BUNDLE_DIR/$1" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$2" ] &&
        [ $(($(date +%s) - $(stat -c %Y "$stamp"))) -lt "$VALID_S" ]
}

# part NAME FROM COMMAND ...: the command puts the part's files into $work/files.
part() {
    local name=$1 from=$2
    shift 2
    if recent "$name" "$from"; then
        echo unchanged
        return
    fi
    mkdir "$work/files"
    "$@"
    pack "$work/files" "$name"
    echo "$from" >"$BUNDLE_CACHE/made/$(sum_of "$name")"
}

# The same files make the same tar.
pack() {
    local folder=$1 name=$2
    tar --create --file="$work/part.tar" --directory="$folder" --mtime=@0 --owner=0 --group=0 \
        --numeric-owner --mode=u=rw,go=r --transform='s,^\./,,' --no-recursion \
        --null --files-from=<(cd "$folder" && find . -type f -print0 | LC_ALL=C sort --zero-terminated)
    add "$work/part.tar" "$name"
}

# Every manylinux tag that a glibc accepts; pip does not derive the older ones by itself.
platforms() {
    local machine=$1 newest=$2 minor
    echo "--platform=manylinux2014_$machine"
    [ "$machine" != x86_64 ] || echo --platform=manylinux{1,2010}_x86_64
    for minor in $(seq 5 "$newest"); do echo "--platform=manylinux_2_${minor}_$machine"; done
}

# pinned WHEEL VERSION MACHINE NAME,...: what pip is to fetch, with hashes, into the file $work/NAME,....pins
pinned() {
    "$PYTHON" "$(dirname "$0")/pins.py" "$1" "$2" "$3" "$4" >"$work/$4.pins"
}

digest() {
    sha256sum <"$work/$1.pins" | cut -c 1-16
}

# The pins name all that is needed, so pip looks for nothing else.
download_wheels() {
    local version=$1 machine=$2 glibc=$3 pins=$4 tags
    mapfile -t tags < <(platforms "$machine" "$glibc")
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --only-binary=:all: --implementation=cp \
        --python-version="$version" --abi="cp${version/./}" --abi=abi3 --abi=none "${tags[@]}" --dest="$work/files" \
        --require-hashes --no-deps --requirement="$pins"
}

wheels() {
    local version=$1 machine=$2 glibc=$3 wheel=$4 names=broker,$5
    pinned "$wheel" "$version" "$machine" "$names"
    part "wheels-cp${version/./}-$machine.tar" "$glibc $5 $(digest "$names")" \
        download_wheels "$version" "$machine" "$glibc" "$work/$names.pins"
}

# pyspark is published as source alone, and is the same for every machine: its wheel is built once per pin, by pinned
# tools. built.txt has its hash, by which a board takes it.
build_spark() {
    local pins=$1 tools=$2 folder pip=("$PYTHON" -m pip --quiet --disable-pip-version-check) wheel name
    folder=$BUNDLE_CACHE/spark-$(digest spark)-$(digest build)
    if [ ! -d "$folder" ]; then
        rm -rf "$folder.part"
        "${pip[@]}" install --require-hashes --no-deps --target="$work/tools" --requirement="$tools"
        PYTHONPATH=$work/tools "${pip[@]}" wheel --no-build-isolation --require-hashes --no-deps \
            --wheel-dir="$folder.part" --requirement="$pins"
        for wheel in "$folder.part"/*.whl; do
            name=${wheel##*/}
            echo "$(cut -d - -f 1,2 <<<"$name" | sed 's/-/==/') --hash=sha256:$(sha256sum <"$wheel" | cut -d ' ' -f 1)"
        done >"$folder.part/built.txt"
        mv "$folder.part" "$folder"
    fi
    ln "$folder"/* "$work/files"
}

# Nothing of it depends on Python or machine.
spark() {
    pinned "$1" 3.11 aarch64 spark
    pinned "$1" 3.11 aarch64 build
    part wheels-spark.tar "$(digest spark) $(digest build)" build_spark "$work/spark.pins" "$work/build.pins"
}

# apt with a state of its own: another suite and machine than this one's, no root, and no package counts as installed.
# Of this machine's configuration it takes how to reach the archives (proxies, for one).
apt_configuration() {
    local suite=$1 architecture=$2 state=$3
    apt-config dump --no-empty --format '%f "%v";%n' Acquire | sed '/^Acquire::IndexTargets/d'
    cat <<END
Dir "$state";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
Dir::Etc "$state";
Dir::Etc::parts "parts";
Dir::Log "$state";
APT::Architecture "$architecture";
APT::Architectures "$architecture";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
END
    cat >"$state/sources.list" <<END
deb [signed-by=$KEYRING] $DEBIAN_URL $suite main
deb [signed-by=$KEYRING] $DEBIAN_URL $suite-updates main
deb [signed-by=$KEYRING] $SECURITY_URL $suite-security main
END
}

# apt names what it has downloaded NAME_VERSION_ARCHITECTURE.deb; an epoch's colon is written %3a.
repository() {
    local state=$1 folder=$work/files file version versions=()
    shift
    for file in "$@"; do
        version=${file#*_}
        version=${version/\%3a/:}
        versions+=("${file%%_*}=${version%_*}")
        ln "$state/archives/$file" "$folder/${file/_*%3a/_}" # as it is named in the archive: without the epoch
    done
    # The archive's own records, which its signature covers, once each; only where the file is becomes another place.
    apt-cache show "${versions[@]}" | sed -E 's,^Filename: .*/,Filename: ./,' |
        awk -v RS= -v ORS='\n\n' '{ match($0, /\nFilename: [^\n]*/) } !seen[substr($0, RSTART, RLENGTH)]++' \
            >"$folder/Packages"
}

download_packages() {
    local suite=$1 architecture=$2 state=$BUNDLE_CACHE/packages-$1-$2 files file
    shift 2
    command -v apt-get >/dev/null || fail "Debian packages need apt: run this on Debian or Ubuntu, or leave out the part."
    [ -e "$KEYRING" ] || fail "Debian's keys are not on this machine: install the package debian-archive-keyring."
    mkdir -p "$state"/{lists/partial,archives/partial,parts,preferences.d}
    : >"$state/status" # nothing is installed: a board gets all it may lack, in versions that fit each other
    apt_configuration "$suite" "$architecture" "$state" >"$state/apt.conf.part"
    mv "$state/apt.conf.part" "$state/apt.conf"
    export APT_CONFIG=$state/apt.conf
    apt-get --quiet=2 update
    apt-get --quiet=2 --yes --download-only install "$@" >/dev/null
    # Of what is downloaded it prints nothing, so it is shown an empty folder.
    mapfile -t files < <(apt-get --quiet=2 --yes --print-uris -o Dir::Cache::archives="$work" install "$@" | cut -d ' ' -f 2)
    for file in "$state"/archives/*.deb; do # what an older bundle had
        [[ " ${files[*]} " == *" ${file##*/} "* ]] || rm "$file"
    done
    repository "$state" "${files[@]}"
}

packages() {
    part "packages-$1-$2.tar" "$DEBIAN_URL $SECURITY_URL $*" download_packages "$@"
}

case ${1:-} in
wheels | spark | packages | add)
    mkdir -p "$BUNDLE_DIR" "$BUNDLE_CACHE/made"
    rm -f "$BUNDLE_DIR"/.*.tar.from # which earlier releases kept here
    exec 9>"$BUNDLE_CACHE/lock" # two runs may make the same bundle
    flock 9
    work=$(mktemp -d -p "$BUNDLE_CACHE")
    trap 'rm -rf "$work"' EXIT
    "$@"
    ;;
*)
    sed -n '4,7p' "$0" >&2
    exit 2
    ;;
esac
