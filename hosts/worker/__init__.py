"""A long-running worker process."""
