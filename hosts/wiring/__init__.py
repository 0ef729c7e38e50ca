"""What all hosts share: adapters from URLs, the kernel, the registry of code, the clock of the store."""
