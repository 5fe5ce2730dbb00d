"""The role gateway writes whether the board's clock is trusted, in the words of the gateway's configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import load_config
from tests.support.runtimes import console_script

ROLE = Path(__file__).parents[3] / "ansible/roles/gateway"
PLAY = """\
- hosts: localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml]
  vars:
    gateway_metrics_access: {{token_file: "", trusted: false}}
    gateway_login: {{protocol: ""}}
    spec: "{{{{ lookup('file', '{role}/meta/argument_specs.yml') | from_yaml }}}}"
  tasks:
    - name: Check the arguments
      ansible.builtin.validate_argument_spec:
        argument_spec: "{{{{ spec.argument_specs.main.options }}}}"
    - name: Write the configuration
      ansible.builtin.template:
        src: {role}/templates/gateway.toml.j2
        dest: {folder}/gateway.toml
        mode: "0600"
"""


def written(folder: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    """Write the configuration with these variables."""
    (folder / "play.yml").write_text(PLAY.format(role=ROLE, folder=folder))
    words = [
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        json.dumps({"ansible_python_interpreter": sys.executable, **variables}),
        folder / "play.yml",
    ]
    return subprocess.run(
        [console_script("ansible-playbook"), *words], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "auto"),
        ({"gateway_clock_trusted": True}, "true"),
        ({"gateway_clock_trusted": "true"}, "true"),
        ({"gateway_clock_trusted": False}, "false"),
    ],
)
def test_the_configuration_says_whether_the_clock_is_trusted(
    tmp_path: Path, variables: dict[str, object], expected: str
) -> None:
    done = written(tmp_path, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert load_config(tmp_path / "gateway.toml").clock_trusted == expected


def test_another_word_is_refused(tmp_path: Path) -> None:
    done = written(tmp_path, gateway_clock_trusted="sometimes")
    assert done.returncode != 0
    assert "gateway_clock_trusted" in done.stdout
