"""A whole federation in one process, with a link that can kill either side at any moment."""

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from fedmmf import checkpoint
from fedmmf.federation import store as stores
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.server import identities_of
from fedmmf.federation.sites import Admission, Sites
from fedmmf.federation.status import Board, FederationStatus
from fedmmf.federation.training import Training
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.server import ServerPlan
from fedmmf.simulation import prepare
from fedmmf.site.process import SiteProcess
from fedmmf.solvers import SOLVERS
from fedmmf.sums.simulated import Group
from fedmmf.wire.messages import Round  # noqa: F401


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
    """

    def __init__(self, folder, ratings, test=0.0):
        self.folder, self.ratings, self.test = folder, ratings, test
        self.server_moments, self.site_moments = Moments(), Moments()
        self.twice, self.is_stale, self._before = False, False, {}
        self.seen, self.away = [], set()
        self.processes, self.lives = {}, []
        self.incidents = []

    def start_site(self, name):
        made = SiteProcess(self.folder, name, self.ratings[name], self.test)
        made._is_welcome, save = True, made._store.save

        def watched(*arguments):
            self.site_moments.pass_by(f"{name} before a write")
            save(*arguments)
            self.site_moments.pass_by(f"{name} after a write")

        made._store.save = watched
        self.processes[name] = made

    # The link, as the server has it

    def is_connected(self, name):
        return name in self.processes and name not in self.away

    def ask(self, topic, questions, timeout):
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
        handler = {"ask": self.processes[name]._answer, "evaluate": self.processes[name]._evaluate}
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
        plan = ServerPlan(charter.training, items.catalogue, 0.0, 0.0, items.features)
        self.greet()
        self.store = store
        return Training(plan, charter, Greeting(self.sites, self), store, self.board)

    def greet(self):
        for name, process in self.processes.items():
            if name not in self.away:
                self.sites.hello(name, process._hello().encode())

    @contextmanager
    def killing_at_writes(self):
        """Let writes to the server's disk be moments too, before and after."""
        write, save = stores._write, checkpoint.save

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
            mock.patch.object(checkpoint, "save", watched(save)),
        ):
            yield

    def run(self):
        """Train; a server that is killed is started again."""
        while True:
            try:
                with self.killing_at_writes():
                    return self.training().run()
            except KilledError:
                self.lives.append(len(self.seen))


class Greeting:
    """Sites that say hello whenever the server looks who is here."""

    def __init__(self, sites, inside):
        self._sites, self._inside = sites, inside

    def __getattr__(self, name):
        if name in ("here", "changes"):
            self._inside.greet()
        return getattr(self._sites, name)


def replayed(journal, ratings, settings, sites):
    """The model that the recorded participants make, worked out without any message."""
    run = prepare(ratings, settings)
    coordinator, (group,) = run.coordinator(), run.groups
    for line in journal:
        coordinator.skip_to(line["round"] - 1)
        round_ = coordinator.next_round()
        coordinator.advance(round_, _sums(run, group, line, sites, round_))
    return coordinator.result


def _sums(run, group, line, sites, round_):
    members, room = (_users(run, sites, line[kind]) for kind in ("parties", "session"))
    solver = SOLVERS[run.settings.solver]
    bounds, ring = solver.bounds(run.training.scale.span), ring_named(solver.ring)
    rows, totals = (FixedPoint(int(room.sum()), b, ring) for b in (bounds.row, bounds.total))
    cohort = replace(group.cohort, members=members, scale=float(rows.scale))
    crowd = replace_groups(run, Group(cohort, members, group.counts, totals))
    return crowd.sums(round_)


def replace_groups(run, group):
    crowd_run = replace(run)
    crowd_run.__dict__["groups"] = [group]
    return crowd_run.crowd(run.coordinator())


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
