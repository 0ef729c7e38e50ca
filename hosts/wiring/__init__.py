"""What all hosts share: adapters from URLs, the kernel, the registry of workflows, the store's clock."""
