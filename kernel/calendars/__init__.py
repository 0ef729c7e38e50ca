"""The calendar of schedules: at which instants a cron expression or an interval fires, in any time zone.

Theory
======

A cron expression is a set of local times: every minute whose fields are in the sets of its fields. A time zone is a
sequence of periods, in each of which local time is UTC plus one offset (`zone_periods.py`). So in a period the instants
are the local times of the set, minus the offset, and all questions are about the borders between two periods.

At a border the clock is moved. If it is moved forward, local times in the gap do not exist. If it is moved back, those
in the fold come twice. The rule: a time that does not exist happens later by the length of the gap; one that comes
twice happens the first time; an expression that allows every hour of the day goes by elapsed time, so both times.
`gap` and `fold` say otherwise. "Every hour" is a property of the set, not of the text: `0-23` is `*`.

A gap belongs to the period that it begins, because a shifted time is an instant of that period: the local time minus
the offset before. Each period so has at most two sequences of instants, its own local times and those of its gap, both
ascending. The next instant is the smaller head of the two, or it is in the next period. If the two heads are the same
instant, it is one firing. The last instant until another one is found in the same way, backwards.

An interval knows no zone: it fires at its anchor and at all multiples of its length from there.

Everything here is pure: a zone is a frozen table (`ports/zones.py`) that is passed in. The name of a scheduled run has
its instant in it, so the same spec and the same table must give the same instants on every machine and in every
release. This is why specs are stored as sets (`documents.py`), and why the evaluator is not that of a library.

Reading order: `zone_periods.py`, `patterns.py`, `specs.py`, `occurrences.py`, `documents.py`.
"""
