"""`holdfast lint`: looks for what no replay could repeat, in the text of workflows. Nothing is imported or run."""
