"""The performance page and its plots agree with the results."""

import xml.etree.ElementTree as ET

import pytest

from tests.benchmarks.page import PAGE, made, measured
from tests.benchmarks.plots import Bars, Plot, below_each_other

SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_and_its_plots_are_what_the_data_make() -> None:
    """If this fails, run `make bench-page`."""
    wanted = made(PAGE.read_text(), *measured())

    assert {path.name for path, text in wanted.items() if path.read_text() != text} == set()


def test_a_page_without_a_place_for_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="one place for 'machine'"):
        made("# Nothing", *measured())


def test_a_line_stays_within_its_axes_and_ends_at_its_highest_point() -> None:
    plot = Plot(title="t", across="x", up="y", lines={"one": [(0, 0), (10, 50), (20, 100)]})

    (line,) = ET.fromstring(plot.svg()).iter(f"{SVG}polyline")

    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert places[0] == (64.0, 258.0)
    assert places[-1] == (744.0, 46.0)
    assert places[1] == (404.0, 152.0)


def test_a_bar_is_as_long_as_its_value() -> None:
    bars = Bars(title="t", note="n", values={"one": 100.0, "two": 50.0})

    drawn = ET.fromstring(below_each_other([bars, bars]))

    widths = [float(box.attrib["width"]) for box in drawn.iter(f"{SVG}rect") if "rx" in box.attrib]
    assert widths == [530.0, 265.0, 530.0, 265.0]
    assert int(drawn.attrib["height"]) == 2 * bars.height
