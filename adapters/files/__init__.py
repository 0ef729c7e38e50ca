"""Blobs in a folder."""
