"""Running user code, whichever host does it: attempts, their input, output, logs, threads and event loops."""
