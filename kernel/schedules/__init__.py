"""Schedules: when they are due, what their rows contain, and which run belongs to which nominal time.

A schedule is a row, and firing it is a transaction: it locks the row, stores the runs that are due, and moves the row
on, in one commit. There is no leader, no timer table, and no run that is made ahead, so there is nothing to elect and
nothing to clean up after a change. Any host may look for due schedules at any time: the row's lock orders those that
do, and `handled_until` says how far the schedule has got.

The id of a run is made of the schedule's name and the nominal time (`run_id_of`), and ids of runs are unique. So a
nominal time has one run at most, whatever happens beside it: a backfill, a schedule that is removed and made again, a
commit whose answer is lost.

`timetable.py` says what is due; it is made of pure functions of the row, the calendar (`kernel/calendars`) and the
time. `row_data.py` reads and writes the JSON texts of a row. `kernel/rules/schedules.py` has the rules of operators'
commands, and `kernel/rules/schedule_starts.py` those that start runs.
"""
