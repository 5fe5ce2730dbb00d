#!/usr/bin/env bash
# Keeps what runs on this board, and puts it back: which release is in use, our units and our configuration.
# Data directories are not part of it. usage: kept.sh keep|restore DRUPELET_ROOT
set -euo pipefail
shopt -s nullglob
cd "$2"
root=$PWD
# Our files, sorted, relative to /; passwords are among them.
our_files() {
    local places
    cd /
    places=(etc/drupele[t] etc/mosquitt[o] etc/kafk[a] opt/kafka/curren[t]
        etc/systemd/system/{edge-*.service,kafk[a].service,mosquitto.service.[d]})
    {
        find "${places[@]}" '(' -type f -o -type l ')'
        # Programs, man pages and completion; usr/local/bin is everywhere, and others' files are in all of them.
        find usr/local/bin usr/local/share/{man/man[1],bash-completion/completion[s],zsh/site-function[s]} \
            -maxdepth 1 -type l -lname "$root/current/*"
    } | sort
}

keep() {
    rm -rf kept.part
    mkdir -m 700 kept.part
    (our_files) | tar -C / -cpf kept.part/files.tar -T -
    readlink current >kept.part/release
    if [ -L previous ]; then cp -P previous kept.part; fi
    touch kept.part/unfinished
    sync
    rm -rf kept
    mv kept.part kept
    sync
}

# Old files first, then away with what only the new release had: at no moment is a unit missing.
restore() {
    local file
    tar -C / -xpf kept/files.tar
    while read -r file; do
        case $file in
        *@.service) stop_unit "${file%.service}*.service" "$file" ;;
        *.service) stop_unit "$file" "$file" ;;
        esac
        rm "/$file"
    done < <(comm -13 <(tar -tf kept/files.tar | sort) <(our_files))
    point current "$(cat kept/release)"
    if [ -e "$(readlink kept/previous)" ]; then point previous "$(readlink kept/previous)"; else rm -f previous; fi
    sync
    systemctl daemon-reload
    restart
    rm -f kept/unfinished
}

# point LINK RELEASE, in one step
point() {
    ln -sfn "$2" "$1.part"
    mv -T "$1.part" "$1"
}

# stop_unit PATTERN FILE
stop_unit() {
    systemctl stop "$(basename "$1")"
    systemctl disable "$(basename "$2")"
}

# In one go, so that systemd keeps the order of the units. What does not start is for verify to find.
restart() {
    local unit units=()
    while read -r unit; do
        if [ "$(systemctl is-enabled "$unit")" = enabled ]; then units+=("$unit"); fi
    done < <(systemctl list-units --all --plain --no-legend 'edge-*.service' mosquitto.service kafka.service | cut -d ' ' -f 1)
    systemctl restart "${units[@]}" || echo "not all of these started: ${units[*]}" >&2
}

case $1 in
keep) keep ;;
restore)
    if [ ! -e kept/release ]; then
        echo "There is nothing to go back to: no upgrade has run on this board." >&2
        exit 1
    fi
    restore
    ;;
*)
    echo "usage: kept.sh keep|restore DRUPELET_ROOT" >&2
    exit 2
    ;;
esac
