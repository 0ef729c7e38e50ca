"""Sinks of events: registration, delivery, and the flusher that empties the outbox."""
