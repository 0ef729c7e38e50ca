"""What the tests in this folder share."""

from tests.chaos.site import nursery, open_site, postgres_site, site, sqlite_site

__all__ = ["nursery", "open_site", "postgres_site", "site", "sqlite_site"]
