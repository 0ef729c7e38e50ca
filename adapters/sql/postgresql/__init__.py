"""PostgreSQL: connections, statements over libpq, optimistic transactions, LISTEN and NOTIFY."""
