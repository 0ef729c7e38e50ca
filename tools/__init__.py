"""Scripts that check the repository. None of them ships."""
