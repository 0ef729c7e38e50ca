"""Topics: how subscriptions select messages, as functions of their arguments."""
