"""Settings of an engine for calls of AI models."""

from collections.abc import Mapping

import attrs

from holdfast.kernel.authoring.ai import Price, Redact


@attrs.frozen(kw_only=True)
class AiSettings:
    """The settings of an engine for calls of AI models."""

    prices: Mapping[str, Price] = attrs.field(factory=dict[str, Price])
    """Prices, by the names of the models."""
    redact: Redact | None = None
