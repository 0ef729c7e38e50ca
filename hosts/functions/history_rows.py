"""What a driver records for requests of a function: child runs, queued steps, and results of updates."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs

from holdfast.hosts.execution.bodies import Body, child_id
from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.functions.store_retries import until_available_in_thread
from holdfast.hosts.wiring.start_calls import options_of_child
from holdfast.kernel.commands import (
    CancelSend,
    ChannelClose,
    ChannelMessage,
    ChildRunStarted,
    ChildStart,
    EventAppend,
    FunctionRecord,
    NewTopicMessage,
    SignalSend,
    StepQueue,
    TopicSend,
    TopicSubscribe,
    TopicUnsubscribe,
    UpdateSend,
)
from holdfast.kernel.functions.protocol import (
    ChildRequest,
    CloseRequest,
    NotifyRequest,
    PublishRequest,
    RecordedRequest,
    SubscribeRequest,
    UpdateOutcome,
    UpdateRequest,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.raised import Raised
from holdfast.kernel.pipelines.headers import joined_headers
from holdfast.kernel.pipelines.input_attributes import joined_attributes
from holdfast.kernel.topics.selections import selection_text
from holdfast.ports.records.run import ClosePolicy, GivenOptions, attribute_texts
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import evolve

Put = Callable[[str], Payload]
"""Stores the JSON text of a value: in the row, or as a blob if it is large."""


def recorded_answers(answers: Sequence[UpdateOutcome], put: Put) -> list[EventAppend]:
    """Return the records of the results of updates."""
    return [_recorded(one, put) for one in answers]


def _recorded(answer: UpdateOutcome, put: Put) -> EventAppend:
    if answer.rejected is not None:
        return EventAppend(event=events.UpdateRejected(call=answer.call, error=_error(answer.rejected)))
    if answer.error is not None:
        return EventAppend(event=events.UpdateFailed(call=answer.call, error=_error(answer.error)))
    return EventAppend(
        event=events.UpdateCompleted(call=answer.call),
        payload=None if answer.output is None else put(answer.output),
    )


def _error(raised: Raised) -> events.RecordedError:
    return events.RecordedError(
        type=raised.type, message=raised.message[:MESSAGE_MAX], code=raised.code, arguments=raised.arguments
    )


async def child_rows(body: Body, drive: FunctionReplay) -> list[FunctionRecord]:
    """Return the rows that start child runs, notify runs, and close channels. StartRefusedError."""
    children = drive.children()
    # Before a thread is taken, so that interceptors are called on the event loop, and once.
    options = {one.call: _options_of(body, drive, one) for one in children if isinstance(one, ChildRequest)}
    if all(body.payloads.stay_inline(_text_of(one)) for one in children):
        return [_child_row(body, one, options) for one in children]
    put = partial(lambda: [_child_row(body, one, options) for one in children])
    return await until_available_in_thread(put, "the input of a run can't be stored yet")


async def queued_rows(body: Body, drive: FunctionReplay) -> list[StepQueue]:
    """Return the rows that queue steps."""
    queues, payloads, place = drive.queues, body.payloads, body.place
    new = queues.new()
    policies = body.step_policies
    put = partial(lambda: [queues.queued(one, payloads.put(one.arguments, place), policies) for one in new])
    if all(payloads.stay_inline(one.arguments) for one in new):
        return put()
    return await until_available_in_thread(put, "the arguments of a step can't be stored yet")


async def answer_rows(body: Body, drive: FunctionReplay) -> list[EventAppend]:
    """Return the rows that record the results of updates."""
    answers = drive.answers()
    put = partial(recorded_answers, answers, lambda text: body.payloads.put(text, body.place))
    if all(body.payloads.stay_inline(one.output or "") for one in answers):
        return put()
    return await until_available_in_thread(put, "the reply to an update can't be stored yet")


def _options_of(body: Body, drive: FunctionReplay, request: ChildRequest) -> GivenOptions:
    """Return the options of a child run, with what it takes from its input, its parent and interceptors."""
    run, options, taken = body.work.run, request.options, request.attributes_taken
    if taken is not None:
        given = None if options.attributes is None else attribute_texts(options.attributes)
        options = evolve(options, attributes=joined_attributes(run.attributes, taken, given))
    if options.headers is not None:
        options = evolve(options, headers=joined_headers(run.headers, options.headers))
    if not body.around_starts:
        return options
    return drive.beside(
        lambda: options_of_child(
            body.around_starts,
            run,
            options,
            run_id=request.run or child_id(run, request.call),
            workflow=request.workflow,
            version=request.version,
        )
    )


def _child_row(body: Body, request: RecordedRequest, options: Mapping[str, GivenOptions]) -> FunctionRecord:
    match request:
        case CloseRequest():
            return ChannelClose(call=request.call, site=request.site, channel=request.channel)
        case PublishRequest() | SubscribeRequest():
            return _topic_row(request)
        case _:
            pass
    run = body.work.run
    # Stored under a key of its own: the blob belongs to the child, and is removed with it.
    place = attrs.evolve(body.place, run=f"{run.key}-{request.call.replace('.', '-')}")
    if isinstance(request, NotifyRequest):
        if request.channel is None:
            return CancelSend(call=request.call, site=request.site, run_id=request.run, reason=request.text)
        payload = body.payloads.put(request.text, place)
        sent = ChannelMessage(channel=request.channel, payload=payload, checked=request.checked)
        return SignalSend(call=request.call, site=request.site, run_id=request.run, signal=sent)
    if isinstance(request, UpdateRequest):
        return UpdateSend(
            call=request.call,
            site=request.site,
            run_id=request.run,
            update=request.update,
            arguments=body.payloads.put(request.text, place),
            checked=request.checked,
        )
    child = ChildRunStarted(
        run_id=request.run or child_id(run, request.call),
        workflow=request.workflow,
        version=request.version,
        input=body.payloads.put(request.input, place),
        close_policy=ClosePolicy(request.parent_end),
        options=options[request.call],
    )
    return ChildStart(call=request.call, site=request.site, child=child)


def _topic_row(request: PublishRequest | SubscribeRequest) -> FunctionRecord:
    if isinstance(request, PublishRequest):
        message = NewTopicMessage(
            topic=request.topic,
            payload=request.text,
            attributes=selection_text(request.attributes),
            checked=True,
            keep=request.keep,
            keep_last=request.keep_last,
        )
        return TopicSend(call=request.call, site=request.site, message=message, id=request.id)
    if request.selection is None:
        return TopicUnsubscribe(
            call=request.call, site=request.site, topic=request.topic, channel=request.channel
        )
    return TopicSubscribe(
        call=request.call,
        site=request.site,
        topic=request.topic,
        channel=request.channel,
        selection=selection_text(request.selection),
        group=request.group,
        since=request.since,
    )


def _text_of(request: RecordedRequest) -> str:
    match request:
        case ChildRequest(input=text) | NotifyRequest(text=text) | UpdateRequest(text=text):
            return text
        case CloseRequest() | PublishRequest() | SubscribeRequest():
            return ""  # none of them is stored as a blob
