"""Benchmarks: `python -m tests.benchmarks`.

Every figure stands beside what hand-written SQL does with the same work, on the same server, in the same run: machines
differ and drift, ratios in one run do not.

Beside it there are `peers`, which does the same work with what people would pick instead; `soak`, which goes on for an
hour; and `growth`, which does it beside many other runs. What they measure is kept in `results`, of which `page` makes
the tables and plots of the documentation.

`workloads` is what is measured, `floors` is the hand-written SQL, `sites` are the databases and what can be counted
about them, `meter` takes one sample, `figures` makes figures of samples.
"""
