"""Holdfast beside what people would pick instead: the same work, on the same server, in one run.

`python -m tests.benchmarks.peers`, or `make bench-peers`. Each peer runs in an environment of its own, made from
the package index, by a program in `programs/` that uses it as its documentation says is best. Of what a peer has no
notion of, a queue of jobs of steps say, it has no figure.
"""
