"""What bodies do outside, as a simulation sees it: a world that outlives every crash."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import overload

from typing_extensions import TypeVar

from holdfast.ports.validation import FUNCTION, TEXT, check

T = TypeVar("T")


class Effects:
    """Notes what bodies do outside. Give it to `simulate`, which checks that it is the same whatever goes wrong.

    It stands for a service. Call `happen` where the service would be called: in a fake of it, mostly. In a simulation
    the process may crash right before and right after.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._answers: dict[tuple[str, str], object] = {}
        self._point: Callable[[str], None] | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each effect has happened."""
        return dict(self._counts)

    @overload
    def happen(self, what: str, /, *, key: str | None = None) -> None: ...
    @overload
    def happen(self, what: str, do: Callable[[], T], /, *, key: str | None = None) -> T: ...
    def happen(
        self, what: str, do: Callable[[], object] = lambda: None, /, *, key: str | None = None
    ) -> object:
        """Have an effect happen, and return what `do` gives. No crash comes between what `do` does and the effect.

        Args:
            what: What happens, in words: `charge ann 5 EUR`.
            do: What the service does, and answers.
            key: What a service that honours idempotency keys was handed: `ctx.idempotency_key`. If this happened under
                the key before, nothing happens now, and the answer is the same. Without a key it happens each time.
        """
        check("happen", TEXT, what=what)
        check("happen", FUNCTION, do=do)
        check("happen", TEXT.or_none, key=key)
        self._meet(f"is about to: {what}")
        if key is not None and (key, what) in self._answers:
            answer = self._answers[key, what]
            self._meet(f"NO EFFECT, for the key is known: {what}")
            return answer
        answer = do()
        self._counts[what] += 1
        if key is not None:
            self._answers[key, what] = answer
        self._meet(f"EFFECT {what}")
        return answer

    def forget(self) -> None:
        """Forget everything: nothing has happened yet."""
        self._counts.clear()
        self._answers.clear()

    def begin(self, point: Callable[[str], None] | None) -> None:
        """Forget everything, and call `point` wherever a process may crash. Called by simulations."""
        self.forget()
        self._point = point

    def end(self) -> None:
        """Have no more points. What has happened is kept. Called by simulations."""
        self._point = None

    def _meet(self, what: str) -> None:
        if self._point is not None:
            self._point(what)
