"""What each port promises, as tests: one abstract class a port, one test a promise.

Whoever writes an adapter derives a class whose name begins with `Test` and says how one is made:

    class TestMyBlobStore(BlobStoreContract):
        def make_blob_store(self) -> BlobStore:
            return MyBlobStore(...)

and pytest runs every promise against it. The fakes of `holdfast.testing` pass the same tests.
"""

import pytest

# So that a failed assertion shows its values. Each module is named, because this package itself is imported already.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in ("blobs", "clock", "events", "persistence", "scheduler", "threads", "transport")
    )
)
