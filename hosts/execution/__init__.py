"""Execution of user code in any host: attempts, their input, output, logs, threads and event loops."""
