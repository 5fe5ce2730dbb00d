"""Links between the project's pages: each file and each heading that a page links to exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:")


def tracked_pages() -> list[Path]:
    """Return each page that git knows."""
    shown = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in shown.splitlines()]


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def broken_links(page: Path) -> Iterator[str]:
    """Find the links of a page to a file or heading that does not exist."""
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if ELSEWHERE.match(link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield f"{page.name}: {link}"


def test_every_link_leads_somewhere() -> None:
    pages = tracked_pages()
    assert len(pages) > 30
    assert [link for page in pages for link in broken_links(page)] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One heading, `with` a [link](x.md)\n```\n# a comment\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "## Here\n[a](other.md), [b](#here), [c](other.md#one-heading-with-a-link), [d](https://example.org/none)\n"
        "```\n[e](none-in-a-block.md)\n```\n[f](none.md), [g](#there), [h](other.md#a-comment)\n"
    )
    assert list(broken_links(page)) == ["page.md: none.md", "page.md: #there", "page.md: other.md#a-comment"]
