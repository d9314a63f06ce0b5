"""Hook of MkDocs: pages are files of the repository, and so are the targets of their links.

Links are written as they work in the repository. In the site a link to a page leads to that page,
also where the page is not below docs/; a link to another file becomes its path in code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "vulnerabilities.md",
    "conformance/README.md": "golden-vectors.md",
}
"""Pages that are not below docs/, and their places in the site; READMEs of examples keep theirs."""
_BLOCK = re.compile(r"(?:[-*]|1\.) |\|")


class _Site(Extension):
    """The place in the site of each file of the repository, and the page that is rendered now."""

    def __init__(self) -> None:
        super().__init__()
        docs = [path for path in (ROOT / "docs").rglob("*.*") if path.suffix not in {".py", ".pyc"}]
        self.places = {_named(path): path.relative_to(ROOT / "docs").as_posix() for path in docs}
        self.outside = OUTSIDE | {
            name: name
            for name in map(_named, (ROOT / "examples").rglob("README.md"))
            if "node_modules" not in name
        }
        self.places |= self.outside
        self.page = ""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's name
        """Add what is done for every page."""
        md.preprocessors.register(_Blocks(md), "blocks", 24)  # after fences have been taken out
        md.treeprocessors.register(_Links(md), "repository", 1)  # before MkDocs checks links

    def expanded(self, nav: Any) -> Any:
        """Return the navigation with "FOLDER/*" replaced by every page of the folder."""
        if isinstance(nav, dict):
            return {title: self.expanded(entry) for title, entry in nav.items()}
        return (
            [page for entry in nav for page in self._pages(entry)] if isinstance(nav, list) else nav
        )

    def _pages(self, entry: Any) -> list[Any]:
        if not str(entry).endswith("/*"):
            return [self.expanded(entry)]
        pages = {page for page in self.places.values() if page.startswith(entry[:-1])}
        return sorted(page for page in pages if page.endswith(".md"))


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


class _Blocks(Preprocessor):
    """A list or table may follow a paragraph without an empty line, as on GitHub."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines with an empty one before each such block."""
        separated, is_paragraph, is_block = [], False, False
        for line in lines:
            begins = _BLOCK.match(line) is not None
            if begins and is_paragraph:
                separated.append("")
            is_block = bool(line.strip()) and (begins or is_block)
            is_paragraph = bool(line.strip()) and not is_block
            separated.append(line)
        return separated


class _Links(Treeprocessor):
    """Turns links of one page from the repository's into the site's, or into code."""

    def run(self, root: Element) -> None:
        """Change every relative link and image of the page, and unescape code in tables."""
        for code in (code for cell in root.iter("td") for code in cell.iter("code")):
            code.text = (code.text or "").replace("\\|", "|")  # as GitHub's tables have it
        folder = posixpath.dirname(_SITE.page)
        for element in root.iter():
            key = {"a": "href", "img": "src"}.get(element.tag, "")
            url = urlsplit(element.get(key, ""))
            if url.scheme or url.netloc or not url.path:
                continue
            target = posixpath.normpath(posixpath.join(folder, url.path))
            page = target if target in _SITE.places else f"{target}/README.md"
            if page in _SITE.places:
                start = posixpath.dirname(_SITE.places[_SITE.page]) or "."
                path = posixpath.relpath(_SITE.places[page], start)
                element.set(key, url._replace(path=path).geturl())
                if element.text in {page, posixpath.basename(page)}:  # by its title, not its file
                    element.text = (ROOT / page).read_text("utf-8").partition("\n")[0].lstrip("# ")
            elif (ROOT / target).exists():
                _name(element, target)


def _name(link: Element, path: str) -> None:
    """Make a link to a file the file's path in code, after the link's text where it differs."""
    text = "".join(link.itertext())
    link.clear()
    link.tag = "span"
    code = SubElement(link, "code")
    code.text = path
    if text not in path:
        link.text, code.tail = f"{text} (", ")"


_SITE = _Site()


def on_config(config: MkDocsConfig) -> None:
    """Add the extension, and the pages that the navigation names by their folder."""
    config.markdown_extensions.append(_SITE)  # type: ignore[arg-type] # Markdown takes both
    config.nav = _SITE.expanded(config.nav)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Bring the pages in that are not below docs/."""
    for path, place in _SITE.outside.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Page, **_: object) -> None:
    """Keep which page's links follow."""
    del markdown
    _SITE.page = next(path for path, place in _SITE.places.items() if place == page.file.src_uri)
