"""The client of a server: the methods of the engine, over HTTP."""
