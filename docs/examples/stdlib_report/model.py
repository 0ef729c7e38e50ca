"""What the stages hand on to each other."""

import attrs


@attrs.frozen
class Library:
    """Where the sources are. `limit` takes only the first so many files; 0 takes them all."""

    root: str
    limit: int = 0


@attrs.frozen
class SourceFile:
    path: str
    module: str
    is_package: bool


@attrs.frozen
class Function:
    name: str
    line: int
    lines: int
    complexity: int


@attrs.frozen
class Module:
    """One file, measured. `imports` are dotted names, of which the end may be a name in a module."""

    name: str
    lines: int
    code: int
    classes: int
    functions: list[Function]
    imports: list[str]
    lazy_imports: list[str]

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]


@attrs.frozen
class Ranked:
    """A function, and where it stands."""

    module: str
    name: str
    line: int
    lines: int
    complexity: int


@attrs.frozen
class Area:
    """A module at the top level, or a package with all that is in it."""

    name: str
    files: int
    code: int
    functions: int
    complexity: float


@attrs.frozen
class Bucket:
    label: str
    functions: int


@attrs.frozen
class Ranking:
    files: int
    lines: int
    code: int
    classes: int
    functions: int
    median: int
    p95: int
    hardest: list[Ranked]
    areas: list[Area]
    spread: list[Bucket]


@attrs.frozen
class Link:
    """That something in `source` imports something in `target`; both are names at the top level."""

    source: str
    target: str


@attrs.frozen
class Imported:
    name: str
    importers: int
    imports: int


@attrs.frozen
class ImportGraph:
    """`edges` counts imports between files, `cycles` are files that import each other when they are loaded."""

    edges: int
    links: list[Link]
    imported: list[Imported]
    cycles: list[list[str]]
