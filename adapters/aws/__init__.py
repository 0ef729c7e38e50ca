"""Adapters for Amazon Web Services, in the extra `aws`: blobs in S3, hints over SQS."""
