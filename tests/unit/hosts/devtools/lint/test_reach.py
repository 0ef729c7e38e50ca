"""The code that belongs to a workflow: all forms of imports, decorators and helpers."""

from pathlib import Path

import pytest

from holdfast.hosts.devtools.lint.linter import lint
from holdfast.ports.errors import InvalidArgumentError
from tests.unit.hosts.devtools.lint.conftest import Lint, codes

BODY = "async def flow() -> None:\n    import time\n    time.time()\n"


@pytest.mark.parametrize(
    "decorated",
    [
        "from holdfast import workflow\n@workflow",
        "from holdfast import workflow\n@workflow(version='2')",
        "from holdfast import workflow as durable\n@durable()",
        "import holdfast\n@holdfast.workflow",
        "import holdfast as hf\n@hf.workflow(name='x')",
        "from holdfast.kernel.authoring.functions import workflow\n@workflow",
        "from holdfast import *\n@workflow",
        "from holdfast import workflow\ndurable = workflow(version='2')\n@durable",
        "from holdfast import workflow\n@print\n@workflow",
        "try:\n    from holdfast import workflow\nexcept ImportError:\n    workflow = None\n@workflow",
    ],
)
def test_a_workflow_is_known_by_any_form_of_its_decorator(lint_program: Lint, decorated: str) -> None:
    report = lint_program({"flows.py": f"{decorated}\n{BODY}"})

    assert (codes(report), report.workflows) == (["HF001"], 1)


@pytest.mark.parametrize(
    "decorated",
    [
        "",
        "from other import workflow\n@workflow",
        "def workflow(fn): return fn\n@workflow",
        "from holdfast import step as workflow\n@workflow",
        "from holdfast import workflow, step\ncareful = step(retry=None)\n@careful(timeout=None)",
        "from holdfast import stage, workflow\n@stage",
    ],
)
def test_other_functions_are_none_of_its_business(lint_program: Lint, decorated: str) -> None:
    report = lint_program({"flows.py": f"{decorated}\n{BODY}"})

    assert (codes(report), report.workflows) == ([], 0)


def test_workflows_are_found_wherever_they_are_made(lint_program: Lint) -> None:
    """In functions and branches, by a call without `@`, and by a decorator defined in another file."""
    report = lint_program(
        {
            "made.py": "import holdfast\ndurable = holdfast.workflow(version='3')\n",
            "flows.py": """
                import time
                from holdfast import workflow
                def make():
                    if True:
                        @workflow
                        async def inner() -> None:
                            time.time()
                async def _later() -> None:
                    time.monotonic()
                later = workflow(_later)
            """,
            "others.py": "import time\nfrom made import durable\n@durable\nasync def third():\n    time.time()\n",
        }
    )

    assert codes(report) == ["HF001"] * 3
    assert [one.workflow for one in report.findings] == ["inner", "_later", "third"]


def test_helpers_are_followed_through_imports_of_all_forms(lint_program: Lint) -> None:
    report = lint_program(
        {
            "shop/__init__.py": "from shop.deep.clocks import third\n",
            "shop/flows.py": """
                import shop.first
                import shop.second as second
                from holdfast import workflow
                from shop import third
                from . import fourth as near
                from .deep import clocks
                from .deep.clocks import fifth as f

                @workflow
                async def flow() -> None:
                    shop.first.one()
                    second.two()
                    third()
                    near.four()
                    clocks.six()
                    list(map(f, [1]))
            """,
            "shop/first.py": "import time\ndef one(): time.time()\ndef unused(): time.time()\n",
            "shop/second.py": "import time\ndef two(): inner()\ndef inner(): time.time()\n",
            "shop/fourth.py": "import time\ndef four(): time.time()\n",
            "shop/deep/__init__.py": "",
            "shop/deep/clocks.py": (
                "import time\ndef third(): time.time()\ndef fifth(_): time.time()\ndef six(): time.time()\n"
            ),
        }
    )

    assert {(one.path, one.line, one.through) for one in report.findings} == {
        ("shop/first.py", 2, "shop.first.one"),
        ("shop/second.py", 3, "shop.second.inner"),
        ("shop/fourth.py", 2, "shop.fourth.four"),
        ("shop/deep/clocks.py", 2, "shop.deep.clocks.third"),
        ("shop/deep/clocks.py", 3, "shop.deep.clocks.fifth"),
        ("shop/deep/clocks.py", 4, "shop.deep.clocks.six"),
    }
    assert all("(workflow flow calls shop." in one.message for one in report.findings)
    assert report.functions == 8


def test_methods_of_the_programs_classes_are_followed(lint_program: Lint) -> None:
    report = lint_program(
        {
            "shop.py": """
                import time
                from holdfast import query, update, workflow

                class Base:
                    def inherited(self): return time.time()

                class Cart(Base):
                    def __init__(self): self.at = time.time()
                    def total(self): return self._inner()
                    def _inner(self): return time.time()
                    @property
                    def age(self): return time.time()
                    @staticmethod
                    def fixed(): return time.time()
                    def unused(self): return time.time()

                class Exposed:
                    @query
                    def asked(self) -> float: return time.time()
                    @update
                    async def told(self) -> None: time.time()
                    @told.validator
                    def may_be_told(self) -> None: time.time()

                def show(cart: "Cart | None"): return cart.age

                @workflow
                async def flow() -> None:
                    cart = Cart()
                    cart.total()
                    cart.inherited()
                    Cart.fixed()
                    show(cart)
            """
        }
    )

    found = {(one.through or one.workflow) for one in report.findings}
    assert found == {
        *(
            "shop.Base.inherited",
            "shop.Cart.__init__",
            "shop.Cart._inner",
            "shop.Cart.age",
            "shop.Cart.fixed",
        ),
        *("asked", "told", "may_be_told"),
    }


def test_steps_and_what_is_recorded_are_not_followed(lint_program: Lint) -> None:
    report = lint_program(
        {
            "shop.py": """
                import holdfast
                import time
                from holdfast import step, workflow

                careful = step(retry=None)

                @step
                def one(): time.time()
                @careful
                def two(): time.time()
                @one.compensate
                def undo(): time.time()
                @step.in_transaction
                def three(): time.time()
                @workflow
                async def child() -> None: ...
                def recorded(): return time.time()

                @workflow
                async def flow() -> None:
                    @step
                    def local(): time.time()
                    await one()
                    await two.options(timeout=None)()
                    await undo()
                    await three()
                    await local()
                    await child()
                    await holdfast.side_effect(recorded)
                    await holdfast.side_effect(lambda: [time.time() for _ in range(3)])
            """
        }
    )

    assert codes(report) == []


def test_a_file_named_like_a_module_of_python_is_not_taken_for_it(lint_program: Lint) -> None:
    report = lint_program(
        {
            "random.py": "def choice(): ...\n",
            "flows.py": "import random\nfrom holdfast import workflow\n@workflow\nasync def f(): random.choice()\n",
        }
    )

    assert codes(report) == ["HF003"]


def test_of_files_with_one_name_the_nearest_is_meant(lint_program: Lint) -> None:
    flow = "from holdfast import workflow\nfrom clocks import read\n@workflow\nasync def flow(): read()\n"
    report = lint_program(
        {
            "a/flows.py": flow,
            "a/clocks.py": "def read(): ...\n",
            "b/flows.py": flow,
            "b/clocks.py": "import time\ndef read(): time.time()\n",
        }
    )

    assert [one.path for one in report.findings] == ["b/clocks.py"]


def test_dropped_calls_are_found_outside_of_workflows_too(lint_program: Lint) -> None:
    report = lint_program(
        {
            "flows.py": (
                "from holdfast import step, workflow\n"
                "@workflow\nasync def fulfil(): ...\n"
                "@step\ndef pay(): ...\n"
            ),
            "views.py": """
                import pytest
                from flows import fulfil as go, pay

                def view():
                    go()
                    pay()

                async def fine():
                    await pay()
                    return go()

                def test_wrong():
                    with pytest.raises(TypeError):
                        go(1, 2)
            """,
        }
    )

    assert [(one.path, one.line, one.code) for one in report.findings] == [
        ("views.py", 6, "HF012"),
        ("views.py", 7, "HF010"),
    ]


def test_modules_are_found_and_not_imported(lint_program: Lint) -> None:
    files = {
        "shop/__init__.py": "raise SystemExit('imported')\n",
        "shop/flows.py": f"from holdfast import workflow\n@workflow\n{BODY}",
        "other.py": f"from holdfast import workflow\n@workflow\n{BODY}",
    }

    assert [one.path for one in lint_program(files, "shop").findings] == ["shop/flows.py"]
    assert [one.path for one in lint_program(files, "shop.flows").findings] == ["shop/flows.py"]
    assert [one.path for one in lint_program(files, "other").findings] == ["other.py"]
    assert lint_program(files, "shop", "shop/flows.py", "shop.flows").files == 2


def test_what_is_nowhere_is_refused() -> None:
    for name in ("nowhere.to_be_found", "nowhere.py", "a/b", "x y", ""):
        with pytest.raises(InvalidArgumentError, match="or a module"):
            lint([name])


def test_hidden_and_installed_files_are_left_alone(lint_program: Lint, tmp_path: Path) -> None:
    text = f"from holdfast import workflow\n@workflow\n{BODY}"
    report = lint_program(
        {
            ".hidden/flows.py": text,
            "env/pyvenv.cfg": "",
            "env/flows.py": text,
            "node_modules/flows.py": text,
            "notes.txt": text,
            "script.pyw": text,
        }
    )

    assert [one.path for one in report.findings] == ["script.pyw"]
    assert len(lint([str(tmp_path / ".hidden")]).findings) == 1
