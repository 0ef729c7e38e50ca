"""Adapters for Amazon Web Services, in the extra `aws`: S3, SQS, EventBridge and its Scheduler, SNS."""
