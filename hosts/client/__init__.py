"""What an application holds: the engine, handles of runs, actions on many runs."""
