"""Authentication of requests: API keys, JSON Web Tokens, and open access from this machine alone."""
