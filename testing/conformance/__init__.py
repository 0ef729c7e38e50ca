"""Conformance suites: the contract of each port as tests, one abstract class per port and one test per promise.

The author of an adapter derives a class whose name begins with `Test`, and defines how to create the adapter:

    class TestMyBlobStore(BlobStoreContract):
        def make_blob_store(self) -> BlobStore:
            return MyBlobStore(...)

pytest then tests every promise against it. The fakes of `holdfast.testing` pass the same tests.
"""

import pytest

# Show values in failed assertions. Modules are named, because this package is already imported.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in ("blobs", "clock", "events", "persistence", "scheduler", "threads", "transport")
    )
)
