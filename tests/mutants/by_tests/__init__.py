"""The second list of planted bugs: those that the fast tests must catch, each by the tests that are named for it.

The first list is hunted by the simulator, which runs the kernel and its hosts with faults. These are bugs that it can't
see: constants, both sides of a bound, second looks, adapters, values, and what hosts tell people.
"""
