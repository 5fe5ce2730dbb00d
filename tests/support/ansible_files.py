"""Loads what is below ansible/, plugins and scripts of boards, by its path, as Ansible does: it is in no package.

Ansible's copy of six adds a finder of modules to the process when it is imported: with this module, not in a test.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

importlib.import_module("ansible.module_utils.six")
ANSIBLE = Path(__file__).parents[2] / "ansible"


def copy_role(role: str, folder: Path) -> Path:
    """Copy a role to `folder`/roles without the delays between its retries, and return where it is.

    The number of retries stays. Sleeping between them proves nothing where the answers come from the test.
    """
    copy = folder / "roles" / role
    shutil.copytree(ANSIBLE / "roles" / role, copy)
    for path in copy.glob("tasks/*.yml"):
        path.write_text(path.read_text().replace("  delay: 1\n", "  delay: 0\n"))
    return copy


def load(path: str) -> ModuleType:
    """Return the module at a path below ansible/."""
    file = ANSIBLE / path
    spec = importlib.util.spec_from_file_location(f"drupelet_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
