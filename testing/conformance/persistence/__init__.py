"""The contract of `Persistence` (`holdfast.ports.persistence`) as tests, by topic."""

from holdfast.testing.conformance.persistence.contract import PersistenceContract

__all__ = ["PersistenceContract"]
