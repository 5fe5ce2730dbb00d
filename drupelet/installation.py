"""Describe the installation: version and commit, and the remedy for a missing package.

| installed from | the commit is | a missing package |
|---|---|---|
| a wheel | in `commit.txt`, with its date, written when the wheel was built | pip, with the wheel or a checkout |
| a wheel, by the Ansible role | the same | the inventory's groups, and provision.yml |
| a checkout | from git | pip, in the checkout |

Does not contain: git on a board. Imported only on request.
"""

from __future__ import annotations

import os
import subprocess
import sys

UNKNOWN = "unknown"
COMMIT_FILE = os.path.join(os.path.dirname(__file__), "commit.txt")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARK_OF_THE_ROLE = ".installed"  # ansible/roles/drupelet/files/release.py writes it
GROUPS = {"gateway": "gateway", "hardware": "gateway", "mirror": "mirror", "spark": "spark_jobs"}  # bring the extra
COMMIT_DIGITS = 12
GIT_S = 10.0
LEAST_S = 1_767_225_600  # 2026-01-01, before which nothing of this was built


def version_line(program: str) -> str:
    """`PROGRAM VERSION, commit COMMIT`."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 10 ms that no start should pay

    try:
        number = version("drupelet")
    except PackageNotFoundError:  # a checkout that was never installed
        number = f"version {UNKNOWN}"
    return f"{program} {number}, commit {commit()}"


def commit() -> str:
    """Return the commit of the build, with `+dirty` after it if files differed; else `unknown`."""
    try:
        with open(COMMIT_FILE, encoding="ascii") as file:
            return file.readline().strip() or UNKNOWN
    except FileNotFoundError:
        return commit_of(ROOT)
    except (OSError, UnicodeDecodeError):
        return UNKNOWN


def built_s() -> int:
    """Return when this was committed, in seconds since 1970: no clock that shows less is right.

    Does not run git, as a service calls it at its start: in a checkout, and in a wheel without a date, it is LEAST_S.
    """
    try:
        with open(COMMIT_FILE, encoding="ascii") as file:
            return max(LEAST_S, int(file.read().split()[1]))
    except (OSError, ValueError, IndexError):
        return LEAST_S


def commit_date(checkout: str) -> int | None:
    """Return the date of a checkout's commit, in seconds since 1970, from git; None if unknown."""
    if not os.path.exists(os.path.join(checkout, ".git")):
        return None
    found = _git(checkout, "log", "-1", "--format=%ct")
    return int(found) if found and found.isdecimal() else None


def commit_of(checkout: str) -> str:
    """Return the commit of a checkout, from git; `unknown` without a checkout or git."""
    if not os.path.exists(os.path.join(checkout, ".git")):  # else git answers for a checkout around it
        return UNKNOWN
    found = _git(checkout, "rev-parse", f"--short={COMMIT_DIGITS}", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if not found or changed is None:
        return UNKNOWN
    return f"{found}+dirty" if changed else found


def _git(checkout: str, *arguments: str) -> str | None:
    """Return what git prints; None when it fails, or there is none."""
    try:
        done = subprocess.run(  # noqa: S603 - no argument comes from outside
            ["git", "--no-optional-locks", "-C", checkout, *arguments],  # noqa: S607 - where the system has it
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


EXTRAS = {"kazoo": "cluster"}  # packages with their own extra, for any part that needs them


def missing_package(package: str, extra: str) -> str:
    """One sentence: which package is missing, and what brings it here; `extra` is that of the part which needs it."""
    extra = EXTRAS.get(package.partition(".")[0], extra)
    brings = f"[{extra}]" if extra else ""
    if os.path.exists(os.path.join(sys.prefix, MARK_OF_THE_ROLE)):
        group = GROUPS.get(extra, "")
        groups = f"put this board into the group `{group}` of the inventory and play" if group else "play"
        return f"the Python package {package} is missing: {groups} playbooks/provision.yml again"
    return (
        f"the Python package {package} is missing: pip install '.{brings}' in a checkout of Drupelet, "
        f"or pip install 'PATH/drupelet-….whl{brings}' with the wheel"
    )
