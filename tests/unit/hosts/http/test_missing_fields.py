"""Bodies that lack a field: the message names it and, where that is not obvious, where it is from."""

import pytest

from holdfast.hosts.http.bulk_operations import BulkRerun, BulkStep
from holdfast.hosts.http.json_input import structured
from holdfast.hosts.http.problems import HttpError


@pytest.mark.parametrize("kind", [BulkStep, BulkRerun])
def test_a_bulk_action_without_a_cursor_is_sent_to_the_preview(kind: type[BulkStep]) -> None:
    with pytest.raises(HttpError) as caught:
        structured({"filter": {"status": ["failed"]}}, kind)

    assert caught.value.detail == "$.cursor: it is required: begin with a preview, whose answer has it"


def test_other_faults_have_no_such_hint() -> None:
    with pytest.raises(HttpError) as caught:
        structured({"cursor": 1}, BulkStep)

    assert "preview" not in caught.value.detail
    assert "$.filter: it is required" in caught.value.detail
