#!/usr/bin/env bash
# Sets up what the Makefile's targets need. Three commands:
#   setup.sh packages NAME ...     programs that pip cannot install: venv java mosquitto mosquitto-clients kcat zsh man-db, for
#                                  images mtools e2fsprogs dosfstools fdisk, for a disk of the tests fuse3, for a clock of
#                                  the tests libfaketime, for journals systemd-journal-remote, for log files
#                                  rsyslog, and for test hosts
#                                  mmdebstrap systemd-container openssh-client iproute2, for an emulated
#                                  board qemu-system-arm qemu-user-static
#   setup.sh python VENV EXTRA     a virtual environment with this checkout, editable, and one of its extras
#   setup.sh jars [NAME]           Apache Kafka's jars, into the cache; old-kafka-jars: of the last 3.x; zookeeper-jars
# What is missing is installed by apt as root or through sudo without a password; otherwise one sentence says what
# to install. Nothing is fetched twice. Works on Debian 12 and 13, Ubuntu 24.04 and Raspberry Pi OS.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() {
    echo "$*" >&2
    exit 1
}

# step TEXT COMMAND ...: run a long step, saying what it is and how many seconds it took.
step() {
    local text=$1 started=$SECONDS
    shift
    echo "==> $text"
    "$@" || fail "==> $text: failed after $((SECONDS - started)) s"
    echo "==> $text: done in $((SECONDS - started)) s"
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if is_new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    fail "Python 3.11 or newer is not installed: install python3.11 or a newer one and run this again."
}

# What apt-get prints is not for here; its errors, on stderr, are.
quiet() {
    "$@" >/dev/null
}

# apt_install PACKAGE ...: install them all, or say in one sentence what a person has to install.
apt_install() {
    local run=()
    command -v apt-get >/dev/null || fail "Install these packages with this system's package manager, then run this again: $*."
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || fail "This needs packages and may not install them itself, so run: sudo apt install $*"
        run=(sudo -n)
    fi
    step "apt: $*" quiet "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install \
        --no-install-recommends --yes "$@"
}

apt_update() {
    if command -v apt-get >/dev/null; then
        if [ "$(id -u)" -eq 0 ]; then
            step "apt: update" apt-get -qq update
        elif sudo -n true 2>/dev/null; then
            step "apt: update" sudo -n apt-get -qq update
        fi
    fi
}

# The Java package that this release has: Debian 12 and Ubuntu have 17, Debian 13 has 21.
java_package() {
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        # No pipe into grep -q: it would end apt-cache by SIGPIPE, and pipefail would call that a "no".
        if [[ $(apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[!\(]* ]]; then
            echo "$package"
            return
        fi
    done
    echo openjdk-21-jre-headless
}

# The package with what `python3 -m venv` needs; Debian keeps it apart.
venv_package() {
    local python
    python=$(find_python)
    if [ "$python" = python3 ]; then echo python3-venv; else echo "$python-venv"; fi
}

can_make_venv() {
    is_new_enough .venv/bin/python || "$(find_python)" -c 'import ensurepip, venv' 2>/dev/null
}

# pip's own lines are many; the downloads and the builds are the ones that take time.
pip_install() {
    "$1/bin/python" -m pip install --disable-pip-version-check --progress-bar off --use-pep517 --editable ".[$2]" |
        { grep --line-buffered -E '^ *(Downloading|Building wheel|Successfully installed)' || true; }
}

python_packages() {
    local venv=$1 extra=$2 python
    if ! is_new_enough "$venv/bin/python"; then
        packages venv
        python=$(find_python)
        step "virtual environment in $venv ($("$python" --version))" "$python" -m venv --clear "$venv"
    fi
    step "Python packages for \`$extra\` in $venv" pip_install "$venv" "$extra"
}

# The program that tells whether a package is there; nothing for those that tests.support.runtimes looks for.
program_of() {
    case $1 in
    mmdebstrap) echo mmdebstrap ;;
    systemd-container) echo systemd-nspawn ;;
    systemd-journal-remote) echo /lib/systemd/systemd-journal-remote ;;
    openssh-client) echo ssh ;;
    iproute2) echo ip ;;
    qemu-system-arm) echo qemu-system-aarch64 ;;
    qemu-user-static) echo qemu-aarch64-static ;;
    fuse3) echo fusermount3 ;;
    esac
}

is_there() {
    local program
    program=$(program_of "$1")
    if [ "$1" = venv ]; then
        can_make_venv
    elif [ -n "$program" ]; then
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null
    else
        "$(find_python)" -m tests.support.runtimes "$1" >/dev/null 2>&1
    fi
}

packages() {
    local name missing=() names=()
    for name in "$@"; do
        is_there "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    apt_update
    for name in "${missing[@]}"; do
        case $name in
        venv) names+=("$(venv_package)") ;;
        java) names+=("$(java_package)") ;;
        *) names+=("$name") ;;
        esac
    done
    apt_install "${names[@]}"
    for name in "${missing[@]}"; do # what apt installed must do, too
        [ "$name" = venv ] || [ -n "$(program_of "$name")" ] || "$(find_python)" -m tests.support.runtimes "$name" >/dev/null
    done
}

# Ivy, which comes with pyspark in the environment, fetches them.
kafka_jars() {
    [ -x .venv/bin/python ] || fail "There is no environment in .venv yet: run \`make install-test\`."
    .venv/bin/python -m tests.support.runtimes "${1:-kafka-jars}" >/dev/null
}

case ${1:-} in
packages) packages "${@:2}" ;;
python) python_packages "$2" "$3" ;;
jars) kafka_jars "${@:2}" ;;
*) fail "usage: $0 packages NAME ... | python VENV EXTRA | jars [NAME]" ;;
esac
