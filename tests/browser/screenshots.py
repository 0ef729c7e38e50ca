"""Saves images of all pages, on a desktop and a telephone and in both themes: `make screenshots`."""

import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

from tests.browser.chromium import found_chromium, opened_browser
from tests.browser.shop import PAGES, paths_of, served_shop, shop

FOLDER: Final = Path(".cache/screenshots")
WIDTHS: Final = (1280, 360)
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")


def main() -> int:
    """Save the images; return the exit code."""
    chromium = found_chromium()
    if chromium is None:
        print("there is no Chromium: install it, or set HOLDFAST_TEST_CHROMIUM", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    paths = [path for one in PAGES for path in paths_of(one)]
    with (
        tempfile.TemporaryDirectory() as folder,
        shop(f"sqlite:///{folder}/shop.db") as engine,
        served_shop(engine) as server,
        opened_browser(chromium) as browser,
    ):
        for theme in THEMES:
            for width in WIDTHS:
                context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
                page = context.new_page()
                for path in paths:
                    page.goto(f"{server}{path}")
                    name = path.removeprefix("/ui/").strip("/").replace("/", ".") or "first"
                    page.screenshot(path=FOLDER / f"{name}.{theme}.{width}.png", full_page=True)
                context.close()
    print(f"{len(paths) * len(THEMES) * len(WIDTHS)} images are in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
