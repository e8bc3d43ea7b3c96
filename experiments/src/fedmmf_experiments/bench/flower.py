"""Flower's SecAgg+ as a peer: its own server workflow and client mod, in one process.

Importing this needs flwr, of the version in `bench.secagg`. Messages travel as the bytes that
Flower would send; writing and reading those is not counted against it, nor is any network.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.compat.common import recorddict_compat
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.task_identity import TaskIdentity

from fedmmf.arrays import Array
from fedmmf.secagg import least_threshold

_MAX_WEIGHT = 1000  # Flower's default; all clients weigh this much, so that the mean is plain
_SERVER_NODE = 0


class _Grid:
    """Stands where Flower's network is: carries messages to the clients, and measures."""

    def __init__(
        self, vectors: dict[int, Array], gone: Collection[int], progress: Callable[[int], None]
    ) -> None:
        self._updates = {node: _update(vector) for node, vector in vectors.items()}
        self._contexts = {node: _context(node) for node in vectors}
        self._gone, self._progress, self._answered = gone, progress, 0
        self.survivors: set[int] = set()
        self.inside_s = self.client_s = 0.0
        self.up_bytes = self.down_bytes = 0.0  # of a mean client

    def send_and_receive(self, messages: Iterable[Any], timeout: float | None = None) -> list[Any]:
        """Bring each message to its client and return the answers (Flower's interface)."""
        start = process_time()
        messages = list(messages)
        stage = messages[0].content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
        if stage == Stage.COLLECT_MASKED_VECTORS:
            messages = [m for m in messages if m.metadata.dst_node_id not in self._gone]
            self.survivors = {message.metadata.dst_node_id for message in messages}
        replies = [self._exchange(message, 1 / len(messages)) for message in messages]
        self.inside_s += process_time() - start
        return replies

    def _exchange(self, message: Any, share: float) -> Any:
        down = message_to_proto(message).SerializeToString()
        arrived = message_from_proto(MessageProto.FromString(down))
        start = process_time()
        reply = self._answer(arrived)
        self.client_s += share * (process_time() - start)
        up = message_to_proto(reply).SerializeToString()
        self.down_bytes += share * len(down)
        self.up_bytes += share * len(up)
        self._answered += 1
        self._progress(self._answered)
        return message_from_proto(MessageProto.FromString(up))

    def _answer(self, message: Any) -> Any:
        node = message.metadata.dst_node_id

        def train(message: Any, context: Any) -> Any:
            return Message(self._updates.pop(node), reply_to=message)

        try:
            return secaggplus_mod(message, self._contexts[node], train)
        except ValueError as error:  # a client below its threshold; Flower's runtime does the same
            return Message(Error(code=0, reason=str(error)), reply_to=message)


class _Strategy:
    """Asks all clients and keeps what secure aggregation made of their vectors."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = list(nodes)
        self.mean: Array | None = None

    def configure_fit(self, number: int, parameters: Any, manager: Any) -> list[Any]:
        instructions = FitIns(parameters, {})
        return [(SimpleNamespace(node_id=node), instructions) for node in self._nodes]

    def aggregate_fit(self, number: int, results: Any, failures: Any) -> tuple[Any, dict[str, Any]]:
        parameters = results[0][1].parameters  # the workflow gave all results the same
        self.mean = parameters_to_ndarrays(parameters)[0]
        return parameters, {}


def shares_for(n: int, neighbours: int) -> int:
    """Return Flower's number of shares: itself and its neighbours, odd unless it is everybody."""
    holders = neighbours + 1
    return holders if holders == n or holders % 2 else holders - 1


def measure(
    n: int,
    length: int,
    neighbours: int,
    gone: Collection[int],
    progress: Callable[[int], None] = lambda answers: None,
) -> dict[str, Any]:
    """Run a round and return its cost; `max_error` is None where Flower gave the round up.

    Args:
        n: clients, numbered from 0.
        length: entries of a vector.
        neighbours: of each client; Flower takes an even number, the next below if need be.
        gone: clients that drop out when masked vectors are collected.
        progress: called with the number of answers so far, of at most 4 n.
    """
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, _SERVER_NODE
    vectors = {node: _vector(length) for node in range(1, n + 1)}
    grid = _Grid(vectors, {client + 1 for client in gone}, progress)
    strategy, shares = _Strategy(vectors), shares_for(n, neighbours)
    threshold = least_threshold(shares)
    workflow: Any = SecAggPlusWorkflow(shares, threshold, max_weight=float(_MAX_WEIGHT))
    context = _server_context(strategy)
    began, start = perf_counter(), process_time()
    workflow(grid, context)
    server_s = process_time() - start - grid.inside_s
    return {
        "neighbours": shares - 1,
        "threshold": threshold,
        "server_cpu_s": server_s,
        "client_cpu_s": grid.client_s,
        "seconds": perf_counter() - began,
        "up_bytes_per_party": grid.up_bytes,
        "down_bytes_per_party": grid.down_bytes,
        "max_error": _max_error(strategy.mean, [vectors[node] for node in grid.survivors]),
    }


def shamir_seconds(n: int, threshold: int) -> tuple[float, float]:
    """Return the CPU seconds of sharing a 32-byte secret among n and of combining it."""
    start = process_time()
    shares = create_shares(os.urandom(32), threshold, n)
    middle = process_time()
    combine_shares(shares[:threshold])
    return middle - start, process_time() - middle


def _vector(length: int) -> Array:
    return np.frombuffer(os.urandom(length), np.uint8) / 255 - 0.5


def _update(vector: Array) -> Any:
    parameters = ndarrays_to_parameters([vector])
    result = FitRes(Status(Code.OK, ""), parameters, _MAX_WEIGHT, {})
    return recorddict_compat.fitres_to_recorddict(result, keep_input=False)


def _context(node: int) -> Any:
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


def _server_context(strategy: Any) -> Any:
    context = LegacyContext(context=_context(_SERVER_NODE), strategy=strategy)
    nothing = ndarrays_to_parameters([np.zeros(1)])  # the model that clients would start from
    record = recorddict_compat.parameters_to_arrayrecord(nothing, keep_input=True)
    context.state.array_records[MAIN_PARAMS_RECORD] = record
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    return context


def _max_error(mean: Array | None, vectors: list[Array]) -> float | None:
    return None if mean is None else float(np.abs(mean - np.mean(vectors, axis=0)).max())
