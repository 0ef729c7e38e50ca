"""Comments that suppress findings."""

import pytest

from tests.unit.hosts.devtools.lint.conftest import Lint, codes


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# NOQA: hf001",
        "#noqa:HF001",
        "# noqa: E501, HF001",
        "# noqa: HF001 HF005  only for the log",
        "# type: ignore  # noqa: HF001",
        "# holdfast: noqa",
        "# holdfast: noqa: HF001",
        "# why it is fine. holdfast: noqa  # holdfast:noqa",
    ],
)
def test_a_comment_quiets_its_line(lint_body: Lint, comment: str) -> None:
    assert codes(lint_body(f"import time\ntime.time()  {comment}")) == []


@pytest.mark.parametrize(
    "comment",
    ["# noqa: E501", "# noqa: HF002", "# holdfast: noqa: HF005", "# noqa-file", "# nothing", "# about noqa"],
)
def test_other_comments_do_not(lint_body: Lint, comment: str) -> None:
    assert codes(lint_body(f"import time\ntime.time()  {comment}")) == ["HF001"]


def test_a_text_is_no_comment(lint_body: Lint) -> None:
    assert codes(lint_body('import time\nprint(time.time(), "# noqa")')) == ["HF001"]


def test_any_line_of_what_is_found_will_do(lint_body: Lint) -> None:
    report = lint_body("charge(\n    order,  # noqa: HF010\n)\nprint()  # noqa: HF010\ncharge(order)")

    assert [(one.line, one.code) for one in report.findings] == [(21, "HF010")]


def test_an_except_is_quieted_in_its_own_line(lint_body: Lint) -> None:
    swallow = "try:\n    await charge(order)\nexcept BaseException:{}\n    print(1){}"

    assert codes(lint_body(swallow.format("  # noqa: HF013", ""))) == []
    assert codes(lint_body(swallow.format("", "  # noqa: HF013"))) == ["HF013"]


def test_codes_that_there_are_not_are_told(lint_body: Lint) -> None:
    report = lint_body("print(1)  # noqa: HF001, HF999\nprint(2)  # holdfast: noqa: E501, HF100")

    assert [(one.code, one.column) for one in report.findings] == [("HF100", 30), ("HF100", 33)]
    assert [one.text.split()[5] for one in report.findings] == ["HF999", "E501"]
