"""What runs a kernel: a worker process, serverless functions, an application, a command line."""
