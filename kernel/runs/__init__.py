"""The run as a state machine: status transitions, the builder of row changes, reruns and forks."""
