"""Operations of remote workers: programs in any language that run steps and stages, without access to the store."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import attrs

from holdfast.hosts.http import remote_tasks, task_outcomes
from holdfast.hosts.http.json_input import is_fit
from holdfast.hosts.http.operations import (
    NAMESPACE,
    WAIT_SECONDS_MAX,
    Hint,
    Invocation,
    Nothing,
    Operation,
    Table,
    Wait,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.remote_tasks import ClaimedTask
from holdfast.hosts.http.task_outcomes import planned_stage, policy_of
from holdfast.hosts.http.task_values import ADDRESS_LIFETIME, input_url
from holdfast.hosts.remote.protocol import BEATS, CLAIMED_MAX, HELD_MAX, LEASE_MAX, LEASE_MIN
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import ServedQueue, SessionOpen, WorkerAbout
from holdfast.kernel.pipelines.headers import headers_of
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import IdempotencyConflictError, SessionLostError
from holdfast.ports.json import parse
from holdfast.ports.records.job import limit_of_attempts, remote_stage_definition, step_definition
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.records.values import Micros

_WORKERS: Final = f"{NAMESPACE}/workers"
_WORKER: Final = f"{_WORKERS}/{{worker}}"
_MICROSECOND: Final = timedelta(microseconds=1)
_NAME_MAX: Final = 255
_NAMES_MAX: Final = 200


def _check_names(_: object, field: "attrs.Attribute[tuple[str, ...]]", names: tuple[str, ...]) -> None:
    if len(names) > _NAMES_MAX:
        raise ValueError(f"{field.name} has at most {_NAMES_MAX} names")
    for name in names:
        if not 1 <= len(name) <= _NAME_MAX or not is_fit(name) or "@" in name:
            raise ValueError(
                f"{field.name} has {name!r:.80}: a name has 1 to {_NAME_MAX} characters, none of them @ or a"
                " control character"
            )


def _check_text(_: object, field: "attrs.Attribute[str]", text: str) -> None:
    if len(text) > _NAME_MAX or not is_fit(text):
        raise ValueError(f"{field.name} has at most {_NAME_MAX} characters, none of them a control character")


def _check_work(worker: "NewWorker", _: object, stages: tuple[str, ...]) -> None:
    if not worker.steps and not stages:
        raise ValueError("steps or stages has a name: a worker runs at least one")


@attrs.frozen(kw_only=True)
class NewWorker:
    """A worker that registers."""

    name: str = attrs.field(default="", validator=_check_text)
    """Its name, for people."""
    steps: tuple[str, ...] = attrs.field(default=(), validator=_check_names)
    """The names of the queued steps that it can run."""
    stages: tuple[str, ...] = attrs.field(default=(), validator=[_check_names, _check_work])
    """The names of the remote stages that it can run; at least one step or stage."""
    queues: tuple[str, ...] = attrs.field(validator=[attrs.validators.min_len(1), _check_names])
    """The queues that it serves."""
    concurrency: int = attrs.field(
        default=1, validator=[attrs.validators.ge(1), attrs.validators.le(HELD_MAX)]
    )
    """How many tasks it runs at once, at most 1,000. For people: each claim has its own limit."""
    language: str = attrs.field(default="", validator=_check_text)
    """What it is written in, for people."""
    lease: timedelta = attrs.field(
        default=timedelta(seconds=30),
        validator=[attrs.validators.ge(LEASE_MIN), attrs.validators.le(LEASE_MAX)],
    )
    """After how long without a request others get its tasks: 5 seconds to an hour."""


@attrs.frozen(kw_only=True)
class RegisteredWorker:
    """A worker that has registered."""

    worker: str
    """The id by which it claims tasks. It ends when the worker leaves, or sends nothing for longer than its lease."""
    lease: timedelta
    """After how long without a request others get its tasks."""
    heartbeat_every: timedelta
    """How often it sends a heartbeat while it runs tasks."""
    wait_max: timedelta
    """The longest wait of a claim."""


@attrs.frozen(kw_only=True)
class ClaimRequest:
    """A claim of tasks."""

    limit: int = attrs.field(default=1, validator=[attrs.validators.ge(1), attrs.validators.le(CLAIMED_MAX)])
    """The most tasks, at most 100."""
    addresses: bool = False
    """Whether inputs of more than 64 KiB have addresses, from which the worker gets them."""


@attrs.frozen(kw_only=True)
class RetryClasses:
    """The error classes that the retry policy of a task knows, by name."""

    rules: tuple[str, ...]
    """Those with a policy of their own."""
    give_up_on: tuple[str, ...]
    """Those that are not retried."""


@attrs.frozen(kw_only=True)
class InputAddress:
    """Where a worker gets a large input."""

    url: str
    """An absolute URL, which takes no credentials; or one below that of the namespace, which takes the worker's."""
    lifetime: timedelta
    """For how long it can be used."""


@attrs.frozen(kw_only=True)
class RemoteTask:
    """One attempt of a queued step or of a remote stage, which the worker now holds."""

    token: str
    """The text by which the worker settles the task. Its form may change."""
    step: str | None
    """The name of the step; null for a stage."""
    stage: str | None
    """The name of the stage; null for a step."""
    item: int | None
    """The index of the map item, from 0; null outside a map."""
    call: str
    """The call in the durable function; of a stage, its name."""
    run_id: str
    """The id of the run."""
    generation: int
    """The generation of the run."""
    workflow: str
    """The name of the durable function or the pipeline."""
    attributes: Mapping[str, str]
    """The attributes of the run."""
    headers: Mapping[str, str]
    """The headers of the run: context that it was started with, such as a trace id."""
    epoch: int
    """The number of the claim. It rises with each claim of the step or stage, including those that were given back."""
    attempt: int
    """Which attempt this is, from 1, those included that were lost with their worker."""
    max_attempts: int | None
    """The most attempts, without those that were lost; null for no limit."""
    lost_attempts: int
    """How many earlier attempts were lost with their worker. They do not count against the maximum."""
    input: object
    """The arguments of a step by name; of a stage, its input. Null if it has an address."""
    input_address: InputAddress | None
    """Where to get the input, if it is large and the claim has `addresses`."""
    config: object
    """The config of a stage; null without one."""
    timeout: timedelta | None
    """How long the attempt may take. The server ends attempts of stages that take longer."""
    retry: RetryClasses | None
    """The error classes that the policy knows; null if the server lacks the code of the step."""
    idempotency_key: str
    """The same text for all attempts of the call: pass it to services that accept such keys."""


@attrs.frozen(kw_only=True)
class ClaimedTasks:
    """The tasks that a claim has leased to a worker."""

    tasks: tuple[RemoteTask, ...]
    """The tasks; none if there is nothing to do."""


@attrs.frozen(kw_only=True)
class HeldToken:
    """A task that a worker runs."""

    token: str
    """Its token."""


@attrs.frozen(kw_only=True)
class Heartbeat:
    """What a worker runs."""

    holds: tuple[HeldToken, ...] = attrs.field(default=(), validator=attrs.validators.max_len(HELD_MAX))
    """The tasks that it has claimed and not settled. Others that it claimed more than a lease ago are given back."""


@attrs.frozen(kw_only=True)
class HeartbeatReply:
    """What a worker has to know about its tasks."""

    stop: tuple[str, ...]
    """The tokens of tasks that it does not hold any more: their outcomes are not stored."""
    expires_at: datetime
    """When its session expires, unless it sends something before."""


@attrs.frozen(kw_only=True)
class WorkerLeft:
    """The end of a worker."""

    released: int
    """How many tasks it held. They are given back, and these attempts do not count."""


def register_worker(call: Invocation[Nothing, NewWorker]) -> RegisteredWorker:
    """Register a worker, which can then claim tasks of its steps and stages in its queues.

    A worker whose id is answered with `session_lost` registers again.
    """
    body = call.body
    steps, stages = dict.fromkeys(body.steps), dict.fromkeys(body.stages)
    about = WorkerAbout(
        name=body.name,
        language=body.language,
        queues=tuple(ServedQueue(name=name) for name in dict.fromkeys(body.queues)),
        definitions=(*map(step_definition, steps), *map(remote_stage_definition, stages)),
        concurrency=body.concurrency,
    )
    opened = call.engine.core.kernel.dispatch(
        SessionOpen(
            namespace=call.namespace,
            host=body.name or "remote worker",
            lease=_micros(body.lease),
            about=about,
            principal=remote_tasks.principal_text(call.principal),
        )
    )
    return RegisteredWorker(
        worker=opened.session,
        lease=body.lease,
        heartbeat_every=body.lease / BEATS,
        wait_max=timedelta(seconds=WAIT_SECONDS_MAX),
    )


def claim_tasks(call: Invocation[Nothing, ClaimRequest]) -> ClaimedTasks:
    """Claim tasks, and renew the lease.

    With `Prefer: wait=N` the answer waits for a task, which renews the lease as well. Use a new `Idempotency-Key` for
    each claim: a request that got no answer is repeated with the same key, and gets the tasks that the first one
    claimed.
    """
    core = call.engine.core
    claimed = remote_tasks.claim(
        core,
        call.principal,
        call.path["worker"],
        call.body.limit,
        call.idempotency_key,
        addresses=call.body.addresses,
    )
    now = micros(core.clock.now())
    return ClaimedTasks(tasks=tuple(_task(core, one, now) for one in claimed))


def _task(core: Core, claimed: ClaimedTask, now: Micros) -> RemoteTask:
    work, token = claimed.work, claimed.token
    attempt = work.attempt
    policy, time_left = policy_of(core, token, work.plan), task_outcomes.time_left(work, now)
    config = None if token.stage is None else planned_stage(work.plan, token.stage).config
    address = None
    if work.is_left_out:
        address = InputAddress(url=input_url(core, token, work.blob), lifetime=ADDRESS_LIFETIME)
    return RemoteTask(
        token=token.text,
        step=token.step,
        stage=token.stage,
        item=attempt.item,
        call=attempt.node,
        run_id=work.run.id,
        generation=work.run.generation,
        workflow=work.run.workflow,
        attributes=attribute_texts(work.run.attributes),
        headers=headers_of(work.run.headers),
        epoch=attempt.epoch,
        attempt=attempt.attempt,
        max_attempts=limit_of_attempts(attempt.max_attempts),
        lost_attempts=attempt.lost_attempts,
        input=None if work.is_left_out else parse(work.input),
        input_address=address,
        config=None if config is None else parse(config),
        timeout=None if time_left is None else timedelta(microseconds=time_left),
        retry=None
        if policy is None
        else RetryClasses(rules=tuple(one.error for one in policy.rules), give_up_on=policy.give_up_on),
        idempotency_key=task_outcomes.idempotency_key(work),
    )


def send_heartbeat(call: Invocation[Nothing, Heartbeat]) -> HeartbeatReply:
    """Renew the lease of a worker, and learn which of its tasks to stop."""
    core = call.engine.core
    worker = remote_tasks.worker_of(core, call.principal, call.path["worker"])
    expires_at = remote_tasks.renew(core, worker)
    texts = tuple(one.token for one in call.body.holds)
    held = {token.text for token in remote_tasks.keep_listed(core, worker, texts)}
    return HeartbeatReply(
        stop=tuple(text for text in texts if text not in held), expires_at=instant(expires_at)
    )


def remove_worker(call: Invocation[Nothing, Nothing]) -> WorkerLeft:
    """End a worker: its tasks are given back at once, and it can't claim any more."""
    return WorkerLeft(released=remote_tasks.leave(call.engine.core, call.principal, call.path["worker"]))


def _micros(length: timedelta) -> Micros:
    return length // _MICROSECOND


OPERATIONS: Final[Table] = (
    Operation(
        name="worker.register",
        method="POST",
        path=_WORKERS,
        scope=Scope.WORK,
        body=NewWorker,
        reply=RegisteredWorker,
        handler=register_worker,
        hint=Hint.CHANGES,
    ),
    Operation(
        name="worker.claim",
        method="POST",
        path=f"{_WORKER}/claim",
        scope=Scope.WORK,
        body=ClaimRequest,
        reply=ClaimedTasks,
        handler=claim_tasks,
        hint=Hint.CHANGES,
        wait=Wait.TASKS,
        idempotent=True,
        errors=(SessionLostError, IdempotencyConflictError),
    ),
    Operation(
        name="worker.heartbeat",
        method="POST",
        path=f"{_WORKER}/heartbeat",
        scope=Scope.WORK,
        body=Heartbeat,
        reply=HeartbeatReply,
        handler=send_heartbeat,
        hint=Hint.CHANGES,
        errors=(SessionLostError,),
    ),
    Operation(
        name="worker.remove",
        method="DELETE",
        path=_WORKER,
        scope=Scope.WORK,
        reply=WorkerLeft,
        handler=remove_worker,
        hint=Hint.CHANGES,
        errors=(SessionLostError,),
    ),
)
