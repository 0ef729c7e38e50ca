"""Renames and moves code by what it means, and takes everything along that names it."""
