"""Hosts for functions as a service, such as AWS Lambda."""
