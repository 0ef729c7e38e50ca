"""The rules: for each command, what it reads and what it comes to. Pure functions of their arguments."""
