"""A page of tests that reads like the list of faults that other engines had: see docs/explanation/faults.md."""
