"""Our tests, laid out as the code is. A package, so that no installed `tests` shadows it."""
