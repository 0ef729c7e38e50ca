"""Store, transport and sink in the memory of one process."""
