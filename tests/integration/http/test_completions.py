"""Completions over HTTP: another system gives the value that a function waits for, with its token."""

import time
from collections.abc import Iterator

import attrs
import httpx
import pytest

from holdfast import Engine, step, workflow
from holdfast.errors import (
    AlreadyCompletedError,
    CompletionFailedError,
    CompletionNotFoundError,
    InvalidArgumentError,
    SignalRefusedError,
)
from holdfast.http import asgi_app
from holdfast.remote import SyncClient
from holdfast.workflows import new_completion
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served
from tests.integration.http.lossy import LossyTransport

SOON = 120
TOKENS: list[str] = []


@attrs.frozen
class Decision:
    approved: bool
    by: str = "nobody"


@step
def ask(token: str) -> None:
    TOKENS.append(token)


@workflow
async def decide() -> list[str]:
    """Wait for two decisions."""
    found: list[str] = []
    for _ in range(2):
        completion = await new_completion(Decision)
        await ask(completion.token)
        try:
            decision = await completion.result()
        except CompletionFailedError as error:
            found.append(f"failed: {error}")
        else:
            found.append(f"{decision.approved} by {decision.by}")
    return found


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[decide], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def server(engine: Engine) -> Iterator[str]:
    TOKENS.clear()
    with served(asgi_app(engine, authenticate=authenticate)) as url:
        yield url


def sent(number: int) -> str:
    """Wait until this many tokens were sent, and return the last one."""
    until = time.monotonic() + SOON
    while len(TOKENS) < number:
        assert time.monotonic() < until
        time.sleep(0.01)
    return TOKENS[number - 1]


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_client_completes_and_fails_with_the_token(server: str) -> None:
    with SyncClient(server, key="all", namespace=NAMESPACE) as client:
        run = client.start("decide", id="r")
        first = sent(1)
        assert client.complete(first, Decision(approved=True, by="ann")) == client.complete(
            first, {"approved": True, "by": "ann"}
        )
        second = sent(2)
        with pytest.raises(AlreadyCompletedError):
            client.complete(first, {"approved": False})
        assert client.fail_completion(second, "no time").status == "running"
        assert run.result(timeout=SOON) == ["True by ann", "failed: no time"]
        with pytest.raises(SignalRefusedError):
            client.complete(second, Decision(approved=True))
        with pytest.raises(CompletionNotFoundError):
            client.complete(f"{first}x", Decision(approved=True))
        with pytest.raises(InvalidArgumentError, match="not the token of a completion"):
            client.complete("r", Decision(approved=True))


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_an_outcome_whose_answer_is_lost_is_sent_again(engine: Engine, server: str) -> None:
    transport = LossyTransport(lost=2)
    with httpx.Client(transport=transport) as http:
        client = SyncClient(server, key="all", namespace=NAMESPACE, http=http)
        run = engine.sync.start(decide(), id="r")
        token = sent(1)
        client.complete(token, Decision(approved=True))
        client.complete(sent(2), Decision(approved=False))
        assert run.result(timeout=SOON) == ["True by nobody", "False by nobody"]
    assert len(run.messages()) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("{token}x", {"value": {"approved": True}}, 404, "completion_not_found"),
        ("r", {"value": {"approved": True}}, 400, "invalid_argument"),
        ("{token}/failure", {}, 400, "invalid_request"),
        ("{token}", {"values": 1}, 400, "invalid_request"),
    ],
    ids=["unknown", "no token", "no message", "another field"],
)
def test_a_wrong_request_is_answered_with_its_error(
    server: str, engine: Engine, path: str, body: object, status: int, code: str
) -> None:
    run = engine.sync.start(decide(), id="r")
    url = f"{server}/v1/namespaces/{NAMESPACE}/completions/{path.format(token=sent(1))}"
    answer = httpx.post(url, json=body, headers={"Authorization": "Bearer all"})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert run.messages() == []
    run.terminate()
