"""The command line as users run it: real processes on a real file."""
