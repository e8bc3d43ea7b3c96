"""`fedmmf federation`: a real one, across machines."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, main_thread
from types import FrameType
from typing import Annotated, Any, Literal, Protocol

import typer

from fedmmf.cli import interrupts
from fedmmf.cli.choices import JsonOption, UnusedSeedOption, parse_scale
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import duration, errors, plain, print_json, results, shown, size, table
from fedmmf.cli.printable import printable
from fedmmf.errors import FedMMFError, SettingsError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter, Network
from fedmmf.federation.folder import Folder, only_process
from fedmmf.federation.operator import Operator
from fedmmf.federation.provision import Handout, add_site, provision
from fedmmf.federation.status import FederationStatus
from fedmmf.reports.list_scores import RecommendedList
from fedmmf.reports.results import REAL
from fedmmf.settings import Settings

app = typer.Typer(
    help="Run a real federation across machines: init, server, site, run, status.",
    no_args_is_help=True,
)
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the federation.")]
ReadyOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object when it is ready.")
]
SiteOption = Annotated[str, typer.Option("--site", help="Name of the site.")]


_LAST_SECONDS = 3.0  # for threads to end by themselves, after an error was shown


class Serving(Protocol):
    """A process that serves until `stop` is called."""

    def serve(self) -> None:
        """Serve until `stop` is called."""

    def stop(self) -> None:
        """Ask `serve` to return soon."""


@dataclass(frozen=True)
class Making:
    """Options that describe a new federation."""

    sites: Annotated[
        str, typer.Option(help="Names of the sites, with commas between: a,b,c,d.")
    ] = ""
    items: Annotated[
        str | None,
        typer.Option(help="File with item_id, title and features, or a data set's name."),
    ] = None
    add: Annotated[str, typer.Option(help="Add one site to the federation in DIR.")] = ""
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "federation"
    host: Annotated[str, typer.Option(help="Name or address of the server.")] = Network().host
    port: Annotated[int, typer.Option(help="Where it listens for sites.")] = Network().port
    page_port: Annotated[int, typer.Option(help="Where its page is.")] = Network().page_port
    party: Annotated[
        Literal["site", "user"],
        typer.Option(help="Who is a party of secure sums: a site for its users, or every user."),
    ] = "site"
    max_parties_per_site: Annotated[
        int | None, typer.Option(help="With --party user: the most users that one site has.")
    ] = None
    scale: Annotated[
        Any, typer.Option(help="Rating scale.", metavar="MIN:MAX[:STEP]", parser=parse_scale)
    ] = None


_DEFAULTS = Settings.checked(solver="vb", mask="lr")
_TRAINING = ("solver", "mask", "factors", "rounds", "sharing", "smallest_cohort", "seed")


@expanded
def init(
    folder: FolderArgument,
    making: Making,
    settings: Annotated[Settings, Only(*_TRAINING)] = _DEFAULTS,
    json: JsonOption = False,
) -> None:
    """Make a federation: settings, catalogue, certificates, identities; or add a site to it."""
    place = Folder(folder)
    handed = add_site(place, making.add) if making.add else _made(place, making, settings)
    if json:
        print_json({"folder": str(folder), "handouts": {h.machine: h.files for h in handed}})
        return
    _show_handouts(place, handed)
    if making.add:
        results.print(
            "Give everybody else the new federation.toml and trust.json, and start the server and "
            "all sites again with them: they refuse each other while their copies differ."
        )


def _made(place: Folder, making: Making, settings: Settings) -> list[Handout]:
    from fedmmf.federation.site.items import item_list

    if not making.sites or not making.items:
        raise SettingsError("a new federation needs --sites a,b,c and --items FILE")
    items = item_list(making.items, making.scale)
    is_signed = making.party == "site" and settings.sharing == "strict"
    charter = Charter.checked(
        name=making.name,
        sites=tuple(name.strip() for name in making.sites.split(",")),
        party=making.party,
        max_parties_per_site=making.max_parties_per_site,
        scale=(items.scale.min, items.scale.max, items.scale.step),
        network={"host": making.host, "port": making.port, "page_port": making.page_port},
        training=settings.changed(signed=is_signed, mask=_mask_for(items, settings.mask)),
    )
    return provision(place, charter, items)


def _mask_for(items: ItemList, mask: str) -> str:
    """Return a mask that the catalogue's features allow."""
    from fedmmf.masks import FAMILIES

    if items.features.shape[1] or not FAMILIES[mask].needs_features:
        return mask
    errors.print(f"the items have no features, which the mask {mask} needs; mean is used instead")
    return "mean"


def _show_handouts(place: Folder, handed: list[Handout]) -> None:
    rows = [[h.machine, ", ".join(h.files)] for h in handed]
    results.print(table(f"Hand these files of {place.root} to", ["machine", "files"], rows))
    results.print(
        f"Read {plain(place.charter_file)} and change what you like, before you hand it out.\n"
        f"Each machine's own folder has its secret keys: over a safe way, and to nobody else.\n"
        f"{plain(place.keeper)} stays here: whoever has it can let anybody in."
    )


def server(folder: FolderArgument, json: ReadyOption = False, seed: UnusedSeedOption = 0) -> None:
    """Run the server: let sites in, train when told to, show a page."""
    from fedmmf.federation.server import Server
    from fedmmf.masks import FAMILIES

    place = Folder(folder)
    family = FAMILIES[place.charter().training.mask]
    state = place.machine("server").state()
    with only_process(state), _ending_with_the_process():
        _log_to(state / "server.log")
        about = {"is_centred": family.is_centred, "sees_features": family.needs_features}
        running = Server(place, **about)
        _say_ready(place, running.page_url, json=json)
        _serve(running)


def _say_ready(place: Folder, url: str, *, json: bool) -> None:
    page = url.partition("?")[0]  # a token does not belong in a log
    errors.print(f"server of {plain(place.charter().name)}: {plain(page)}", highlight=False)
    if json:
        print_json({"federation": place.charter().name, "page": page})


def site(
    folder: FolderArgument,
    site: SiteOption,
    ratings: Annotated[
        Path | None, typer.Option(help="Ratings of the site's users; kept, so once is enough.")
    ] = None,
    test: Annotated[
        float, typer.Option(help="Share of the ratings kept for `federation evaluate`.")
    ] = 0.1,
    json: ReadyOption = False,
    seed: UnusedSeedOption = 0,
) -> None:
    """Run a site: its users' ratings take part, and stay here."""
    from fedmmf.federation.site.process import SiteProcess

    os.umask(0o077)  # only the owner may read what this process writes
    place = Folder(folder)
    if site not in place.charter().sites:
        known = ", ".join(place.charter().sites)
        raise SettingsError(f"this federation has no site {site!r}; its sites are {known}")
    state = place.machine(site).state()
    with only_process(state), _ending_with_the_process():
        _log_to(state / "site.log")
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # it repeats that nobody is there
        running = SiteProcess(place, site, ratings, test)
        if json:
            print_json({"site": site, "parties": len(running.site.parties), **running.held})
        _serve(running)


def run(
    folder: FolderArgument,
    wait: Annotated[bool, typer.Option(help="Wait for the end of the training.")] = True,
    json: JsonOption = False,
    seed: UnusedSeedOption = 0,
) -> None:
    """Train, and show how far it is; Ctrl-C leaves the server training."""
    operator = Operator(Folder(folder))
    operator.order("run")
    status = _followed(operator, is_quiet=json) if wait else operator.status()
    if json:
        print_json(status.model_dump())
    else:
        _show(status)
    if status.state in ("failed", "stopped"):
        raise FedMMFError(status.detail)


def _followed(operator: Operator, *, is_quiet: bool) -> FederationStatus:
    """Wait until training is over, with a line for every round."""
    shown_round = -1
    while True:
        status = operator.status()
        if status.round != shown_round and not is_quiet:
            left = (
                ""
                if status.seconds_left is None
                else f", about {duration(status.seconds_left)} left"
            )
            here = sum(site.state == "here" for site in status.sites)
            errors.print(f"round {status.round} of {status.rounds}, {here} sites here{left}")
            shown_round = status.round
        if status.state in ("finished", "failed", "stopped"):
            return status
        time.sleep(0.2)


def status(folder: FolderArgument, json: JsonOption = False, seed: UnusedSeedOption = 0) -> None:
    """Show round, sites, drop-outs and refusals, traffic, time left, and what the server sees."""
    found = Operator(Folder(folder)).status()
    if json:
        print_json(found.model_dump())
    else:
        _show(found)


def _show(found: FederationStatus) -> None:
    rows = [
        [
            site.name,
            site.state,
            f"{site.users:,}",
            str(site.rounds),
            str(site.drop_outs),
            size(site.up_bytes),
            size(site.down_bytes),
            site.trouble,
        ]
        for site in found.sites
    ]
    titles = ["site", "is", "users", "rounds", "dropped", "up", "down", "last trouble"]
    results.print(f"[bold]{plain(found.federation)}[/]: {found.state}. {plain(found.sentence)}")
    results.print(table(f"round {found.round} of {found.rounds}", titles, rows))
    held_out = [value for value in found.held_out if value is not None]
    if held_out:
        results.print(f"held-out RMSE {shown(held_out[-1])}")
    if found.evaluation is not None:
        results.print(f"test RMSE {shown(found.evaluation.rmse)} over all sites")
    for line in found.protection:
        results.print(plain(line), highlight=False)


def evaluate(folder: FolderArgument, json: JsonOption = False, seed: UnusedSeedOption = 0) -> None:
    """Test the model on every site's own test ratings; only a secure sum over sites leaves them."""
    found = Operator(Folder(folder)).order("evaluate")
    if json:
        print_json({"run_kind": REAL, **found})
        return
    rows = [["RMSE", shown(found["rmse"])], ["MAE", shown(found["mae"])]]
    rows += [["ratings", f"{found['n_ratings']:,}"], ["sites", ", ".join(found["sites"])]]
    rows += [[f"{name} said nothing", reason] for name, reason in found["declined"].items()]
    results.print(table(f"{REAL}\nErrors on the sites' own test ratings", ["", "value"], rows))


@dataclass(frozen=True)
class SiteRecipients:
    """Options for whom a site recommends to, and how many items."""

    user: Annotated[
        list[str] | None, typer.Option("--user", help="One of the site's users; again for more.")
    ] = None
    users: Annotated[
        Path | None, typer.Option(help="File of users: an id a line, or a column user_id.")
    ] = None
    n: Annotated[int, typer.Option("-n", min=1, help="How many items.")] = 10

    def ids(self) -> list[str]:
        """Ids of the users to recommend to."""
        from fedmmf.cli.recommend import read_ids

        if bool(self.user) == bool(self.users):
            raise SettingsError("give one of --user ID and --users FILE")
        return self.user or [] if self.users is None else read_ids(self.users, "user_id")


@expanded
def recommend(
    folder: FolderArgument,
    site: SiteOption,
    wanted: SiteRecipients,
    json: JsonOption = False,
    seed: UnusedSeedOption = 0,
) -> None:
    """Recommend items to users of a site, on that site; nothing is sent."""
    from fedmmf.federation.site.serving import SiteModel

    ids = wanted.ids()
    model = SiteModel(Folder(folder), site)  # read once: it takes longer than many lists
    found = [model.recommend(name, wanted.n) for name in ids]
    if json:
        lists = [one.to_json_dict() for one in found]
        print_json(lists[0] if len(lists) == 1 and wanted.users is None else {"lists": lists})
        return
    for one in found:
        _show_list(one, site)


def _show_list(one: RecommendedList, site: str) -> None:
    rows = [
        [str(item.item_id), item.title or "", shown(item.prediction, ".2f")]
        for item in one.recommendations
    ]
    results.print(table(f"For user {one.user} of {site}", ["item", "title", "prediction"], rows))


def _serve(process: Serving) -> None:
    """Serve until Ctrl-C or the machine's shutdown, and then end in order."""
    signals: list[int] = []

    def ended(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        process.stop()

    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    process.serve()
    if signal.SIGINT in signals:
        raise KeyboardInterrupt


@contextmanager
def _ending_with_the_process() -> Iterator[None]:
    """Where an error ends this process, let no thread of the network keep it and its ports."""
    try:
        yield
    except BaseException as error:
        is_interrupt = isinstance(error, KeyboardInterrupt)
        code = interrupts.CODE if is_interrupt else getattr(error, "exit_code", 1)
        Thread(target=_end_after_main, args=(code,), daemon=True).start()
        raise


def _end_after_main(code: int) -> None:
    """End the process with a code; Python would wait for ever for the network's threads."""
    main_thread().join()
    time.sleep(_LAST_SECONDS)
    os._exit(code)


class PrintableFormatter(logging.Formatter):
    """Log formatter that replaces control characters, since others may choose parts of a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record, with control characters replaced."""
        return printable(super().format(record))


def _log_to(path: Path) -> None:
    """Write the log to a file and to standard error; of NVFlare's, what went wrong alone."""
    formatter = PrintableFormatter("%(asctime)s %(levelname)s %(message)s")
    handlers: list[logging.Handler] = [logging.StreamHandler(), logging.FileHandler(path)]
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)
    logging.getLogger("fedmmf").setLevel(logging.INFO)


for command, example in (
    (init, "fedmmf federation init demo --sites a,b,c,d --items items.csv"),
    (server, "fedmmf federation server demo"),
    (site, "fedmmf federation site demo --site a --ratings a.parquet"),
    (run, "fedmmf federation run demo"),
    (status, "fedmmf federation status demo --json"),
    (evaluate, "fedmmf federation evaluate demo"),
    (recommend, "fedmmf federation recommend demo --site a --user 42 -n 10"),
):
    app.command(command.__name__, epilog=f"Example: {example}")(command)
