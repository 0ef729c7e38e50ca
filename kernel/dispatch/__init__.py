"""From commands to one transaction: batches, locks and reads, idempotency, the decision, the write."""
