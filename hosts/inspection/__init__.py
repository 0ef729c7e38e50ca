"""The read side, shared by the client, the command line and tests: runs, logs, values, and why a run waits."""
