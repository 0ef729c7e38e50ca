"""The whole Lambda path: a queue and a timer invoke functions on one database."""
