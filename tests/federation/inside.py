"""A whole federation in one process, with a link that can kill either side at any moment."""

from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from unittest import mock

import numpy as np

from fedmmf.federation import store as stores
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.server import identities_of
from fedmmf.federation.site.process import SiteProcess
from fedmmf.federation.sites import Admission, Sites
from fedmmf.federation.status import Board, FederationStatus
from fedmmf.federation.training import Training
from fedmmf.masks import FAMILIES, MaskPlan
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.secagg.ring import RING64
from fedmmf.server import ServerPlan
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.vb.party import MAX_MEMBERSHIP_ROUNDS
from fedmmf.solvers.vb.shapes import VbShape
from fedmmf.storage import checkpoints
from fedmmf.wire import Layout


class KilledError(BaseException):
    """kill -9."""


class Moments:
    """Counts moments at which a process could be killed, and kills at one of them."""

    def __init__(self, at=None):
        self.at, self.n, self.names = at, 0, []

    def pass_by(self, name):
        self.n += 1
        self.names.append(name)
        if self.n == self.at:
            raise KilledError(name)


class Inside:
    """Machines as objects; what they keep is on disk, so that they can be made again.

    Attributes:
        server_moments: when the server may be killed.
        site_moments: when a site may be killed.
        twice: whether every message arrives twice.
        is_stale: whether older messages arrive again after newer ones.
        seen: everything that the server sent and received.
        moved: parties that answered each attempt at a round, as their disks have it.
    """

    def __init__(self, folder, ratings, test=0.0):
        self.folder, self.ratings, self.test = folder, ratings, test
        self.server_moments, self.site_moments = Moments(), Moments()
        self.twice, self.is_stale, self._before = False, False, {}
        self.seen, self.away = [], set()
        self.processes, self.lives = {}, []
        self.incidents, self.moved = [], {}
        self._asking, self._is_killed = Lock(), False

    def start_site(self, name):
        made = SiteProcess(self.folder, name, self.ratings[name], self.test)
        made.is_welcome, save = True, made.store.save

        def watched(parties, changed):
            self.site_moments.pass_by(f"{name} before a write")
            save(parties, changed)
            for party in parties:
                self._note_place(party, parties[party].mark)
            self.site_moments.pass_by(f"{name} after a write")

        made.store.save = watched
        self.processes[name] = made

    def _note_place(self, party, mark):
        """Which round a party has on disk as the last that it had a part in."""
        place = mark[-1]
        if place is not None and place[0]:
            self.moved.setdefault(place[0], set()).add(party)

    # The link, as the server has it

    def is_connected(self, name):
        return name in self.processes and name not in self.away

    def ask(self, topic, questions, timeout):
        """Ask sites, one thread after another: a server asks each of them in one of its own."""
        with self._asking:
            if self._is_killed:
                raise KilledError(f"before {topic}")
            try:
                return self._ask(topic, questions)
            except KilledError:
                self._is_killed = True  # with all of its threads
                raise

    def _ask(self, topic, questions):
        self.server_moments.pass_by(f"before {topic}")
        replies = {}
        for name, data in questions.items():
            self.seen.append((name, data))
            reply = self._reply(name, topic, data)
            if reply is not None:
                replies[name] = reply
                self.seen.append((name, reply))
        self.server_moments.pass_by(f"after {topic}")
        return replies

    def _reply(self, name, topic, data):
        if not self.is_connected(name):
            return None
        handler = {"ask": self.processes[name].answer, "evaluate": self.processes[name].evaluate}
        try:
            self.site_moments.pass_by(f"{name} before")
            reply = handler[topic]("server", data)
            if self.twice:
                assert handler[topic]("server", data) == reply
            if self.is_stale and name in self._before:
                handler[topic]("server", self._before[name])  # an older one that took its time
                assert handler[topic]("server", data) == reply
            self._before[name] = data
            self.site_moments.pass_by(f"{name} after")
        except KilledError:
            del self.processes[name]
            self.start_site(name)
            return None
        return reply

    # The server

    def training(self):
        """A server that has just been started."""
        charter, items = self.folder.charter(), ItemList.load(self.folder.catalogue_file)
        self.folder.machine("server").state()
        digests = {"charter": charter.digest.hex(), "catalogue": items.catalogue.digest.hex()}
        store = stores.RunStore(self.folder.machine("server").state(), digests)
        self.board = Board(FederationStatus(federation="test", version="0"), lambda status: None)
        admission = Admission(charter, items.catalogue.digest, identities_of(self.folder))
        self.sites = Sites(self, admission, lambda: None)
        self.plan = plan_of(charter.training, items)
        self.greet()
        self.store = store
        return Training(self.plan, charter, Greeting(self.sites, self), store, self.board)

    def greet(self):
        for name, process in self.processes.items():
            if name not in self.away:
                self.sites.hello(name, process.hello().encode())

    @contextmanager
    def killing_at_writes(self):
        """Let writes to the server's disk be moments too, before and after."""
        write, save = stores._write, checkpoints.save

        def watched(original):
            def made(*args, **kwargs):
                path = str(args[0])
                if "/server/" not in path:
                    return original(*args, **kwargs)
                self.server_moments.pass_by("before a write")
                original(*args, **kwargs)
                self.server_moments.pass_by("after a write")
                return None

            return made

        with (
            mock.patch.object(stores, "_write", watched(write)),
            mock.patch.object(checkpoints, "save", watched(save)),
        ):
            yield

    def run_until(self, rounds):
        """Train, and kill the server before it begins a round with a higher number."""
        going, begin = self.training(), self.store.begin_attempt

        def begun(number):
            if number > rounds:
                raise KilledError(f"before round {number}")
            begin(number)

        self.store.begin_attempt = begun
        with suppress(KilledError):
            going.run()
            raise AssertionError("the training has ended before")

    def run(self):
        """Train; a server that is killed is started again."""
        while True:
            self._is_killed = False
            try:
                with self.killing_at_writes():
                    return self.training().run()
            except KilledError:
                self.lives.append(len(self.seen))


def plan_of(settings, items):
    """What a server plans that has been told of the mask what it has to know."""
    family = FAMILIES[settings.mask]
    return ServerPlan(
        settings=settings,
        catalogue=items.catalogue,
        is_centred=family.is_centred,
        ratings_per_user=None,
        features=MaskPlan(settings.mask).views(items.features),
    )


class Greeting:
    """Sites that say hello whenever the server looks who is here."""

    def __init__(self, sites, inside):
        self._sites, self._inside = sites, inside

    def __getattr__(self, name):
        if name in ("here", "changes"):
            self._inside.greet()
        return getattr(self._sites, name)


@dataclass(frozen=True)
class Kept:
    """What a run is replayed from: all that is on disk about it.

    Attributes:
        journal: lines on finished rounds.
        layout: what is summed.
        n_raters: as the survey counted them. (n_items,)
        ratings_per_user: as the survey has it.
        moved: who answered each attempt, where that is known; None: those whose updates are summed.
    """

    journal: list
    layout: Layout
    n_raters: np.ndarray
    ratings_per_user: float | None
    moved: dict | None = None

    @classmethod
    def of(cls, store, moved=None):
        state, meta = store.load()
        layout = Layout.decode(state["side/layout"].tobytes())
        about = (state["side/n_raters"], meta["ratings_per_user"])
        return cls(list(store.rounds()), layout, *about, moved)

    def movers(self, line):
        return line["parties"] if self.moved is None else self.moved[line["round"]]


def replayed(kept, ratings, settings, sites):
    """The model that the recorded participants make, worked out without any message."""
    run = _prepared(kept, ratings, settings)
    coordinator, crowd = run.coordinator(), _Crowd(run, sites)
    finished = {line["round"]: line for line in kept.journal}
    for number in range(1, max(finished) + 1):
        coordinator.skip_to(number - 1)
        round_ = coordinator.next_round()
        if number in finished:
            line = finished[number]
            coordinator.advance(round_, crowd.sums(round_, line, kept.movers(line)))
        elif kept.moved is not None:
            crowd.move(round_, kept.moved.get(number, ()))  # an attempt without a sum
    return coordinator.result


def _prepared(kept, ratings, settings):
    """The run as its survey has it, which somebody may have missed."""
    run = prepare(ratings, settings)
    run = run.refitted(settings, population=kept.layout.population)
    run = replace(run, layout=kept.layout)
    run.__dict__["plan"] = replace(run.plan, ratings_per_user=kept.ratings_per_user)
    (group,) = run.groups
    counts = kept.n_raters[kept.layout.items]
    cohort = replace(group.cohort, left_out=None)
    run.__dict__["groups"] = [replace(group, cohort=cohort, counts=counts)]
    return run


class _Crowd:
    """All users; those who had no part in a round stay where they are."""

    def __init__(self, run, sites):
        self._run, self._sites, self._state = run, sites, run.parties().state()

    def sums(self, round_, line, movers):
        """What the survivors of a round add up to."""
        members, room = (_users(self._run, self._sites, line[kind]) for kind in WHO)
        assert set(line["parties"]) <= set(movers)
        solver, n_users = SOLVERS[self._run.settings.solver], int(room.sum())
        bounds, ring = solver.bounds(self._run.training.scale.span), ring_named(solver.ring)
        (group,) = self._run.groups
        cohort = replace(
            group.cohort,
            members=members,
            scale=float(FixedPoint(n_users, bounds.row, ring).scale),
            total_scale=float(FixedPoint(n_users, bounds.total, RING64).scale),
        )
        return self._step(round_, replace(group, cohort=cohort, members=members), movers)

    def move(self, round_, movers):
        """An attempt that gave no sum: who answered it has moved all the same."""
        self._step(round_, self._run.groups[0], movers)

    def _step(self, round_, group, movers):
        run, who = replace(self._run), _users(self._run, self._sites, movers)
        looks = self._state.get(MEMBERSHIP_ROUNDS, np.zeros(len(who), int))
        if is_membership_round(
            self._run, round_
        ):  # whoever has been looked at often enough has nothing to say
            may = looks < MAX_MEMBERSHIP_ROUNDS
            group, who = _only(group, may), who & may
            looks = looks + who
        run.__dict__["groups"] = [group]
        crowd = run.parties()
        crowd.restore({**self._state, MEMBERSHIP_ROUNDS: np.zeros_like(looks)})
        sums = crowd.sums(round_)
        after = crowd.state()
        for name, before in self._state.items():
            after[name][~who] = before[~who]
        if MEMBERSHIP_ROUNDS in after:
            after[MEMBERSHIP_ROUNDS] = looks
        self._state = after
        return sums


def is_membership_round(run, round_):
    """Whether a round asks who rated what."""
    update_shape = run.plan.update_shape
    if not isinstance(update_shape, VbShape):
        return False
    return bool(
        update_shape.blocks["parameters"].split(round_.broadcast.parameters)["membership"].any()
    )


def _only(group, who):
    """A group that some have no part in."""
    members = who if group.cohort.members is None else who & group.cohort.members
    return replace(group, cohort=replace(group.cohort, members=members), members=members)


WHO = ("parties", "session")
MEMBERSHIP_ROUNDS = "parties/looks"


def _users(run, sites, parties):
    """Users behind some parties; a site has the users of its place in the order."""
    n, chosen = run.ratings.n_users, np.zeros(run.ratings.n_users, bool)
    for party in parties:
        site, _, number = party.partition("/")
        place = sites.index(site)
        start, end = (n * (place + more) // len(sites) for more in (0, 1))
        if number:
            chosen[start + int(number)] = True
        else:
            chosen[start:end] = True
    return chosen
