"""`fedmmf identity`: make keys, look at them, and keep the list of those who may take part."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedmmf.cli.choices import JsonOption
from fedmmf.cli.options import expanded
from fedmmf.cli.output import errors, print_json, results, table
from fedmmf.errors import IdentityError, PassphraseError, SettingsError
from fedmmf.identity import Card, Identity, TrustList, card_beside, enrol, files, fingerprint
from fedmmf.identity.cards import CARD_FORMAT
from fedmmf.identity.documents import format_of
from fedmmf.identity.key_files import PEM_START
from fedmmf.identity.trust_lists import LIST_BYTES, LIST_FORMAT

app = typer.Typer(
    help="Make keys and cards, and keep the list of those who may take part.",
    no_args_is_help=True,
)
_ENVIRONMENT = "FEDMMF_PASSPHRASE"
_KINDS = {CARD_FORMAT: "card", LIST_FORMAT: "list"}
_TRUST_EXAMPLE = (
    "Example: fedmmf identity trust trust.json alice.key.card --issuer issuer.key "
    "--federation cardiology"
)
_REVOKE_EXAMPLE = (
    "Example: fedmmf identity revoke trust.json alice --issuer issuer.key --reason 'laptop lost'"
)

KeeperOption = Annotated[
    Path, typer.Option("--issuer", help="Key file of whoever keeps the list, to sign it with.")
]
ListArgument = Annotated[Path, typer.Argument(metavar="LIST", help="The trust list.")]


@dataclass(frozen=True)
class Common:
    """Options that all identity commands share."""

    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase", help=f"Ask for the key file's passphrase, unless {_ENVIRONMENT} has it."
        ),
    ] = False
    seed: Annotated[
        int, typer.Option(min=0, help="Accepted by every command; keys take nothing from it.")
    ] = 0
    json: JsonOption = False

    def secret(self, *, new: bool = False) -> str | None:
        """The passphrase, from the environment or a prompt; never from the command line."""
        found = os.environ.get(_ENVIRONMENT)
        if found == "":
            raise SettingsError(f"{_ENVIRONMENT} must hold a passphrase; it is empty. Unset it")
        if found is None and self.passphrase:
            found = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
        return found

    def open(self, path: Path) -> Identity:
        """Read a key file, with its passphrase where it has one."""
        with _saying_how():
            return Identity.read(path, self.secret())

    def show(self, facts: dict[str, Any], *words: str) -> None:
        """Print facts as JSON, or words for people."""
        if self.json:
            print_json(facts)
        else:
            results.print(*words, sep="\n", markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class ListTerms:
    """Options for the fields of a trust list besides its members."""

    most_per_site: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many members a site may have.", show_default="the list's; 1 if new"
        ),
    ] = None
    federation: Annotated[
        str | None, typer.Option(help="Which federation the list is for; needed to make one.")
    ] = None


@app.command("new", epilog="Example: fedmmf identity new alice.key --name alice --site hospital-a")
@expanded
def new(
    keyfile: Annotated[Path, typer.Argument(help="Where the key goes; its card goes beside it.")],
    name: Annotated[str, typer.Option(help="Whom it is for, of a-z 0-9 . _ -")],
    site: Annotated[str, typer.Option(help="Where that is, of a-z 0-9 . _ -")],
    common: Common,
) -> None:
    """Make a key for its owner alone, and a card to hand to whoever keeps the list."""
    with _saying_how():
        card = enrol(keyfile, name, site, common.secret(new=True))
    beside = card_beside(keyfile)
    common.show(
        {"key_file": str(keyfile), "card_file": str(beside), **_card_facts(card)},
        f"{keyfile} is the key. It stays with {name}.",
        f"{beside} is the card, for whoever keeps the list. Let them read to you:",
        card.fingerprint,
    )


@app.command("show", epilog="Example: fedmmf identity show trust.json --issuer issuer.key.card")
@expanded
def show(
    file: Annotated[Path, typer.Argument(help="A key file, a card or a trust list.")],
    common: Common,
    issuer: Annotated[
        str | None,
        typer.Option(
            metavar="CARD|KEY", help="Lists: the issuer's card or public key, from elsewhere."
        ),
    ] = None,
    at_least: Annotated[
        int | None, typer.Option(min=1, help="Lists: refuse one with a lower serial.")
    ] = None,
) -> None:
    """Check a key file, a card or a trust list and say what is in it; never a secret."""
    data = files.read(file, LIST_BYTES)
    kind = "key" if data.startswith(PEM_START) else _KINDS.get(format_of(data, str(file)))
    if kind is None:
        raise IdentityError(f"{file} must be a key file, a card or a trust list; it is none")
    if kind == "list":
        _show_list(file, common, issuer, at_least or 1)
        return
    if issuer is not None or at_least is not None:
        raise SettingsError(f"--issuer and --at-least are for trust lists; {file} is a {kind}")
    if kind == "key":
        key = common.open(file)
        facts = {"kind": kind, "key": key.public.hex(), "fingerprint": key.fingerprint}
    else:
        facts = {"kind": kind, **_card_facts(Card.decode(data, str(file)))}
    if common.json:
        print_json(facts)
    else:
        results.print(table(escape(str(file)), ["", "value"], list(map(list, facts.items()))))


@app.command("trust", epilog=_TRUST_EXAMPLE)
@expanded
def trust(
    list_file: ListArgument,
    issuer: KeeperOption,
    terms: ListTerms,
    common: Common,
    cards: Annotated[
        list[Path] | None, typer.Argument(metavar="CARD", help="Who is to be on it.")
    ] = None,
) -> None:
    """Put members on a trust list, or make one; compare fingerprints with them first."""
    keeper, given = common.open(issuer), [Card.read(path) for path in cards or []]
    with files.locked(list_file):
        made = _extended(list_file, given, keeper, terms)
        made.save(list_file)
    added = [f"added {card.name} of {card.site}: {card.fingerprint}" for card in given]
    facts = {"added": [card.name for card in given], **_list_facts(made)}
    common.show(facts, *added, _in_short(list_file, made))


@app.command("revoke", epilog=_REVOKE_EXAMPLE)
@expanded
def revoke(
    list_file: ListArgument,
    who: Annotated[str, typer.Argument(metavar="NAME_OR_KEY", help="Who is to leave it.")],
    issuer: KeeperOption,
    reason: Annotated[str, typer.Option(help="Why; every reader of the list sees it.")],
    common: Common,
) -> None:
    """Take a member off a trust list for ever; parties learn of it with the next list they get."""
    keeper = common.open(issuer)
    with files.locked(list_file):
        made = TrustList.read(list_file, issuer=keeper.public).revoking(who, reason, keeper)
        made.save(list_file)
    gone = made.revoked[-1]
    words = f"revoked {gone.name} of {gone.site}: {fingerprint(gone.key)}"
    facts = {"gone": gone.name, **_list_facts(made)}
    common.show(facts, words, _in_short(list_file, made), "Hand the new list to every party.")


def _extended(path: Path, cards: list[Card], keeper: Identity, terms: ListTerms) -> TrustList:
    """The list with more members; a new one only if it is named, so that a slip makes none."""
    if path.exists():
        old = TrustList.read(path, issuer=keeper.public, federation=terms.federation)
        return old.adding(cards, keeper, most_per_site=terms.most_per_site)
    if terms.federation is None:
        raise SettingsError(f"there is no list at {path}; to make one, name it with --federation")
    limit = terms.most_per_site or 1
    return TrustList.first(terms.federation, cards, keeper, most_per_site=limit)


def _show_list(path: Path, common: Common, issuer: str | None, at_least: int) -> None:
    known = TrustList.inspect(path).issuer if issuer is None else _public_key(issuer)
    found = TrustList.read(path, issuer=known, at_least=at_least)
    if common.json:
        print_json({"kind": "list", "issuer_known": issuer is not None, **_list_facts(found)})
        return
    members = [[one.name, one.site, one.fingerprint] for one in found.members]
    results.print(table(f"{found.federation}: members", ["name", "site", "key"], members))
    if found.revoked:
        gone = [
            [one.name, one.site, fingerprint(one.key), one.since, escape(one.reason)]
            for one in found.revoked
        ]
        results.print(table("revoked", ["name", "site", "key", "since", "reason"], gone))
    common.show({}, _in_short(path, found))
    if issuer is None:
        errors.print(
            "[yellow]Anybody could have signed this list.[/] --issuer checks that it is from the "
            "issuer whose card or key you know from elsewhere.",
            soft_wrap=True,
        )


def _public_key(text: str) -> bytes:
    """The issuer's key, given in hex or by a card."""
    if re.fullmatch("[0-9a-f]{64}", text):
        return bytes.fromhex(text)
    try:
        return Card.read(Path(text)).key
    except IdentityError as error:
        raise IdentityError(
            f"--issuer must be a public key of 64 digits 0-9 a-f, or the file of a card; {error}"
        ) from None


def _card_facts(card: Card) -> dict[str, str]:
    key, mark = card.key.hex(), card.fingerprint
    return {"name": card.name, "site": card.site, "key": key, "fingerprint": mark}


def _list_facts(found: TrustList) -> dict[str, Any]:
    return {
        "federation": found.federation,
        "serial": found.serial,
        "issued": found.issued,
        "most_per_site": found.most_per_site,
        "issuer": found.issuer.hex(),
        "issuer_fingerprint": fingerprint(found.issuer),
        "members": [_card_facts(card) for card in found.members],
        "revoked": [one.fields() for one in found.revoked],
    }


def _in_short(path: Path, found: TrustList) -> str:
    return (
        f"{path}: {found.federation}, serial {found.serial} of {found.issued}, "
        f"{len(found.members)} members (at most {found.most_per_site} per site), "
        f"{len(found.revoked)} revoked, issuer {fingerprint(found.issuer)}"
    )


@contextmanager
def _saying_how() -> Iterator[None]:
    """Add to errors about passphrases how this interface takes one."""
    try:
        yield
    except PassphraseError as error:
        how = f"--passphrase asks for one, unless {_ENVIRONMENT} holds it"
        raise PassphraseError(f"{error} ({how})") from None
