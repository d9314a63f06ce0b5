"""The documentation site: built strictly, whole, and without a network; and in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import click
import pytest

from docs.make_pictures import PICTURES, terminals
from replay.cli.main import command
from replay.results.schema import TABLES
from tests.e2e.browser import Browser, browser

__all__ = ["browser"]

ROOT = Path(__file__).resolve().parents[2]
BASE = "http://site/"
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
CODE = re.compile(r"<(pre|code|script)\b.*?</\1>", re.DOTALL)
SOURCE = re.compile(r"^(?:<p>)?\|.*\|$|^<p>[^<]*\n- .*|.*\]\(.*", re.MULTILINE)
DRAWN = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")

PAGES = ("index.html", "importers.html", "api/scheduler.html", "commands.html", "performance.html")
OVERFLOW = """
const width = document.documentElement.clientWidth;
return [document.documentElement.scrollWidth - width, ...[...document.querySelectorAll(
  ".md-content pre > code, .md-content .md-typeset__scrollwrap")].filter(
  each => each.getBoundingClientRect().right > width + 1).map(each => each.textContent)];
"""
RESULTS = "return document.querySelectorAll('.md-search-result__item').length"


class _Page(HTMLParser):
    """What one page links to, loads and names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag's address and anchors."""
        values = {name: value for name, value in attrs if value}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif LOADED.get(tag) in values:
            self.loads.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site that was built strictly."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    environment = os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> Mapping[str, _Page]:
    """Return every page by its path in the site."""
    return {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }


def _targets(pages: Mapping[str, _Page]) -> Iterator[tuple[str, str]]:
    for name, page in pages.items():
        for link in [*page.links, *page.loads]:
            yield name, urljoin(BASE + name, link)


def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(
    site: Path, pages: Mapping[str, _Page]
) -> None:
    """Also those that the theme adds."""
    assert len(pages) > 60
    broken = []
    for name, address in _targets(pages):
        url = urlsplit(address)
        if url.netloc != "site":
            continue
        path = unquote(url.path).removeprefix("/")
        path = f"{path}index.html" if path.endswith("/") or not path else path
        anchors = pages[path].anchors if path in pages else {""}
        if not (site / path).is_file() or unquote(url.fragment) not in anchors:
            broken.append((name, address.removeprefix(BASE)))
    assert broken == []


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: Mapping[str, _Page]) -> None:
    """Neither a script, a style sheet, a font nor an image; so the site opens from a folder."""
    addresses = [
        urljoin(BASE + name, address) for name, page in pages.items() for address in page.loads
    ]
    for path in [*site.rglob("*.css"), *site.rglob("*.svg"), *site.rglob("*.html")]:
        name = path.relative_to(site).as_posix()
        for found in DRAWN.findall(path.read_text(encoding="utf-8")):
            addresses.extend(urljoin(BASE + name, address) for address in found if address)
    assert len(addresses) > len(pages)
    elsewhere = [address for address in addresses if not address.startswith((BASE, "data:", "#"))]
    assert elsewhere == []


def test_a_page_outside_the_docs_is_in_the_site_and_source_files_are_code(
    site: Path, pages: Mapping[str, _Page]
) -> None:
    """ARCHITECTURE.md is a page; the examples that write-a-scheduler.md names are folders."""
    assert "architecture.html" in pages["index.html"].links
    assert "examples/schedulers/first-fit-go/index.html" in pages["write-a-scheduler.html"].links
    text = (site / "golden-vectors.html").read_text(encoding="utf-8")
    assert "conform" in text
    assert not any(
        urlsplit(address).path.endswith((".py", ".proto", ".binpb"))
        for _, address in _targets(pages)
    )


def test_lists_and_tables_are_drawn_as_such(site: Path, pages: Mapping[str, _Page]) -> None:
    """Also after a paragraph or an output without an empty line, as on code hosting sites."""
    text = (site / "performance.html").read_text(encoding="utf-8")
    assert re.search(r"<p>What the tables show:</p>\s*<ul>", text)
    for name in pages:
        text = CODE.sub("", (site / name).read_text(encoding="utf-8"))
        assert re.findall(r"^(?:<p>)?\|.*\|$|^<p>[^<]*\n- .*|.*\]\(.*", text, re.MULTILINE) == [], (
            name
        )


def test_generated_parts_name_every_command_exit_code_and_table(site: Path) -> None:
    """The commands from click, the codes from its help, the tables from their schema."""

    def text(name: str) -> str:
        return (site / name).read_text(encoding="utf-8")

    with click.Context(command) as context:
        for name in command.list_commands(context):
            assert f'id="reprieve-{name}"' in text("commands.html")
    assert 'id="reprieve-serve-queue"' in text("commands.html")
    for code in ("0", "1", "2", "3", "4", "5", "6", "129, 130, 143"):
        assert f"<td>{code}</td>" in text("exit-codes.html")
    assert all(f'<h2 id="{table}">' in text("tables.html") for table in TABLES)
    assert "<!-- build" not in text("commands.html")


@pytest.mark.e2e
@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (400, "light")])
def test_pages_fit_the_screen_and_ask_no_network(
    browser: Browser, site: Path, width: int, scheme: str
) -> None:
    """Wide tables and outputs scroll by themselves; the console shows no error."""
    browser.look(width=width, scheme=scheme)
    for page in PAGES:
        browser.open(site / page)
        browser.settle()
        assert browser.run(OVERFLOW) == [0], page
        assert browser.requested() <= {"file", "data", "blob"}
        assert browser.console() == []
    dark = browser.run("return document.body.dataset.mdColorScheme") == "slate"
    assert dark == (scheme == "dark")


@pytest.mark.e2e
def test_the_search_finds_a_page_without_a_server(browser: Browser, site: Path) -> None:
    """The index is a script, and the worker an iframe."""
    browser.look(width=1400, scheme="light")
    browser.open(site / "index.html")
    browser.run("document.querySelector('label.md-search__icon').click()")
    browser.run(
        "const field = document.querySelector('.md-search__input');"
        "field.focus(); field.value = 'reprieved';"
        "field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));"
    )
    until = time.monotonic() + 60
    while not (found := browser.run(RESULTS)) and time.monotonic() < until:
        time.sleep(0.1)
    assert found > 0


def test_the_pictures_of_the_readme_show_what_the_commands_print() -> None:
    """Where this fails: `make pictures`. The report's is a photograph, and is not compared."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, svg in terminals().items():
        assert f"docs/pictures/{name}.svg" in readme
        assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == svg
    assert "docs/pictures/report.png" in readme
    assert all(path.stat().st_size < 150_000 for path in PICTURES.iterdir())
