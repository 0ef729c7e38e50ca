"""Workers that reach their tasks through a server, without access to the store."""
