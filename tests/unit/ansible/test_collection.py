"""The collection drupelet.edge: built from the checkout, installed into a project, its roles found by their names."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.runtimes import console_script

CHECKOUT = Path(__file__).parents[3]
ANSIBLE = CHECKOUT / "ansible"
ROLES = sorted(path.name for path in (ANSIBLE / "roles").iterdir())


def run(project: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(console_script(program)), *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with nothing in it but the collection, from the tarball."""
    project = tmp_path_factory.mktemp("project")
    (project / "ansible.cfg").write_text("[defaults]\ncollections_path = collections\n")
    built = run(project, "ansible-galaxy", "collection", "build", f"--output-path={project}", str(ANSIBLE))
    assert built.returncode == 0, built.stderr
    (tarball,) = project.glob("drupelet-edge-*.tar.gz")
    installed = run(project, "ansible-galaxy", "collection", "install", "--offline", str(tarball), "-p", "collections")
    assert installed.returncode == 0, installed.stderr
    (project / "hosts.yml").write_text(
        "{base: {hosts: {pi-1: {ansible_connection: local, preflight_accept: [systemd, distribution, python], "
        f"ansible_python_interpreter: {sys.executable}}}}}}}}}\n"
    )
    return project


def test_its_version_is_that_of_the_software():
    galaxy = yaml.safe_load((ANSIBLE / "galaxy.yml").read_text())
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert (galaxy["version"], galaxy["license"]) == (project["version"], [project["license"]])


def test_it_holds_all_roles_and_playbooks_and_nobodys_inventory(project):
    (tarball,) = project.glob("drupelet-edge-*.tar.gz")
    with tarfile.open(tarball) as file:
        names = set(file.getnames())
        jars = file.extractfile("roles/spark/files/connector.jars")
        assert jars is not None
        assert jars.read() == (CHECKOUT / "spark/connector.jars").read_bytes()
    assert {f"roles/{role}/meta/main.yml" for role in ROLES} <= names
    assert {f"playbooks/{path.name}" for path in (ANSIBLE / "playbooks").glob("*.yml")} <= names
    assert not [name for name in names if name.startswith(("inventories", "molecule", "ansible.cfg"))]
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.mark.parametrize("role", ROLES)
def test_each_role_says_what_galaxy_asks(role):
    meta = yaml.safe_load((ANSIBLE / f"roles/{role}/meta/main.yml").read_text())["galaxy_info"]
    specs = yaml.safe_load((ANSIBLE / f"roles/{role}/meta/argument_specs.yml").read_text())["argument_specs"]
    assert meta["role_name"] == role
    assert meta["description"] == specs["main"]["short_description"]
    assert meta["min_ansible_version"] == "2.18"


def test_roles_are_found_by_their_full_names_with_what_they_include(project):
    plays = [{"hosts": "all", "gather_facts": False, "roles": [f"drupelet.edge.{role}" for role in ROLES]}]
    (project / "roles.yml").write_text(yaml.safe_dump(plays))
    listed = run(project, "ansible-playbook", "-i", "hosts.yml", "roles.yml", "--list-tasks")
    assert listed.returncode == 0, listed.stderr
    assert {role for role in ROLES if f"drupelet.edge.{role} : " in listed.stdout} == set(ROLES)


def test_the_passwords_are_planned_and_hashed_by_the_collections_own_plugins(project):
    template = ANSIBLE / "roles/mosquitto/templates/passwd.j2"
    role = project / "collections/ansible_collections/drupelet/edge/roles/mosquitto"
    assert (role / "templates/passwd.j2").read_text() == template.read_text()
    (role / "tasks/hash.yml").write_text(
        "- site_rotation:\n"
        "    access: {mqtt_owners: {}, mqtt_removed: []}\n"
        "    mqtt_users: '{{ mosquitto_users }}'\n"
        "    mqtt_passwd: ''\n"
        "    mqtt_made: {}\n"
        "    mqtt_journal: {now: 0}\n"
        "  register: mosquitto_plan\n"
        "- ansible.builtin.copy:\n"
        "    content: \"{{ lookup('template', 'passwd.j2') }}\"\n"
        "    dest: '{{ hashed }}'\n"
        "    mode: '0600'\n"
    )
    variables = {"mosquitto_users": [{"name": "a", "password": "b", "acl": []}], "hashed": str(project / "passwd")}
    task = {"ansible.builtin.include_role": {"name": "drupelet.edge.mosquitto", "tasks_from": "hash"}}
    play = {"hosts": "all", "gather_facts": False, "vars": variables, "tasks": [task]}
    (project / "hash.yml").write_text(yaml.safe_dump([play]))
    done = run(project, "ansible-playbook", "-i", "hosts.yml", "hash.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "passwd").read_text().startswith("a:$7$10000$")
    assert (project / "passwd").read_text().count("\n") == 1


def test_a_playbook_by_its_full_name_looks_before_it_changes(project):
    done = run(project, "ansible-playbook", "-i", "hosts.yml", "drupelet.edge.provision", "-e", "base_firewal=false")
    assert "pi-1: no role takes the variable base_firewal. Is it base_firewall? [base_firewal]" in done.stdout
    assert done.returncode == 2


def test_without_a_checkout_the_wheel_is_asked_for(project):
    done = run(project, "ansible-playbook", "-i", "hosts.yml", "drupelet.edge.wheel")
    assert done.returncode == 2
    assert "is no checkout of Drupelet, so no wheel can be built from it: set drupelet_wheel to one." in done.stdout


def test_users_passwords_and_the_ca_are_made_by_the_collections_own_actions(project):
    secret = {"security_secret": "a secret of 24 characters", "security_dir": str(project / "ca")}
    client = {"security_service": "gateway", "security_bootstrap": "10.0.0.1:9092", "security_group": "root"}
    parts = {"server": {}, "client": client | {"security_password_file": str(project / "password")}}
    tasks: list[dict[str, object]] = [
        {"ansible.builtin.include_role": {"name": "drupelet.edge.security", "tasks_from": part}, "vars": given}
        for part, given in parts.items()
    ]
    told = "{{ security_access.users | dict2items | map(attribute='key') | sort | join(',') }} {{ security_signed.ca }}"
    tasks.append({"ansible.builtin.debug": {"msg": told}})
    host = {"broker_listen": "0.0.0.0:9092", "ansible_host": "10.0.0.1", "ansible_connection": "local", **secret}
    host["ansible_python_interpreter"] = sys.executable
    groups = {group: {"hosts": {"pi-1": host}} for group in ("broker", "gateway")}
    (project / "secured.yml").write_text(yaml.safe_dump(groups))
    (project / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    done = run(project, "ansible-playbook", "-i", "secured.yml", "--check", "play.yml")
    assert "admin,gateway-pi-1,verify-pi-1 -----BEGIN CERTIFICATE-----" in done.stdout, done.stdout
