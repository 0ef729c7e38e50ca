"""External effects of bodies, recorded during a simulation."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import overload

from typing_extensions import TypeVar

from holdfast.ports.validation import FUNCTION, TEXT, check

T = TypeVar("T")


class Effects:
    """Records the external effects of bodies. Pass it to `simulate`, which compares them with a run without faults.

    It represents an external service, and survives every simulated crash. Call `happen` where the service would be
    called, usually in a fake of it. The simulated process may crash right before and right after.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._answers: dict[tuple[str, str], object] = {}
        self._point: Callable[[str], None] | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of times that each effect has happened."""
        return dict(self._counts)

    @overload
    def happen(self, what: str, /, *, key: str | None = None) -> None: ...
    @overload
    def happen(self, what: str, do: Callable[[], T], /, *, key: str | None = None) -> T: ...
    def happen(
        self, what: str, do: Callable[[], object] = lambda: None, /, *, key: str | None = None
    ) -> object:
        """Record an effect, and return the result of `do`. No crash separates `do` from the effect.

        Args:
            what: What happens, in words: `charge ann 5 EUR`.
            do: What the service does; its result is the service's answer.
            key: For a service that honours idempotency keys: `ctx.idempotency_key`. If the effect happened before with
                this key, it does not happen again, and the answer is the same. Without a key it happens each time.
        """
        check("happen", TEXT, what=what)
        check("happen", FUNCTION, do=do)
        check("happen", TEXT.or_none, key=key)
        self._meet(f"starts effect: {what}")
        if key is not None and (key, what) in self._answers:
            answer = self._answers[key, what]
            self._meet(f"NO EFFECT (duplicate key): {what}")
            return answer
        answer = do()
        self._counts[what] += 1
        if key is not None:
            self._answers[key, what] = answer
        self._meet(f"EFFECT {what}")
        return answer

    def forget(self) -> None:
        """Delete all recorded effects."""
        self._counts.clear()
        self._answers.clear()

    def begin(self, point: Callable[[str], None] | None) -> None:
        """Delete all recorded effects, and call `point` wherever a process may crash. For simulations."""
        self.forget()
        self._point = point

    def end(self) -> None:
        """Stop calling `point`; keep the recorded effects. For simulations."""
        self._point = None

    def _meet(self, what: str) -> None:
        if self._point is not None:
            self._point(what)
