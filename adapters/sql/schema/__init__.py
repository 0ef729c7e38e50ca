"""The tables, and the migrations that create them."""
