"""Adapters for NATS JetStream, in the extra `nats`: hints over a work queue, events to a stream."""
