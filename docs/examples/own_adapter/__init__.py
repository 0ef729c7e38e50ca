"""A blob store of one's own, and the tests that say it is right."""
