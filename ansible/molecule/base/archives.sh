#!/usr/bin/env bash
# Archives with the Release files of Raspberry Pi OS, and one of a stranger, each with a newer version of an installed
# package; prints what unattended-upgrades would take. The fields are those of archive.raspberrypi.com and
# archive.raspbian.org.
set -euo pipefail
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
work=$(mktemp -d)
trap 'dpkg --purge lab-pi lab-raspbian lab-stranger lab-older >/dev/null 2>&1; rm -rf "$work" /etc/apt/sources.list.d/lab.list /var/lib/apt/lists/*archive-lab*' EXIT

package() { # NAME VERSION FOLDER
    mkdir -p "$work/$1/DEBIAN" "$3"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: lab\nDescription: lab\n' "$1" "$2" >"$work/$1/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$work/$1" "$3" >/dev/null
}

archive() { # PACKAGE ORIGIN CODENAME
    local folder=$work/archive-$1 deb
    package "$1" 1 "$work/installed"
    dpkg --install "$work/installed/$1_1_all.deb" >/dev/null
    package "$1" 2 "$folder"
    deb=$1_2_all.deb
    (
        cd "$folder"
        {
            dpkg-deb --field "$deb"
            printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d' ' -f1)"
        } >Packages
        printf 'Origin: %s\nLabel: %s\nSuite: stable\nCodename: %s\nDate: %s\nSHA256:\n %s %s Packages\n' "$2" "$2" "$3" \
            "$(date -Ru)" "$(sha256sum Packages | cut -d' ' -f1)" "$(stat -c %s Packages)" >Release
    )
    echo "deb [trusted=yes] file:$folder ./" >>/etc/apt/sources.list.d/lab.list
}

chmod 755 "$work"
archive lab-pi 'Raspberry Pi Foundation' "$codename"
archive lab-raspbian Raspbian "$codename"
archive lab-stranger Stranger "$codename"
archive lab-older 'Raspberry Pi Foundation' bullseye
apt-get -qq update -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/lab.list -o Dir::Etc::sourceparts=/dev/null -o APT::Get::List-Cleanup=0
unattended-upgrade --dry-run --debug 2>&1 | sed -n 's/^Packages that will be upgraded: //p' | tr ' ' '\n' | sort | paste -sd' '
