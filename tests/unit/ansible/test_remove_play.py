"""playbooks/remove.yml by ansible-playbook: a lost board, brokers and mosquittos that answer, and some that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ansible.two_boards import SEEN, TwoBoards

SSH = "#!/bin/sh\necho nobody there >&2\nexit 255\n"
RELOAD = """case $1 in
reload) [ ! -e {folder}/broken ] || exit 1 ;;
show) printf 'LoadState=loaded\\nActiveState=active\\n' ;;
esac
"""


class Removal(TwoBoards):
    """The board pi-1 is lost: its gateway used pi-2 and mosquitto of pi-4, its mirror pi-2 and pi-3."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        lost = {
            "gateway_kafka": "10.0.0.2:9092", "gateway_mqtt_host": "10.0.0.4", "gateway_mqtt_username": "gateway",
            "gateway_metrics": "10.0.0.1:9404", "mirror_source": "10.0.0.2:9092", "mirror_target": "10.0.0.3:9092",
            "mirror_site": "plant-7",
        }  # fmt: skip
        users = [{"name": name, "password": name, "acl": ["read #"]} for name in ("gateway", "thermometer")]
        self.variables = {"pi-1": lost, "pi-2": {}, "pi-3": {}, "pi-4": {"mosquitto_users": users}}
        self.groups = {"gateway": ["pi-1"], "mirror": ["pi-1"], "mosquitto": ["pi-4"], "broker": ["pi-2", "pi-3"]}
        for path in folder.glob("roles/mosquitto/*/*.yml"):
            text = path.read_text().replace("    group: mosquitto\n", "")
            path.write_text(text.replace(" /etc/mosquitto/", f" {folder}/{{{{ inventory_hostname }}}}/etc/mosquitto/"))
        tasks = folder / "playbooks/tasks/remove_from.yml"
        tasks.write_text(
            tasks.read_text().replace(" /etc/mosquitto/", f" {folder}/{{{{ inventory_hostname }}}}/etc/mosquitto/")
        )
        for path in (folder / "roles/mosquitto/handlers/main.yml", folder / "playbooks/remove.yml"):
            text = path.read_text().replace(" /etc/drupelet/", f" {folder}/{{{{ inventory_hostname }}}}/etc/")
            for line in ("owner: root", "group: root"):
                text = text.replace(f"    {line}\n", "")
            path.write_text(text.replace("become: true", "become: false"))
        (folder / "systemctl").write_text("#!/bin/sh\n" + RELOAD.format(folder=folder))
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o755)
        self.passwd = folder / "pi-4/etc/mosquitto/passwd"
        self.passwd.parent.mkdir(parents=True)
        self.passwd.write_text("gateway:$7$x\nthermometer:$7$y\n")
        for host in ("pi-3", "pi-4"):
            self.make_board(host)
        self.holds("pi-2", dict.fromkeys(("admin", "gateway-pi-1", "mirror-pi-1", "verify-pi-1"), SEEN))
        self.holds("pi-3", dict.fromkeys(("admin", "mirror-pi-1", "mirror-pi-1~2", "verify-pi-1"), SEEN))

    def away(self, *hosts: str) -> None:
        """Let these hosts be off; all others are on."""
        for host, variables in self.variables.items():
            ways = ("ansible_connection", "ansible_ssh_executable")
            for name in ways:
                variables.pop(name, None)
            if host in hosts:
                variables.update(zip(ways, ("ssh", str(self.folder / "ssh")), strict=True))

    def remove(self, *words: str, code: int = 0) -> str:
        known = self.folder / "known_hosts"
        return self.run(
            "-e", "remove_host=pi-1", "-e", f"flash_known_hosts={known}", *words, playbook="remove", code=code
        )

    def mqtt_users(self) -> list[str]:
        return [line.partition(":")[0] for line in self.passwd.read_text().splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Removal:
    found = Removal(tmp_path / "site")
    found.away("pi-1")
    return found


def test_a_lost_board_has_no_log_in_anywhere_afterwards_and_the_list_says_where(site):
    said = site.remove()
    assert site.users("pi-2") == site.users("pi-3") == {"admin"}
    assert site.mqtt_users() == ["thermometer"]
    assert "The broker of pi-2 has ended gateway-pi-1, mirror-pi-1, verify-pi-1, with all generations." in said
    assert "The broker of pi-3 has ended mirror-pi-1, verify-pi-1, with all generations." in said
    assert "The mosquitto of pi-4 has ended gateway, with all generations." in said
    assert "Metrics: take 10.0.0.1:9404 of pi-1 out of the targets of your Prometheus." in said
    assert "10.0.0.3:9092 keeps the topics plant-7.* and the state of its mirror" in said
    assert "keeps gateway" not in said
    assert "changed=0" in site.remove().partition("PLAY RECAP")[2]


@pytest.mark.night
def test_a_broker_that_is_off_is_named_with_what_it_keeps_and_the_next_run_ends_it(site):
    site.away("pi-1", "pi-3")
    said = site.remove(code=2)
    assert "The broker of pi-3 keeps mirror-pi-1, verify-pi-1: not reached, " in said
    assert "nobody there" in said
    assert "run this again; any run of provision.yml at these hosts ends them, too" in said
    assert (site.users("pi-2"), site.mqtt_users()) == ({"admin"}, ["thermometer"])
    site.away("pi-1")
    assert "keeps mirror-pi-1" not in site.remove()
    assert site.users("pi-3") == {"admin"}


@pytest.mark.night
def test_mosquitto_loses_the_user_also_where_every_broker_is_off_or_fails(site):
    """Ansible ends a run where each host of a play has failed. This mosquitto is of a release without mqtt-log-ins."""
    site.groups["broker"] = ["pi-4", "pi-2", "pi-3"]
    site.variables["pi-4"]["mirror_target"] = "10.0.0.4:9092"
    site.away("pi-1", "pi-2", "pi-3")
    (site.folder / "pi-4/current/bin/python").write_text("#!/bin/sh\necho the card is torn >&2\nexit 1\n")
    site.variables["pi-1"]["mirror_source"] = "10.0.0.4:9092"
    said = site.remove(code=2)
    assert site.mqtt_users() == ["thermometer"]
    assert "The broker of pi-2 keeps gateway-pi-1, verify-pi-1: not reached" in said
    assert "The broker of pi-3 keeps mirror-pi-1, verify-pi-1: not reached" in said
    assert "The broker of pi-4 keeps mirror-pi-1: " in said


@pytest.mark.night
def test_a_mosquitto_that_cannot_be_reloaded_is_named_and_the_next_run_reloads_it(site):
    (site.folder / "broken").touch()
    said = site.remove(code=2)
    assert "The mosquitto of pi-4 keeps gateway: " in said
    assert (site.users("pi-2"), site.users("pi-3")) == ({"admin"}, {"admin"})
    (site.folder / "broken").unlink()
    assert "The mosquitto of pi-4 has ended gateway" in site.remove("--tags", "mosquitto")


@pytest.mark.parametrize("host", ["pi-22", "gateway", ""])
def test_a_name_that_is_no_board_is_refused_and_nothing_changes(site, host):
    said = site.run("-e", f"remove_host={host}", playbook="remove", code=2)
    assert "write -e remove_host= and the name of one board" in said
    assert "gateway-pi-1" in site.users("pi-2")


def test_a_limit_is_refused_as_brokers_beyond_it_would_keep_the_log_ins(site):
    said = site.remove("--limit", "pi-1,pi-3", code=2)
    assert "leave it out, as each broker beyond it would keep the log-ins of pi-1" in said
    assert "gateway-pi-1" in site.users("pi-2")
