"""Addresses are below the mount, and each name is one segment of them."""

from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.hosts.http.pages.links import Links, operation_named

HERE = Links("/a/b", "shop")
NAMES = st.one_of(
    st.sampled_from(["a/b", "..", "?", "#x", "%2F", "a b", "é", "//evil.test", "\\", "javascript:alert(1)"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)


@given(namespace=NAMES, run_id=NAMES)
def test_a_name_is_one_segment_whatever_is_in_it(namespace: str, run_id: str) -> None:
    found = urlsplit(Links("/a/b", namespace).page("runs", run_id).address)

    assert (found.scheme, found.netloc, found.query, found.fragment) == ("", "", "", "")
    start, *segments = found.path.split("/")
    assert (start, [unquote(one) for one in segments]) == (
        "",
        ["a", "b", "ui", "namespaces", namespace, "runs", run_id],
    )


@given(name=NAMES, other=NAMES)
def test_a_query_has_what_was_given(name: str, other: str) -> None:
    found = HERE.page("runs", q=name, tag=(other, "x"), all=True, none=None, no=False, limit=5)

    pairs = parse_qsl(urlsplit(found.address).query, keep_blank_values=True)
    assert pairs == [("q", name), ("tag", other), ("tag", "x"), ("all", "true"), ("limit", "5")]


def test_operations_have_addresses_below_the_mount() -> None:
    assert HERE.api("run.cancel", run_id="x/1").address == "/a/b/v1/namespaces/shop/runs/x%2F1/cancel"
    assert HERE.api_path("run.list", {"limit": 8}) == "/v1/namespaces/shop/runs?limit=8"
    assert HERE.of_namespace("other").address == "/a/b/ui/namespaces/other"
    assert HERE.server_page("keys").address == "/a/b/ui/keys"


def test_a_form_names_a_method_that_it_can_not_send() -> None:
    assert "?" not in HERE.form_target("run.cancel", run_id="one").address
    assert HERE.form_target("schedule.remove", name="s").address.endswith("/schedules/s?_method=DELETE")
    assert operation_named("schedule.remove").method == "DELETE"


def test_an_unknown_operation_has_no_address() -> None:
    with pytest.raises(KeyError):
        HERE.api("run.unknown")
