"""The AWS stack deploys what the handlers need, and no more; and it works."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from holdfast import Engine
from holdfast.adapters.sql.persistence import SqlPersistence
from tests.aws import REGION, FakeAws, fake_aws
from tests.event_source_mapping import EventSource
from tests.integration.examples.pages import DOCS
from tests.lambdas import FakeContext, failures

STACK: Final = DOCS / "examples" / "aws"
TEMPLATE: Final = STACK / "template.yaml"


def read_template() -> Any:
    """The template, with `!Ref x` and the like as `{"Ref": "x"}`."""
    yaml: Any = importlib.import_module("yaml")

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """A YAML loader for the short forms of CloudFormation's functions."""

    def short(loader: Any, tag: str, node: Any) -> dict[str, Any]:
        value: Any
        if isinstance(node, yaml.ScalarNode):
            value = loader.construct_scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        else:
            value = loader.construct_mapping(node, deep=True)
        return {tag: value}

    Loader.add_multi_constructor("!", short)
    return yaml.load(TEMPLATE.read_text(), Loader)  # a SafeLoader


def functions(template: Any) -> dict[str, Any]:
    return {
        name: one["Properties"]
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::Serverless::Function"
    }


def statements(template: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the statements of all policies."""
    for name, one in template["Resources"].items():
        properties = one.get("Properties", {})
        documents = [
            properties.get("PolicyDocument"),
            *(p["PolicyDocument"] for p in properties.get("Policies", [])),
        ]
        for document in documents:
            for statement in document["Statement"] if document else ():
                yield name, statement


def allowed(template: Any, policy: str) -> set[str]:
    found: set[str] = set()
    for name, statement in statements(template):
        actions = statement["Action"]
        found |= set([actions] if isinstance(actions, str) else actions) if name == policy else set()
    return found


@pytest.mark.slow
def test_cfn_lint_has_nothing_to_say() -> None:
    linter = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run([str(linter), str(TEMPLATE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_nobody_is_allowed_more_than_is_needed() -> None:
    template = read_template()
    for name, statement in statements(template):
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            assert "*" not in action, name
        assert statement["Resource"] != "*", name
    taking = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}
    taking |= {"sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
    assert (
        allowed(template, "JobsRole") == allowed(template, "DeadLettersRole") == {*taking, "sqs:SendMessage"}
    )
    assert allowed(template, "TimerRole") == set()
    assert allowed(template, "SendPolicy") == {"sqs:SendMessage"}
    assert all("Policies" not in one and "Role" in one for one in functions(template).values())


def test_queues_and_functions_fit_together() -> None:
    template = read_template()
    parameters, found = template["Parameters"], functions(template)
    assert parameters["VisibilitySeconds"]["Default"] == 6 * parameters["JobSeconds"]["Default"]
    for name, event in (("JobsFunction", "Jobs"), ("DeadLettersFunction", "DeadLetters")):
        assert found[name]["Events"][event]["Properties"]["FunctionResponseTypes"] == [
            "ReportBatchItemFailures"
        ]
        assert found[name]["Events"][event]["Properties"]["BatchSize"] <= 10
    code = (STACK / "app.py").read_text()
    for one in found.values():
        module, _, name = one["Handler"].partition(".")
        assert module == "app"
        assert f"\n{name} = " in code
    assert f"cron_handler(engine, limit={found['TimerFunction']['Timeout']}," in code
    given = set(template["Globals"]["Function"]["Environment"]["Variables"])
    asked = set(re.findall(r"""environ(?:\.get\()?\[?["']([A-Z_]+)""", code))
    assert asked - {"DATABASE_URL"} == given


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as region:
        yield region


@pytest.fixture
def app(aws: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The deployed application, with the environment from the template."""
    url = f"sqlite:///{tmp_path}/app.db"
    store = SqlPersistence(url)
    store.setup()
    store.close()
    aws.client("s3").create_bucket(Bucket="blobs", CreateBucketConfiguration={"LocationConstraint": REGION})
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "BLOBS_BUCKET": "blobs",
        "DATABASE_URL": url,
        "JOBS_QUEUE_URL": aws.new_queue()[1],
        "JOB_SECONDS": "60",
        "REJECTED_QUEUE_URL": aws.new_queue()[1],
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [str(STACK), *sys.path])
    module = importlib.import_module("app")
    engine: Engine = module.engine
    with engine.sync:
        yield module
    monkeypatch.delitem(sys.modules, "app")


@pytest.mark.slow
def test_what_is_deployed_carries_out_its_workflows(app: Any, aws: FakeAws) -> None:
    source = EventSource(
        aws.client("sqs"), os.environ["JOBS_QUEUE_URL"], lambda event: app.on_jobs(event, FakeContext())
    )
    run = app.engine.sync.start(app.word_count("https://example.org"))
    reminding = app.engine.sync.start(app.reminders("Ada", 2))
    while source.poll():
        pass

    assert run.result() == 3
    assert app.on_timer({}, FakeContext())["repaired"] == ()
    assert reminding.info().ended_at is None
    assert failures(app.on_dead_letters({"Records": []}, FakeContext())) == []
