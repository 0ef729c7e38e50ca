"""The contract of a store for credentials, browser sessions and audit entries."""

import pytest
from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.credentials import (
    FindBrowserSession,
    FindCredential,
    ListAuditEntries,
    ListCredentials,
)
from holdfast.ports.searches import AnyCredential, BrowserSessionsOfPrincipal, CredentialsNamed
from holdfast.ports.tables import BROWSER_SESSIONS, CREDENTIALS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_browser_session,
    a_credential,
    an_audit_entry,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put


def _named(store: Persistence, *names: str) -> list[str]:
    return [one.id for one in store.transact(lambda tx: tx.find(CredentialsNamed(names)))]


class Credentials(PersistenceCase):
    """Credentials, found by id and by label, browser sessions, and audit entries."""

    def test_a_credential_is_returned_as_it_was_stored(self, store: Persistence) -> None:
        """It is inserted, updated with all its fields but the unique label, and found by its id."""
        full = evolve(
            a_credential(),
            label="build \u00e9",
            unique_label="build \u00e9",
            previous_hash="b" * 64,
            previous_until=NOW + 1,
            expires_at=NOW + 2,
            used_at=NOW + 3,
        )
        put(store, Insert(full))
        assert store.read(FindCredential(full.id)) == full
        assert store.transact(lambda tx: tx.find(CredentialsNamed([full.label]))) == [full]
        least = evolve(
            a_credential(), unique_label=full.unique_label, scopes="", namespaces="", revoked_at=NOW
        )
        put(store, Update(least))
        assert store.read(FindCredential(full.id)) == least
        assert store.read(FindCredential("\0")) is None
        assert store.read(FindCredential(a_credential(2).id)) is None

    def test_no_two_credentials_share_a_label(self, store: Persistence) -> None:
        """Nor an id; that of a revoked one, which has no unique label any more, may be used again."""
        first, second = a_credential(1), a_credential(2)
        put(store, Insert(first))
        for taken in (first, evolve(second, unique_label=first.unique_label)):
            with pytest.raises(ConflictError):
                put(store, Insert(taken))
        revoked = evolve(first, unique_label=None, revoked_at=NOW)
        put(store, Delete(CREDENTIALS, first.id), Insert(revoked))
        put(store, Insert(evolve(second, unique_label=first.unique_label)))
        put(store, Insert(evolve(a_credential(3), unique_label=None)))
        assert _named(store, first.label) == [second.id]
        assert store.read(FindCredential(first.id)) == revoked

    def test_credentials_are_found_by_id_or_label(self, store: Persistence) -> None:
        """By ascending id, each once; unknown names are left out."""
        rows = [a_credential(number) for number in (3, 1, 2)]
        put(store, *map(Insert, rows))
        assert _named(store, rows[0].id, rows[0].label, rows[1].label, "?", "\0") == [rows[1].id, rows[0].id]
        assert _named(store) == []

    def test_whether_any_credential_is_stored(self, store: Persistence) -> None:
        """A revoked one counts."""
        assert store.transact(lambda tx: tx.find(AnyCredential())) is False
        put(store, Insert(evolve(a_credential(), unique_label=None, revoked_at=NOW)))
        assert store.transact(lambda tx: tx.find(AnyCredential())) is True

    def test_credentials_are_listed_by_pages(self, store: Persistence) -> None:
        """The oldest first, by id among those of one instant."""
        rows = [evolve(a_credential(number), created_at=NOW + at) for number, at in ((1, 5), (3, 0), (2, 0))]
        put(store, *map(Insert, rows))
        first = store.read(ListCredentials(limit=2))
        assert first == (rows[2], rows[1])
        assert store.read(ListCredentials(after=first[-1].place)) == (rows[0],)
        assert store.read(ListCredentials(limit=0)) == ()

    def test_a_browser_session_is_returned_as_it_was_stored(self, store: Persistence) -> None:
        """It is inserted, updated with all its fields, found by its id, and deleted."""
        full = a_browser_session()
        put(store, Insert(full))
        assert store.read(FindBrowserSession(full.id)) == full
        least = evolve(full, credential=None, credential_hash=None, used_at=NOW + 1, ends_at=NOW + 2)
        put(store, Update(least))
        assert store.read(FindBrowserSession(full.id)) == least
        assert store.read(FindBrowserSession("\0")) is None
        put(store, Delete(BROWSER_SESSIONS, full.id))
        assert store.read(FindBrowserSession(full.id)) is None

    def test_browser_sessions_are_found_by_their_principal(self, store: Persistence) -> None:
        """By ascending id; those of another principal, or of another kind, are left out."""
        mine = [evolve(a_browser_session(number), principal="ann \u00e9") for number in (3, 1)]
        others = [evolve(mine[0], id="other0000000", kind="user"), a_browser_session(2)]
        put(store, *map(Insert, [*mine, *others]))

        def of(kind: str, principal: str) -> list[str]:
            found = store.transact(lambda tx: tx.find(BrowserSessionsOfPrincipal(kind, principal)))
            return [one.id for one in found]

        assert of("key", "ann \u00e9") == [mine[1].id, mine[0].id]
        assert of("key", "nobody") == []

    def test_audit_entries_are_listed_by_pages(self, store: Persistence) -> None:
        """Of one namespace, the newest first, with all their fields."""
        rows = [evolve(an_audit_entry(number), at=NOW + at) for number, at in ((1, 0), (3, 5), (2, 5))]
        rows[0] = evolve(rows[0], actor_kind="user", actor_id="ann", actor_version="2", request_id="r-1")
        put(store, *map(Insert, rows), Insert(evolve(an_audit_entry(4), namespace="elsewhere")))
        first = store.read(ListAuditEntries(namespace=NAMESPACE, limit=2))
        assert first == (rows[1], rows[2])
        assert store.read(ListAuditEntries(namespace=NAMESPACE, after=first[-1].place)) == (rows[0],)
        assert store.read(ListAuditEntries(namespace=NAMESPACE, limit=0)) == ()
        assert store.read(ListAuditEntries(namespace="\0")) == ()
