"""Rights of mirrors that would be wider than the topics and the site that they are for.

Contains: patterns that ACLs cannot say, mirrors that keep names and may write every topic of the datacenter, and sites
whose topics another mirror's rights cover. A board that runs already goes on, and the run says it. Does not contain:
the rights themselves (plugins/action/site_access.py), which these checks ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight_rules.model import Finding, Host, action_plugin, mode


class _Values:
    """The variables of a host as site_access asks for them."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, name: str) -> Any:
        """Return a setting, else the role's default."""
        found = self._host.value(name)
        if name == "mirror_settings":
            return found if isinstance(found, Mapping) else None
        return found


def wide_rights(hosts: Sequence[Host], members: Mapping[str, Sequence[str]]) -> Iterator[tuple[Finding, bool]]:
    """Yield rights that are wider than what they are for, and whether the board runs with them already."""
    by_name = {host.name: host for host in hosts}
    site = action_plugin("site_access").Site(
        {host.name: _Values(host) for host in hosts},
        {group: [name for name in names if name in by_name] for group, names in members.items()},
        "",
    )
    mirrors = [host for host in hosts if "mirror" in host.groups]
    for host in mirrors:
        source, target = (_securing_host(site, by_name, host, f"mirror_{end}") for end in ("source", "target"))
        if source or target:
            for text in _patterns(site, host, target):
                yield host.finds("mirror_topics", text), _runs(host)
    yield from _overlapping_mirrors(site, by_name, mirrors)


def _runs(host: Host) -> bool:
    """Return whether Drupelet is on a board; one that does not answer is taken for one that has it."""
    return not host.answer or bool(host.answer.get("release"))


def _securing_host(site: Any, by_name: Mapping[str, Host], host: Host, name: str) -> str:
    """Return the host whose broker gives a mirror its rights, empty where none of the inventory does."""
    server = str(site.server(host.name, site.text(host.name, name)))
    return server if server and mode(by_name[server], site.role(server)) != "none" else ""


def _patterns(site: Any, host: Host, target: str) -> Iterator[str]:
    topics = action_plugin("site_access").topic_names(site.text(host.name, "mirror_topics"))
    for part, nearest in topics.inexact:
        if nearest.replace("\\.", ".") == part:
            yield (
                f"mirror_topics has {part}, where a dot stands for any character, and rights are for the dot "
                f"alone: write {nearest}."
            )
        else:
            begins = f", or {nearest} for all that begin so" if nearest else ", or a beginning such as readings.*"
            yield (
                f"mirror_topics has {part}, and rights know names and their beginnings alone: write each name{begins}."
            )
    if target and "*" in site.target_topics(host.name):
        yield (
            "mirror_topics selects every name, and mirror_settings keep names (policy: identity): the mirror, or a "
            f"thief with its board, could write every topic at {target}. Write each topic, or a beginning such "
            "as readings.*."
        )


def _overlapping_mirrors(
    site: Any, by_name: Mapping[str, Host], mirrors: Sequence[Host]
) -> Iterator[tuple[Finding, bool]]:
    """Yield mirrors whose rights at a target cover topics that begin with the site of another one."""
    for host in mirrors:
        target = _securing_host(site, by_name, host, "mirror_target")
        own = site.text(host.name, "mirror_site")
        for name in site.target_topics(host.name) if target else ():
            for other in mirrors:
                others = site.text(other.name, "mirror_site")
                if not others or others == own or other is host or name == "*":
                    continue
                is_beginning = name.endswith("*") and f"{others}.".startswith(name[:-1])
                is_within = _is_identity(site, host) and name.startswith(f"{others}.")
                if not (is_beginning or is_within) or _is_identity(site, other):
                    continue
                if _securing_host(site, by_name, other, "mirror_target") != target:
                    continue
                what = f"mirror_site is {own}, whose rights are for all of {own}.*"
                way = f"give one of the two another name, such as {others.replace('.', '-')}"
                if name != f"{own}.*":
                    what, way = (
                        f"mirror_topics gives rights to {name}",
                        "name other topics, or give that site another name",
                    )
                text = f"{what} at {target}, the topics of {others} ({other.name}) included: {way}."
                yield host.finds("mirror_site", text), _runs(host) and _runs(other)


def _is_identity(site: Any, host: Host) -> bool:
    """Return whether a mirror keeps names, so that no topic at its target begins with its site."""
    return f"{site.text(host.name, 'mirror_site')}.*" not in site.target_topics(host.name)


def too_wide(hosts: Sequence[Host], members: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield rights that a board would get now."""
    yield from (finding for finding, runs in wide_rights(hosts, members) if not runs)


def too_wide_as_before(hosts: Sequence[Host], members: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield rights that a board has already and keeps; no finding."""
    yield from (finding for finding, runs in wide_rights(hosts, members) if runs)
