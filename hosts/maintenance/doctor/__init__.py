"""`holdfast doctor`: checks a whole store against the invariants, and repairs what it can."""
