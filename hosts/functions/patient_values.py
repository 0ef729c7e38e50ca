"""Reads the values of a history, and gives up on those that are gone for good."""

from typing import Final

from holdfast.hosts.payloads import Payloads
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, UnavailableError
from holdfast.ports.records import Payload

MISREAD_MAX: Final = 10
"""How often a blob is asked for again that is missing or torn: for some twenty seconds. Then its run is blocked."""


class PatientValues:
    """Reads values for one attempt. A blob that is not there is asked for again for a while: copies lag."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._misread: dict[str, int] = {}
        """How often each blob could not be read that still can't."""

    def text(self, payload: Payload) -> str:
        """Return the text of a value.

        UnavailableError if it is to be asked for again; BlobMissingError or BlobCorruptError if it is gone.
        """
        blob = payload.blob
        if blob is None:
            return self._payloads.get(payload)
        try:
            text = self._payloads.get(payload)
        except (BlobCorruptError, BlobMissingError) as error:
            times = self._misread[blob] = self._misread.get(blob, 0) + 1
            if times > MISREAD_MAX:
                raise
            raise UnavailableError(str(error)) from error
        self._misread.pop(blob, None)
        return text
