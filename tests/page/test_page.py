"""FROM-A-BARE-CARD.md, every line of it, by a reader at a fresh control node, with fresh hosts and without a bundle.

Needs root, mmdebstrap and systemd-nspawn, as `make molecule` does; wheels, jars and packages come from their
registries, through a proxy in the lab. What takes the place of a card reader, a board and the internet is in
`substitutions`, and printed first. A line that fails ends it, and is named. What the page says is printed was printed,
and nothing in between looked like a failure or a warning.
"""

from __future__ import annotations

import hashlib
import lzma
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.script import not_printed, script
from tests.page.substitutions import CARD, IMAGE, LAB
from tests.support.card_images import LAYOUTS, ROOT_START, make_image
from tests.support.processes import Process, wait_until

pytestmark = pytest.mark.timeout(4500)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ansible/FROM-A-BARE-CARD.md"
PROXY_SCRIPT = Path(__file__).with_name("proxy.py")
LAB_SCRIPT = ROOT / "ansible/molecule/lab/lab.sh"
NAME = "page"
FOLDER = Path("/var/tmp/drupelet-lab") / NAME
CONTROL, BOARD, CENTRAL = "10.77.0.31", "10.77.0.11", "10.77.0.21"
PROXY = "10.77.0.1", 3128
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PREREQUISITES = (
    "python3-venv", "mtools", "e2fsprogs", "openssh-client", "sudo", "openssl", "git", "ca-certificates",
    "mosquitto-clients",
)  # fmt: skip
# What the lab's root has for the roles' own scenarios, and neither a flashed board, a fresh Debian nor a reader has.
TOO_MUCH = (
    "mosquitto", "default-jre-headless", "mosquitto-clients", "kcat", "nftables", "chrony", "unattended-upgrades",
)  # fmt: skip
RUN_S = 3600
ALARMING = ("fatal: ", "[ERROR]", "[WARNING]")
# Ansible's own, of a user whom it meets for the first time: root of each host.
FIRST_MEETING = "[WARNING]: Module remote_tmp "


def lab(*words: str) -> None:
    """Ask the lab for something; raises with what it said."""
    done = subprocess.run([LAB_SCRIPT, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def ssh(address: str, command: str, *, given: str = "", deadline_s: float = 600) -> str:
    """Run a command on a host as root; raises with what it said."""
    done = subprocess.run(
        words_for(address, command), input=given, capture_output=True, text=True, check=False, timeout=deadline_s
    )
    assert done.returncode == 0, f"{address}: {command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def words_for(address: str, command: str) -> list[str]:
    """The command line of ssh from inside the lab."""
    options = ("UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", "ConnectTimeout=10")
    said = [word for option in options for word in ("-o", option)]
    return [str(LAB_SCRIPT), "ssh", NAME, "-i", str(FOLDER / "id"), *said, f"root@{address}", command]


def start(name: str, address: str, suite: str) -> None:
    """Start a host that knows the proxy; its packages come from Debian's archive."""
    if not (FOLDER / name).exists():
        lab("up", NAME, name, address, suite)

    def answers() -> bool:
        return subprocess.run(words_for(address, "true"), capture_output=True, check=False).returncode == 0

    wait_until(answers, 60, f"ssh to {name}")
    proxy = f"http://{PROXY[0]}:{PROXY[1]}"
    ssh(address, "cat >/etc/apt/apt.conf.d/01page", given=f'Acquire::http::Proxy "{proxy}";\n')
    ssh(address, "mkdir -p /etc/ssl/certs && cat >/etc/ssl/certs/page.crt", given=CERTIFICATES.read_text())
    ssh(address, "cat >/etc/pip.conf", given=f"[global]\nproxy = {proxy}\ncert = /etc/ssl/certs/page.crt\n")
    ssh(address, "apt-get -qq update")


def strip(address: str) -> None:
    """Take off a host what the lab's root has too much."""
    ssh(address, f"DEBIAN_FRONTEND=noninteractive apt-get -qq --yes purge --autoremove {' '.join(TOO_MUCH)}")


def fresh(name: str, address: str, suite: str, user: str, key: str) -> None:
    """Start a host as a first boot leaves it: a user with a key and sudo, and nothing of what the roles install."""
    start(name, address, suite)
    strip(address)
    ssh(address, "DEBIAN_FRONTEND=noninteractive apt-get -qq --yes install sudo")
    ssh(
        address,
        f"useradd --create-home --shell /bin/bash {user} && install -d -m 700 -o {user} -g {user} /home/{user}/.ssh",
    )
    ssh(address, f"install -m 600 -o {user} -g {user} /dev/stdin /home/{user}/.ssh/authorized_keys", given=key)
    ssh(address, f"cat >/etc/sudoers.d/010_{user}", given=f"{user} ALL=(ALL) NOPASSWD: ALL\n")


def give_host_key(address: str, card: Path) -> None:
    """Give a host the ssh host key of a card, by which the reader's ssh knows the board already."""
    for name, mode in (("edge_host_ed25519_key", "600"), ("sshd_config.d/05-edge-host-key.conf", "644")):
        words = ["debugfs", "-R", f"cat /etc/ssh/{name}", f"{card}?offset={ROOT_START}"]
        content = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        ssh(address, f"install -m {mode} /dev/stdin /etc/ssh/{name}", given=content)
    ssh(address, "systemctl restart ssh")


def control_node() -> str:
    """Start a reader's machine with what the page asks for, a key and a checkout; the public key."""
    start("control", CONTROL, "bookworm")
    strip(CONTROL)
    ssh(CONTROL, f"DEBIAN_FRONTEND=noninteractive apt-get -qq --yes install {' '.join(PREREQUISITES)}", deadline_s=900)
    proxy = f"http://{PROXY[0]}:{PROXY[1]}"
    ssh(
        CONTROL,
        "cat >/root/page.env",
        given="".join(
            f"export {name}={value}\n"
            for name, value in {
                "http_proxy": proxy, "https_proxy": proxy, "no_proxy": "10.77.0.11,10.77.0.21,127.0.0.1",
                "SSL_CERT_FILE": "/etc/ssl/certs/page.crt", "LC_ALL": "C.UTF-8",
            }.items()
        ),
    )  # fmt: skip
    home = FOLDER / "control/root/root"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, home / "drupelet"], check=True)
    layout = LAYOUTS["trixie"]
    image = make_image(FOLDER / "card.img", layout)
    (home / IMAGE).write_bytes(lzma.compress(image.read_bytes(), preset=0))
    ssh(CONTROL, "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    return (home / ".ssh/id_ed25519.pub").read_text()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[None]:
    """The lab with its way out; nothing of it is left."""
    lab("down", NAME)
    try:
        lab("up", NAME, "control", CONTROL, "bookworm")
        words = [sys.executable, str(PROXY_SCRIPT), f"drupelet-{NAME}", PROXY[0], str(PROXY[1])]
        process = Process("proxy", words, tmp_path)
        process.spawn()
        try:
            wait_until(lambda: "ready" in process.output(), 20, "the proxy")
            yield
        finally:
            process.kill()
    finally:
        lab("down", NAME)


def test_the_page_holds_from_the_first_line_to_the_last(proxy: None) -> None:
    for substitution in (*CARD, *LAB):
        print(f"instead of {substitution.old!r}: {substitution.new!r}, as {substitution.reason}")
    key = control_node()
    fresh("dc-1", CENTRAL, "bookworm", "admin", key)
    home = FOLDER / "control/root/root"
    text = script(PAGE.read_text(), (*CARD, *LAB))
    text = text.replace("IMAGE_SHA256", hashlib.sha256((home / IMAGE).read_bytes()).hexdigest())
    (home / "page.sh").write_text(text)
    following = subprocess.Popen(
        words_for(CONTROL, "set -o pipefail; . ~/page.env && cd drupelet && bash ~/page.sh 2>&1 | tee ~/page.log"),
        stdin=subprocess.DEVNULL,
    )

    def through() -> bool:
        """Bring the board up when the page says that somebody puts its card in; whether the page has ended."""
        if (home / "boards-on").exists() and not (home / "boards-are-on").exists():
            fresh("pi-1", BOARD, "trixie", "site", key)
            give_host_key(BOARD, home / "cards/pi-1.img")
            (home / "boards-are-on").touch()
        return following.poll() is not None

    try:
        wait_until(through, RUN_S, "the page is through", poll_s=0.5)
        assert following.returncode == 0, "a line of the page failed: the last PAGE: above names it"
    finally:
        following.kill()
        following.wait()
    said = (home / "page.log").read_text()
    assert not not_printed(PAGE.read_text(), said), "the page shows what is no longer printed"
    alarming = [line for line in said.splitlines() if line.startswith(ALARMING) and not line.startswith(FIRST_MEETING)]
    assert not alarming, "who follows the page sees this, and nothing is wrong"
