"""Time and identity from the machine that Holdfast runs on."""
