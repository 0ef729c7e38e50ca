"""The SQL store against real databases, and what can go wrong between us and them."""
