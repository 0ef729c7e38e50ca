"""The pages are right: code runs, links resolve, lists are complete."""

import contextlib
import io
import logging
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import cast

import click
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig

import holdfast
from holdfast import client, errors, plugins, serverless, workflows
from holdfast.adapters.nats.connection import NatsConnection, jetstream
from holdfast.hosts.cli.app import command_line
from holdfast.hosts.cli.exit_codes import MEANINGS
from holdfast.hosts.inspection.filters import FilterOptions, ListOptions
from holdfast.kernel.authoring.functions import WorkflowOptions
from holdfast.kernel.authoring.options import (
    BodyDefaults,
    BodyOptions,
    ChildStartOptions,
    StartAllOptions,
    StartOptions,
)
from holdfast.kernel.authoring.steps import StepOptions
from holdfast.kernel.commands import Command
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.rules.registry import command_from, reply_type
from holdfast.ports.errors import HoldfastError
from holdfast.ports.json import parse
from tests.aws import REGION, fake_aws
from tests.integration.examples.pages import DOCS, PAGES, ROOT, anchors, blocks, links, prose, table
from tests.integration.examples.served_shop import served_shop
from tests.nats import private_nats
from tests.poll_intervals import look_often
from tools import states

PROMISES = (
    "State changes happen exactly once",
    "Bodies run at least once, at most once per counted try",
    "Results are observed exactly once",
    (
        "External effects are effectively once if the target honours `ctx.idempotency_key`,"
        " which is the same for every attempt"
    ),
)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# What is shown --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _nats() -> Generator[str]:
    """A server with a stream for events."""
    with private_nats() as server:
        connection = NatsConnection("pages", server.url)

        async def make(client: Client) -> None:
            await jetstream(client).add_stream(StreamConfig(name="EVENTS", subjects=["shop.events.>"]))

        connection.run("make a stream", make, 10)
        connection.close()
        yield server.url


@contextlib.contextmanager
def _surroundings(page: Path, patched: pytest.MonkeyPatch) -> Generator[None]:
    """The environment that a page presupposes."""
    if page.name == "nats.md":
        with _nats() as url:
            patched.setenv("NATS_URL", url)
            yield
        return
    if page.name == "http-client.md":
        with served_shop() as url:
            patched.setenv("HOLDFAST_SERVER", url)
            patched.setenv("HOLDFAST_KEY", "all")
            yield
        return
    if page.name not in {"aws.md", "lambda.md"}:
        yield
        return
    with fake_aws() as aws:
        aws.client("s3").create_bucket(
            Bucket="holdfast-blobs", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        aws.client("events").create_event_bus(Name="runs")
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": aws.url,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "DATABASE_URL": "sqlite:///aws.db",
            "QUEUE_URL": aws.new_queue()[1],
            "TOPIC_ARN": aws.new_topic()[1],
            "REJECTED_QUEUE_URL": aws.new_queue()[1],
        }.items():
            patched.setenv(name, value)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=_name)
def test_the_code_of_a_page_runs_in_order_and_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    look_often(monkeypatch)
    with _surroundings(page, monkeypatch):
        _run(page, monkeypatch)


def _run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a page adds to these is not there for the tests after it.
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    scope: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                # As if it were a module of a reader's: pages show where in it a function waits.
                exec(compile(block.code, f"{page.stem}.py", "exec"), scope)
            assert printed.getvalue() == (block.shown or ""), f"the block at line {block.line}"


def test_the_readme_shows_the_smallest_examples_word_for_word() -> None:
    shown = [block.code for block in blocks(ROOT / "README.md") if block.language == "python"]
    examples = [DOCS / "examples" / name for name in ("hello.py", "hello_pipeline.py")]
    assert shown == [example.read_text() for example in examples]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_what_is_there(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    todo = [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            todo.extend(
                (page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link
            )
    assert set(DOCS.rglob("*.md")) <= reached


# What is promised -----------------------------------------------------------------------------------------------


def test_the_promises_stand_word_for_word() -> None:
    page = (DOCS / "explanation" / "guarantees.md").read_text()
    for promise in PROMISES:
        assert f"- **{promise}.**" in page
    assert [
        " ".join(row).replace("**", "") for row in table(ROOT / "README.md", "What is guaranteed")
    ] == list(PROMISES)


def test_no_page_promises_to_run_code_exactly_once() -> None:
    for page in PAGES:
        assert not re.search(
            r"exactly[- ]once\s+execution|execut\w+\s+exactly[- ]once", page.read_text(), re.IGNORECASE
        )


# What is listed -------------------------------------------------------------------------------------------------


def test_the_page_of_errors_has_every_error_with_its_code() -> None:
    listed = {
        row[0].strip("`"): row[1].strip("`") for row in table(DOCS / "reference" / "errors.md", "Errors")
    }
    public = {
        kind.__name__: kind.code
        for kind in _errors(HoldfastError)
        if kind.__module__ == "holdfast.ports.errors"
    }
    assert listed == public
    assert len(set(listed.values())) == len(listed)
    for kind in _errors(HoldfastError):
        assert kind.code in listed.values(), kind


@pytest.mark.slow
def test_the_page_of_commands_has_every_command_in_forms_that_are_taken() -> None:
    page = DOCS / "reference" / "commands.md"
    shown = [
        cast("dict[str, object]", parse(block.code)) for block in blocks(page) if block.language == "json"
    ]
    types: set[str] = set()
    for data, reply in zip(shown[::2], shown[1::2], strict=True):
        command = command_from(data)
        types.add(command.type)
        assert data.items() <= command_data(command).items()
        answer = cast("object", from_data(reply, reply_type(type(command))))
        assert to_data(answer) == reply
    assert types == {kind.type for kind in _commands(Command)}
    headings = re.findall(r"^### `(.+)`$", page.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(types)


def test_the_page_of_public_names_has_each_of_them() -> None:
    page = DOCS / "reference" / "api.md"
    for module in (holdfast, client, errors, plugins, serverless, workflows):
        listed = [row[0].strip("`") for row in table(page, module.__name__)]
        assert len(listed) == len(set(listed))
        if module is errors:  # of these the page lists those that programs name most often
            assert set(listed) <= set(errors.__all__)
        else:
            assert set(listed) == set(module.__all__)
    options = {
        row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in table(page, "What may be given to what")
    }
    (
        of_functions,
        of_steps,
        of_stages,
        of_pipelines,
        of_starts,
        of_children,
        of_many_starts,
        of_lists,
        of_engines,
        of_workers,
    ) = options.values()
    assert of_functions == WorkflowOptions.__optional_keys__
    assert of_steps == StepOptions.__optional_keys__
    assert of_stages == BodyOptions.__optional_keys__
    assert of_pipelines == BodyDefaults.__optional_keys__ | {
        *("input", "version", "deadline", "concurrency", "rate", "fair", "attributes_from")
    }
    assert of_starts == StartOptions.__optional_keys__
    assert of_children == ChildStartOptions.__optional_keys__ | {"parent_end"}
    assert of_many_starts == StartAllOptions.__optional_keys__
    assert of_lists == ListOptions.__optional_keys__ >= FilterOptions.__optional_keys__
    assert of_engines == _keywords(holdfast.Engine.open)
    assert of_workers == _keywords(holdfast.Worker.__init__)


def test_the_page_of_the_command_line_has_every_command_option_and_exit_code() -> None:
    page = DOCS / "reference" / "cli.md"
    text = page.read_text()
    common, elsewhere = (
        set(re.findall(r"`(-[-\w]+)", part)) for part in text.split("## ")[0].split("| option where")[:2]
    )
    sections = dict(re.findall(r"^## (holdfast .+)\n((?:(?!^## ).*\n?)*)", text, re.MULTILINE))
    commands = dict(_cli_commands(command_line, "holdfast"))
    assert list(sections) == list(commands)
    for name, command in commands.items():
        said = set(re.findall(r"^\| .*", sections[name], re.MULTILINE))
        listed = {option for row in said for option in re.findall(r"`(-[-\w]+)", row.split(" | ")[0])}
        real = {
            option
            for parameter in command.params
            if isinstance(parameter, click.Option) and not parameter.hidden
            for option in parameter.opts
        }
        assert listed == real - common - elsewhere, name
        assert command.help
    codes = [(int(code), meaning) for code, meaning in table(page, "Exit codes")]
    assert codes == [(code.value, meaning) for code, meaning in MEANINGS]


def test_the_page_of_the_architecture_has_the_transitions_that_are_enforced() -> None:
    assert states.main(["--check"]) == 0


def test_a_page_with_other_states_is_noticed_and_written_again() -> None:
    page = states.PAGE.read_text()
    other = page.replace("    open --> dead", "    dead --> open")
    assert other != page
    assert states.page_with_diagrams(other) == page
    with pytest.raises(ValueError, match="one place for the states of jobs"):
        states.page_with_diagrams(page.replace("<!-- end of states of jobs -->", ""))


def test_the_reasons_of_transitions_name_commands_that_exist() -> None:
    page = states.PAGE.read_text()
    made = page[page.index("## The states of a run") : page.index("## What is stored")]
    named = set(re.findall(r"\b[a-z_]+\.[a-z_]+(?=[`,)])", made))

    assert {"job.claim", "run.pause", "session.reap", "outbox.settle"} <= named
    named = {name for name in named if not name.endswith(".md") and name != "tools.states"}
    assert named <= {kind.type for kind in _commands(Command)}


def test_diagrams_have_no_semicolons_which_would_end_their_statements() -> None:
    diagrams = [block for page in PAGES for block in blocks(page) if block.language == "mermaid"]
    assert diagrams
    assert not [block.line for block in diagrams if ";" in block.code]


def test_the_pages_name_no_place_of_their_making() -> None:
    for page in PAGES:
        assert not re.search(r"/(?:tmp|work|home|root)/", page.read_text()), page
        for link in links(page):
            assert not link.startswith("http://"), link


def test_prose_has_short_lines() -> None:
    """Tables may have long lines, and promises, which stand word for word in several places."""
    exempt = ("|", *(f"- **{promise[:20]}" for promise in PROMISES))
    long = [
        f"{_name(page)}: {line[:60]}"
        for page in PAGES
        if page.name != "performance.md"  # parts of it are made from results
        for line in prose(page).splitlines()
        if len(line) > 120 and not line.startswith(exempt)
    ]
    assert long == []


def test_decisions_are_numbered_listed_by_topic_and_say_why() -> None:
    index = DOCS / "decisions" / "index.md"
    listed = re.findall(r"^- \[([^\]\n]+)\]\(([^)\s]+)\):$", prose(index), re.MULTILINE)
    decisions = sorted(set((DOCS / "decisions").glob("*.md")) - {index})
    assert sorted(name for _, name in listed) == [page.name for page in decisions]
    numbers = [int(page.name[:4]) for page in decisions]
    assert numbers == sorted(set(numbers))
    titles = {name: title for title, name in listed}
    for page in decisions:
        title = page.read_text().partition("\n")[0]
        assert title == f"# {titles[page.name]}"
        assert title.startswith(f"# {int(page.name[:4])}. ")
        assert "**Decided.**" in prose(page)
        assert "**Why.**" in prose(page)


def _errors(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _errors(below)


def _commands(kind: "type[Command[object]]") -> "Iterator[type[Command[object]]]":
    for below in kind.__subclasses__():
        if below.__module__.startswith("holdfast.kernel.commands.") and "type" in vars(below):
            yield below
        yield from _commands(below)


def _keywords(function: object) -> set[str]:
    names: dict[str, object] = getattr(getattr(function, "__func__", function), "__annotations__", {})
    return set(names) - {"return", "url", "engine"}


def _cli_commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    order = (
        "worker",
        "worker list",
        "serve",
        "run",
        "start",
        "list",
        "show",
        "children",
        "wait",
        "logs",
        "annotate",
        "artifacts",
        "ai",
        "pause",
        "resume",
        "cancel",
        "terminate",
        "rerun",
        "add",
        "remove",
        "wake",
        "signal",
        "messages",
        "query",
        "update",
        "limit",
        "set",
        "clear",
        "key",
        "rotate",
        "revoke",
        "audit",
        "queue",
        "workflow",
        "topic",
        "publish",
        "namespace",
        "schedule",
        "next",
        "create",
        "delete",
        "trigger",
        "backfill",
        "apply",
        "why",
        "history",
        "export",
        "sink",
        "dead-letter",
        "replay",
        "check-upgrade",
        "debug",
        "doctor",
        "lint",
        "openapi",
        "completion",
        "db",
        "upgrade",
        "status",
    )
    for below, command in sorted(group.commands.items(), key=lambda item: order.index(item[0])):
        if isinstance(command, click.Group):
            yield from _cli_commands(command, f"{name} {below}")
        else:
            yield f"{name} {below}", command
