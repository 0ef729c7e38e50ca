"""The command line. Only this folder imports click and rich, which the extra `cli` installs."""
