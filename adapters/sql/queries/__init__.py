"""Queries in SQL, one module a subject. Both databases share them."""
