"""Time and ids from the machine that Holdfast runs on."""
