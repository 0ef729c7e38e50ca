"""A shop with runs in every state, for `make serve`."""
