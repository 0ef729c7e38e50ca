"""What users and we test with: fakes, the simulator, conformance suites."""
