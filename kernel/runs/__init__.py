"""A run and its jobs as state machines: transitions, the builder of changes, reruns and forks."""
