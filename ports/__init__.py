"""Ports: the protocols and records through which kernel and hosts reach stores, transports, sinks, blobs and clocks."""
