"""The read side for the client, the command line and tests: runs, logs, values, and why a run waits."""
