import pytest

from fedmmf.identity import Card, Identity, TrustList


@pytest.fixture
def issuer():
    return Identity.new()


@pytest.fixture
def people():
    """Identities by name."""
    return {name: Identity.new() for name in ("alice", "bob", "carol")}


@pytest.fixture
def cards(people):
    """Cards by name; alice and bob are of one site."""
    sites = {"alice": "hospital-a", "bob": "hospital-a", "carol": "clinic-b"}
    return {name: Card.of(one, name, sites[name]) for name, one in people.items()}


@pytest.fixture
def trust_list(cards, issuer):
    return TrustList.first("cardiology", cards.values(), issuer, most_per_site=2)
