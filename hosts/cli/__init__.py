"""The command line. Only this folder imports click and rich, which come with the extra `cli`."""
