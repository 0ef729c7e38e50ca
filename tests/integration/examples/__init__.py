"""The documentation and its examples, run and compared with the code."""
