"""One folder for each real thing behind a port."""
