"""Interceptors of starts: they add attributes and headers to a run before the command that starts it is made."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

import attrs

from holdfast.kernel.authoring.options import ATTRIBUTES
from holdfast.kernel.history.exceptions import error_words
from holdfast.kernel.pipelines.headers import HEADERS, headers_of
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.json import canonical
from holdfast.ports.records.run import GivenOptions, Run, attribute_texts
from holdfast.ports.structs import evolve
from holdfast.ports.validation import check

StartKind: TypeAlias = Literal["run", "child", "schedule", "trigger"]

_WHERE: Final = "an interceptor's start"


@attrs.frozen(kw_only=True)
class StartCall:
    """A start of a run that is about to be stored.

    Attributes:
        kind: What is stored: a `run`, a `child` run, or a `schedule` or a `trigger`, whose runs all get what is added.
        namespace: The namespace.
        workflow: The name of the workflow.
        version: The version of the workflow.
        run_id: The id of the run; None if the start gives none.
        parent: The id of the run that starts it as a child run; None for any other start.
        attributes: The attributes of the run, by name; of a child run, with those of its parent if it inherits them.
        headers: The headers of the run, by name; of a child run, with those of its parent.
    """

    kind: StartKind
    namespace: str
    workflow: str
    version: str
    run_id: str | None
    parent: str | None = None
    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str], hash=False)
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], hash=False)

    def with_attributes(self, added: Mapping[str, str], /) -> "StartCall":
        """Return the start with these attributes besides its own. Of the same name, these count."""
        return attrs.evolve(self, attributes={**self.attributes, **added})

    def with_headers(self, added: Mapping[str, str], /) -> "StartCall":
        """Return the start with these headers besides its own. Of the same name, these count."""
        return attrs.evolve(self, headers={**self.headers, **added})


@runtime_checkable
class StartInterceptor(Protocol):
    """An interceptor with a method `start`, which may add attributes and headers to a run.

    It is called once for each start: in the thread of the caller, or for a child run on the event loop of a worker,
    which it must not block.
    """

    def start(self, call: StartCall, /) -> StartCall | None:
        """Return the start with other attributes or headers; None to leave it as it is.

        An exception is raised where the run was started, and nothing is stored; a run that starts a child run is
        blocked.
        """
        ...


class StartRefusedError(Exception):
    """An interceptor raised at the start of a child run. Its text names that exception, which is its cause."""


def around_starts(interceptors: Iterable[object]) -> tuple[StartInterceptor, ...]:
    """Return the interceptors of starts, the first outermost."""
    return tuple(one for one in interceptors if isinstance(one, StartInterceptor))


def intercepted(interceptors: Iterable[StartInterceptor], call: StartCall) -> StartCall:
    """Return a start as interceptors change it, one after the other.

    Raises what they raise, and InvalidArgumentError if one returns anything but the start with other attributes and
    headers.
    """
    for interceptor in interceptors:
        changed: object = interceptor.start(call)
        if changed is not None:
            call = _checked(call, changed)
    return call


def options_of_child(
    interceptors: Iterable[StartInterceptor], parent: Run, options: GivenOptions, **child: str
) -> GivenOptions:
    """Return the options of a child run as interceptors change them. StartRefusedError if one raises.

    Args:
        interceptors: The interceptors.
        parent: The run that starts it.
        options: Its options.
        child: Its `run_id`, its `workflow` and its `version`.
    """
    attributes = parent.attributes if options.attributes is None else options.attributes
    call = StartCall(
        kind="child",
        namespace=parent.namespace,
        parent=parent.id,
        attributes=attribute_texts(attributes),
        headers=headers_of(parent.headers if options.headers is None else options.headers),
        **cast("dict[str, Any]", child),
    )
    try:
        changed = intercepted(interceptors, call)
    except Exception as error:  # an interceptor may raise anything
        what = f"an interceptor of the start of run {call.run_id!r} of {call.workflow!r}"
        raise StartRefusedError(f"{what} raised {error_words(error)}") from error
    if changed.attributes != call.attributes:
        options = evolve(options, attributes=canonical(dict(changed.attributes)))
    if changed.headers != call.headers:
        options = evolve(options, headers=canonical(dict(changed.headers)))
    return options


def _checked(call: StartCall, changed: object) -> StartCall:
    if not isinstance(changed, StartCall) or call != attrs.evolve(
        changed, attributes=call.attributes, headers=call.headers
    ):
        raise InvalidArgumentError(
            "start",
            f"{_WHERE} returns the call with other attributes or headers, as call.with_headers(...) does, or None;"
            f" not {changed!r:.200}",
        )
    # What a child run has from its parent is not refused: old runs may have halves of surrogate pairs.
    if changed.attributes != call.attributes:
        check(_WHERE, ATTRIBUTES, attributes=changed.attributes)
    if changed.headers != call.headers:
        check(_WHERE, HEADERS, headers=changed.headers)
    return changed
