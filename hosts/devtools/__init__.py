"""Developer tools. They run no kernel."""
