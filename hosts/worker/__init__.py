"""The long-running worker process."""
