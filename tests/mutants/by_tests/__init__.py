"""The second list of planted bugs: each must be caught by the fast tests that it names.

The simulator hunts the first list. It cannot see these bugs: constants, both sides of a bound, rechecks, adapters,
values, and messages for people.
"""
