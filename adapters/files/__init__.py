"""Large values in a folder."""
