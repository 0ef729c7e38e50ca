"""Command dispatch: batches, idempotency, locks and reads, the decision and the write, in one transaction."""
