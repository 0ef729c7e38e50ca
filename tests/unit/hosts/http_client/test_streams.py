"""Server-sent events, read line by line."""

from holdfast.hosts.http_client.streams import Frame, FrameReader


def frames(text: str) -> list[Frame]:
    reader = FrameReader()
    return [frame for line in text.split("\n") if (frame := reader.take(line)) is not None]


def test_events_are_read_with_their_ids() -> None:
    text = 'retry: 1000\n\nid: 1/2\nevent: run.created\ndata: {"number":2}\n\nevent: end\ndata: {}\n\n'

    assert frames(text) == [Frame("1/2", "run.created", {"number": 2}), Frame(None, "end", {})]


def test_comments_are_no_events() -> None:
    assert frames(": ping\n\n: ping\n\n") == []


def test_an_event_that_was_cut_off_is_dropped() -> None:
    assert frames('id: 1/2\nevent: run.created\ndata: {"number":2}') == []
