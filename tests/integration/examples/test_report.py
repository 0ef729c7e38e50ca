"""The parts of the demo: its measurements, and the page made from them."""

import sysconfig
from html.parser import HTMLParser
from pathlib import Path

import pytest
from docs.examples.stdlib_report.charts import Box, squarified
from docs.examples.stdlib_report.measure import find_sources, measure
from docs.examples.stdlib_report.model import Function, Library, Module, SourceFile
from docs.examples.stdlib_report.pipeline import stdlib_report
from docs.examples.stdlib_report.report import render
from docs.examples.stdlib_report.summarise import build_graph, rank_modules
from typing_extensions import override

from holdfast import Engine, Worker

SOURCE = '''"""A module."""

import os.path
from . import sibling
from .other import thing

# a comment


class Shape:
    """A class.

    With a long story.
    """

    def area(self, a, b):
        import json
        def inner(x):
            return x if x else 0
        if a and b or a:
            return [y for y in range(9) if y]
        match a:
            case 1:
                return 1
            case _:
                return 2


if __name__ == "__main__":
    import doctest
'''

VOID = {"meta", "rect", "line", "circle", "path"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE)
    for name in ("tests", "__pycache__", "site-packages"):
        (folder / name).mkdir()
        (folder / name / "left_out.py").touch()
    return tmp_path


def test_sources_are_found_without_tests_and_installed_packages(package: Path) -> None:
    (source,) = find_sources(package)
    assert (source.module, source.is_package) == ("shapes", True)


def test_a_file_is_measured_by_mccabes_rules(package: Path) -> None:
    (source,) = find_sources(package)
    module = measure(source)
    assert [(one.name, one.line, one.complexity) for one in module.functions] == [
        ("Shape.area", 16, 7),  # if, and, or, a comprehension with its condition, and a case
        ("Shape.area.inner", 18, 2),
    ]
    assert module.imports == ["os.path", "shapes.other.thing", "shapes.sibling"]
    assert module.lazy_imports == ["doctest", "json"]
    assert module.classes == 1
    assert (module.lines, module.code) == (30, 18)


def test_a_cycle_is_found_and_a_late_import_is_none() -> None:
    modules = [
        _module("a", imports=["b.name"]),
        _module("b", imports=["c"]),
        _module("c", imports=["a"]),
        _module("d", imports=["a"]),
        _module("e", imports=["f"]),
        _module("f", lazy=["e"]),
    ]
    graph = build_graph(modules)
    assert graph.cycles == [["a", "b", "c"]]
    assert graph.edges == 6
    assert [(one.name, one.importers) for one in graph.imported[:2]] == [("a", 2), ("b", 1)]


def test_tiles_fill_the_box_and_are_as_large_as_their_values() -> None:
    values = [50.0, 30.0, 12.0, 5.0, 2.0, 1.0]
    tiles = squarified(values, Box(0, 0, 200, 50))
    assert [tile.width * tile.height for tile in tiles] == pytest.approx([value * 100 for value in values])
    assert max(tile.x + tile.width for tile in tiles) == pytest.approx(200)
    assert max(tile.y + tile.height for tile in tiles) == pytest.approx(50)


def test_the_page_is_sound_needs_nothing_else_and_escapes_what_it_shows() -> None:
    evil = '<script>alert("x")</script>&'
    function = Function(name=evil, line=1, lines=2, complexity=3)
    modules = [_module(evil, functions=[function], imports=["b"]), _module("b", imports=[evil])]
    page = render(rank_modules(modules), build_graph(modules), version="<3>")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for outside in ("http:", "https:", "src=", "url(", "@import", "<link"):
        assert outside not in page
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.headings[0] == "h1"
    assert reader.targets <= reader.ids
    assert reader.charts
    assert reader.charts <= reader.ids


def test_a_page_of_nothing_is_a_page() -> None:
    page = render(rank_modules([]), build_graph([]))
    assert "0 source files" in page


@pytest.mark.slow
def test_the_pipeline_gives_the_page_that_its_parts_give() -> None:
    root = sysconfig.get_path("stdlib")

    with Engine.open("memory://", workflows=[stdlib_report]).sync as engine, Worker(engine):
        page = engine.run(stdlib_report(Library(root=root, limit=25)))
    modules = [measure(source) for source in find_sources(Path(root))[:25]]
    assert page == render(rank_modules(modules), build_graph(modules))


def test_a_file_that_is_no_python_says_where(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (:\n")
    with pytest.raises(SyntaxError, match="broken"):
        measure(SourceFile(path=str(tmp_path / "broken.py"), module="broken", is_package=False))


def _module(
    name: str,
    *,
    functions: list[Function] | None = None,
    imports: list[str] | None = None,
    lazy: list[str] | None = None,
) -> Module:
    return Module(
        name=name,
        lines=10,
        code=8,
        classes=0,
        functions=functions or [],
        imports=imports or [],
        lazy_imports=lazy or [],
    )


class _Reader(HTMLParser):
    """An HTML parser that checks a page's structure."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.charts: set[str] = set()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"h1", "h2"}:
            self.headings.append(tag)
        if name := given.get("id"):
            assert name not in self.ids
            self.ids.add(name)
        if given.get("href", "").startswith("#"):
            self.targets.add(given["href"][1:])
        if tag == "svg" and "aria-hidden" not in given:
            assert given["role"] == "img"
            self.charts.update(given["aria-labelledby"].split())

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag
