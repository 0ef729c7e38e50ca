"""The tables, and the migrations that make them."""
