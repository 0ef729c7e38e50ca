"""Rules of the kernel: for each command, which rows it reads and locks, and the decision on it. Pure functions."""
