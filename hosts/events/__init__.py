"""Event sinks: registration, delivery, and the flusher that empties the outbox."""
