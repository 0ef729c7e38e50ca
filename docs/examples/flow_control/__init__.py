"""Programs that are awkward without flow control, each a whole one: see docs/explanation/flow-control-programs.md."""
