"""Programs in which runs and applications send each other messages: see docs/explanation/message-programs.md."""
