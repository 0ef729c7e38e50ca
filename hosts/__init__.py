"""What runs a kernel: a worker process, serverless functions, an application, a command line.

A new host, such as a server, is a folder of its own beside `worker` and `cli`. It starts, signals and cancels runs
through `client`, reads and explains them through `inspection`, runs attempts with `execution.attempt_runner`, and gets
its stores from `wiring`. The layers among these folders are a contract in pyproject.toml.
"""
