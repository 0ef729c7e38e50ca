"""Commands of topics over HTTP: publications are taken, deliveries are refused."""

import pytest

from tests.integration.http.api import Api

pytestmark = pytest.mark.anyio

PUBLISH = {
    "type": "topic.publish",
    "message": {"topic": "orders", "payload": "1", "attributes": "{}", "checked": False, "keep": 60_000_000},
    "id": "m",
}


async def test_who_may_start_runs_may_publish_with_a_command(api: Api) -> None:
    for by in ("read", "operate", "work"):
        refused = await api.send("POST", "commands", {"commands": [PUBLISH]}, by=by)
        assert "forbidden" in refused.text, (by, refused.text)
    taken = await api.post("commands", {"commands": [PUBLISH]}, by="start")
    assert taken["answers"][0]["problem"] is None, taken
    assert taken["answers"][0]["reply"]["published"] is True


async def test_a_delivery_is_refused(api: Api) -> None:
    refused = await api.send("POST", "commands", {"commands": [{"type": "topic.deliver"}]})
    other = await api.send("POST", "commands", {"commands": [{"type": "schedule.fire"}]})
    assert refused.status_code == other.status_code == 400
    assert refused.json()["code"] == other.json()["code"]
