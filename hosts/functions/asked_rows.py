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
from holdfast.kernel.functions.asked import ChildAsked, CloseAsked, TellAsked
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


def _child_row(body: Body, asked: ChildAsked | TellAsked | CloseAsked) -> Recorded:
    if isinstance(asked, CloseAsked):
        return Recorded(type="channel.closed", call=asked.call, site=asked.site, channel=asked.channel)
    run = body.work.run
    # Not in a place of this run's: it is the child's, and goes with that.
    place = attrs.evolve(body.place, run=f"{run.key}-{asked.call.replace('.', '-')}")
    if isinstance(asked, TellAsked):
        tells = ChildMessage(run_id=asked.run, reason=asked.text)
        if asked.channel is not None:
            payload = body.payloads.put(asked.text, place)
            sent = ChannelMessage(channel=asked.channel, payload=payload, checked=asked.checked)
            tells = ChildMessage(run_id=asked.run, signal=sent)
        kind: RecordedType = "child.cancelling" if tells.signal is None else "child.signalled"
        return Recorded(type=kind, call=asked.call, site=asked.site, child_message=tells)
    child = ChildRunStarted(
        run_id=asked.run or child_id(run, asked.call),
        workflow=asked.workflow,
        version=asked.version,
        input=body.payloads.put(asked.input, place),
        close_policy=ClosePolicy(asked.parent_end),
    )
    return Recorded(type="child.started", call=asked.call, site=asked.site, child=child)


def _text_of(asked: ChildAsked | TellAsked | CloseAsked) -> str:
    match asked:
        case ChildAsked(input=text) | TellAsked(text=text):
            return text
        case CloseAsked():
            return ""
