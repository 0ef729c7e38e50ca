"""The Lambda path as a whole: a queue and a timer invoke functions that live on one database."""
