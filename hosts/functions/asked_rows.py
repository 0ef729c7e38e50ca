"""The rows of what a function asks for besides steps that are done here: runs, steps in queues, answers to updates.

What is large is kept as a blob, for which the store of blobs is asked in a thread, again and again while it is away.
"""

from functools import partial

import attrs

from holdfast.hosts.bodies import Body, child_id
from holdfast.hosts.functions.answering import are_small, recorded_answers
from holdfast.hosts.functions.drive import Drive
from holdfast.hosts.functions.patience import until_available_in_thread
from holdfast.hosts.payloads import INLINE_MAX
from holdfast.kernel.commands import ChannelMessage, ChildMessage, ChildRunStarted, Recorded, RecordedType
from holdfast.kernel.functions.asked import ChildRequest, CloseRequest, NotifyRequest
from holdfast.ports.records import ClosePolicy


async def child_rows(body: Body, drive: Drive) -> list[Recorded]:
    """Return what starts the runs that are asked for, tells others what they are to be told, and closes channels."""
    children = drive.children()
    if all(len(_text_of(one)) <= INLINE_MAX for one in children):
        return [_child_row(body, one) for one in children]
    put = partial(lambda: [_child_row(body, one) for one in children])
    return await until_available_in_thread(put, "what a run is started with can't be stored yet")


async def queued_rows(body: Body, drive: Drive) -> list[Recorded]:
    """Return what puts steps into their queues."""
    queues, payloads, place = drive.queues, body.payloads, body.place
    new = queues.new()
    put = partial(lambda: [queues.queued(one, payloads.put(one.arguments, place)) for one in new])
    if all(len(one.arguments) <= INLINE_MAX for one in new):
        return put()
    return await until_available_in_thread(put, "what a step is called with can't be stored yet")


async def answer_rows(body: Body, drive: Drive) -> list[Recorded]:
    """Return what says what updates have come to."""
    answers = drive.answers()
    put = partial(recorded_answers, answers, lambda text: body.payloads.put(text, body.place))
    if are_small(answers):
        return put()
    return await until_available_in_thread(put, "the reply to an update can't be stored yet")


def _child_row(body: Body, request: ChildRequest | NotifyRequest | CloseRequest) -> Recorded:
    if isinstance(request, CloseRequest):
        return Recorded(type="channel.closed", call=request.call, site=request.site, channel=request.channel)
    run = body.work.run
    # Not in a place of this run's: it is the child's, and goes with that.
    place = attrs.evolve(body.place, run=f"{run.key}-{request.call.replace('.', '-')}")
    if isinstance(request, NotifyRequest):
        child_message = ChildMessage(run_id=request.run, reason=request.text)
        if request.channel is not None:
            payload = body.payloads.put(request.text, place)
            sent = ChannelMessage(channel=request.channel, payload=payload, checked=request.checked)
            child_message = ChildMessage(run_id=request.run, signal=sent)
        kind: RecordedType = "child.cancelling" if child_message.signal is None else "child.signalled"
        return Recorded(type=kind, call=request.call, site=request.site, child_message=child_message)
    child = ChildRunStarted(
        run_id=request.run or child_id(run, request.call),
        workflow=request.workflow,
        version=request.version,
        input=body.payloads.put(request.input, place),
        close_policy=ClosePolicy(request.parent_end),
    )
    return Recorded(type="child.started", call=request.call, site=request.site, child=child)


def _text_of(request: ChildRequest | NotifyRequest | CloseRequest) -> str:
    match request:
        case ChildRequest(input=text) | NotifyRequest(text=text):
            return text
        case CloseRequest():
            return ""
