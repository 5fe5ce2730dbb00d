"""The action `site_secret`: puts a random `vault_security_secret` into the vault of an inventory that has none.

With it comes the line `security_derivation: scrypt`, unless the inventory has that variable. In a running site a new
secret comes by a rotation (README.md), which the other derivation needs, too.

| the inventory | what happens |
|---|---|
| has a secret, under either name | nothing |
| has a CA in its -security folder, and no secret | AnsibleError: the CA's secret is lost or in another vault |
| has no vault.yml in group_vars/all | it is made, encrypted with the run's vault password |
| has one that is encrypted | a line is added; the other lines stay as they are |
| has one that is not encrypted | AnsibleError, before anything is written |

The secret is in no output. The file is replaced as a whole, after a sync. It needs ansible-core alone.
"""

from __future__ import annotations

import os
import secrets
import string
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.vault import is_encrypted, match_encrypt_secret
from ansible.plugins.action import ActionBase

NAME = "vault_security_secret"
DERIVATION = "security_derivation"
CHARACTERS, LENGTH = string.ascii_letters + string.digits, 32  # 190 bits


def new_secret() -> str:
    """Return 32 random letters and digits, at least one of each kind."""
    while True:
        found = "".join(secrets.choice(CHARACTERS) for _ in range(LENGTH))
        if any(map(str.islower, found)) and any(map(str.isupper, found)) and any(map(str.isdigit, found)):
            return found


def with_secret(text: str, secret: str, *, has_derivation: bool) -> str:
    """Return the text of a vault with a secret more, and with the derivation where the inventory has none."""
    more = f"{NAME}: {secret}\n" + ("" if has_derivation else f"{DERIVATION}: scrypt\n")
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{more}"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner reads; the former one stays until the new one is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".vault-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class ActionModule(ActionBase):
    """The class that Ansible loads.

    It takes `folder`, the site's -security folder, and returns `file`, `is_used` and `has_derivation`: whether the
    inventory has a security_secret and a security_derivation of its own.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the secret, unless there is one."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        path = Path(variables["inventory_dir"]) / "group_vars/all/vault.yml"
        has_derivation = DERIVATION in variables
        result.update(changed=False, file=str(path), is_used="security_secret" in variables)
        result.update(has_derivation=has_derivation)
        if NAME in variables or self._has_secret(variables):
            return result
        key = Path(str(self._task.args["folder"])).expanduser() / "ca.key"
        if key.exists():
            raise AnsibleError(
                f"{key} is there, and no {NAME}: the site has a secret, and a new one would not open its CA. Put back "
                "the vault that has it; if it is lost, README.md says how to begin again."
            )
        vault = self._loader._vault
        if not vault.secrets:
            raise AnsibleError(
                "no vault password was given, which the new secret is encrypted with: add --ask-vault-pass, or "
                "--vault-password-file FILE."
            )
        text = ""
        if path.exists():
            content = path.read_bytes()
            if content.strip() and not is_encrypted(content):
                raise AnsibleError(f"{path} is not encrypted: run `ansible-vault encrypt {path}` first.")
            text = vault.decrypt(content).decode() if content.strip() else ""
        result["changed"] = True
        if not self._task.check_mode:
            vault_id, secret = match_encrypt_secret(vault.secrets)
            name = None if vault_id == "default" else vault_id
            more = with_secret(text, new_secret(), has_derivation=has_derivation)
            replace_file(path, vault.encrypt(more, secret=secret, vault_id=name))
        return result

    def _has_secret(self, variables: dict[str, Any]) -> bool:
        try:
            return bool(self._templar.template(variables["security_secret"]))
        except (KeyError, AnsibleError):
            return False
