"""Everything that may be wrong with a message, and the answer each of them gets."""

import pytest
from oracle import (
    answer,
    boxed,
    checked,
    finish,
    identity_of,
    make_clients,
    make_setup,
    make_values,
    plain_sum,
    run,
)

from fedmmf.errors import DataError, WireError
from fedmmf.secagg import (
    PRIME61,
    BelowThresholdError,
    PolicyError,
    Receipt,
    RoundClient,
    RoundError,
    RoundServer,
    SecAggError,
    SessionClient,
    Stage,
    keys,
    messages,
)
from fedmmf.secagg.framing import HEADER_BYTES, frame
from fedmmf.secagg.keys import KeyPair
from fedmmf.secagg.setup import SERVER

STAGES = [Stage.ADVERTISE, Stage.SHARE_KEYS, Stage.MASKED_INPUT, Stage.CONFIRM, Stage.UNMASK]
LATER = STAGES[1:]
SIGNED = make_setup(active=True)


def at(stage, **options):
    """Return setup, server, one party, its client and the data it is to answer at a stage."""
    setup = make_setup(active=True, **options)
    server, sent, clients = run(setup, until=stage)
    party = setup.parties[1]
    return setup, server, party, clients, sent


@pytest.mark.parametrize("stage", LATER)
@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda data: data[:10], "needs 42 bytes"),
        (lambda data: checked(SIGNED, data[:-1]), "bytes"),
        (lambda data: checked(SIGNED, data + b"\0"), "bytes"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged"),
        (lambda data: data[:26] + bytes([data[26] ^ 1]) + data[27:], "damaged"),
        (lambda data: b"XXXX" + data[4:], "not a message of this protocol"),
        (lambda data: data[:4] + b"\x09" + data[5:], "not a message of this protocol"),
        (lambda data: data[:5] + b"\x01" + data[6:], "was due"),
        (lambda data: data[:6] + bytes(16) + data[22:], "another round"),
        (lambda data: data[:22] + bytes(4) + data[26:], "claims to come from party 0"),
    ],
)
def test_a_client_refuses_what_is_malformed_and_still_takes_what_is_right(stage, break_it, reason):
    setup, server, party, clients, sent = at(stage)
    values = make_values(setup)
    with pytest.raises(SecAggError, match=f"the server refused: .*{reason}"):
        answer(clients[party], stage, break_it(sent[party]), values[party])
    total = finish(server, sent, clients, values)
    assert total.tolist() == plain_sum(setup, values, setup.parties)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("spoil", ["cut", "long", "sender", "round", "kind", "magic", "damaged"])
def test_a_server_refuses_what_is_malformed_names_the_party_and_goes_on(stage, spoil):
    setup, server, party, clients, sent = at(stage)
    values = make_values(setup)
    if stage is Stage.ADVERTISE:
        sent, clients = dict.fromkeys(setup.parties, b""), make_clients(setup)
    right = answer(clients[party], stage, sent[party], values[party])
    wrong = {
        "cut": checked(setup, right[:-3]),
        "long": checked(setup, right + b"\0\0\0"),
        "damaged": right[:-1] + bytes([right[-1] ^ 1]),
        "sender": right[:22] + (99).to_bytes(4, "little") + right[26:],
        "round": right[:6] + bytes(16) + right[22:],
        "kind": right[:5] + b"\x02" + right[6:],
        "magic": b"Y" + right[1:],
    }[spoil]
    with pytest.raises(SecAggError, match=f"party {party} refused") as caught:
        server.receive(party, wrong)
    assert isinstance(caught.value, WireError)
    assert caught.value.sender == caught.value.blamed == party
    assert server.receive(party, right) is Receipt.ACCEPTED
    others = {p: data for p, data in sent.items() if p != party}
    for other, data in others.items():
        server.receive(other, answer(clients[other], stage, data, values[other]))
    total = server.result() if stage is Stage.UNMASK else None
    if total is None:
        total = finish(server, server.next_messages(), clients, values)
    assert total.tolist() == plain_sum(setup, values, setup.parties)


@pytest.mark.parametrize("stage", STAGES)
def test_duplicates_are_refused_and_late_messages_ignored(stage):
    setup, server, party, clients, sent = at(stage)
    values = make_values(setup)
    if stage is Stage.ADVERTISE:
        sent, clients = dict.fromkeys(setup.parties, b""), make_clients(setup)
    replies = {p: answer(clients[p], stage, data, values[p]) for p, data in sent.items()}
    late = setup.parties[-1]
    for other in setup.parties[:-1]:
        server.receive(other, replies[other])
    with pytest.raises(SecAggError, match="duplicate"):
        server.receive(party, replies[party])
    if stage is Stage.UNMASK:
        total, alive = server.result(), setup.parties
        assert server.receive(late, replies[late]) is Receipt.LATE
    else:
        sent = server.next_messages()
        assert server.receive(late, replies[late]) is Receipt.LATE
        sent.pop(late, None)
        total = finish(server, sent, clients, values)
        alive = setup.parties[:-1] if stage < Stage.CONFIRM else setup.parties
    assert total.tolist() == plain_sum(setup, values, alive)


def masked(setup, vector):
    """A message with this vector, and a signature where there must be one."""
    return messages.Masked(vector, signature=bytes(64 * setup.active))


def test_messages_out_of_order_are_refused_by_both_sides():
    setup, server, party, clients, sent = at(Stage.SHARE_KEYS)
    early = masked(setup, make_values(setup)[party]).encode(setup, party)
    with pytest.raises(SecAggError, match="out of turn: 'share keys' is due"):
        server.receive(party, early)
    with pytest.raises(RoundError, match="out of turn"):
        clients[party].unmask(sent[party])
    with pytest.raises(RoundError, match="out of turn"):
        clients[party].advertise()


def test_strangers_and_dropped_parties_are_refused_by_the_server():
    setup = make_setup(n=5)
    drops = {setup.parties[0]: Stage.SHARE_KEYS}
    server, _, _ = run(setup, drops=drops, until=Stage.MASKED_INPUT)
    vector = masked(setup, make_values(setup)[setup.parties[0]])
    with pytest.raises(SecAggError, match="dropped out"):
        server.receive(setup.parties[0], vector.encode(setup, setup.parties[0]))
    with pytest.raises(SecAggError, match="not in the cohort"):
        server.receive(999, vector.encode(setup, 999))


def test_a_second_masked_input_is_refused():
    setup, _, party, clients, sent = at(Stage.MASKED_INPUT)
    values = make_values(setup)[party]
    clients[party].masked_input(sent[party], values)
    with pytest.raises(RoundError, match="masked_input is out of turn"):
        clients[party].masked_input(sent[party], values + values)


def test_a_message_of_another_round_is_refused_by_both_sides():
    _, server, party, clients, _ = at(Stage.UNMASK)
    _, _, _, others, other_sent = at(Stage.UNMASK, round_id=b"another")
    with pytest.raises(SecAggError, match="another round"):
        clients[party].unmask(other_sent[party])
    with pytest.raises(SecAggError, match="another round"):
        server.receive(party, others[party].unmask(other_sent[party]))


def boxes_with(setup, party, sent, **changed):
    """What a party is sent, with other boxes from some senders."""
    boxes = dict(messages.Boxes.decode(setup, SERVER, sent[party]).boxes)
    boxes |= {int(sender.removeprefix("of_")): box for sender, box in changed.items()}
    return sent | {party: messages.Boxes(boxes).encode(setup, SERVER)}


def complaints_after(setup, server, sent, clients):
    """Finish a round with these boxes; its sum is right all the same."""
    values = make_values(setup)
    total = finish(server, sent, clients, values)
    assert total.tolist() == plain_sum(setup, values, setup.parties)
    return {owner: len(holders) for owner, holders in server.complaints.items()}


def test_a_box_of_another_round_does_not_open():
    """Even if the frame is forged: the round is bound into key and associated data."""
    setup, server, party, clients, sent = at(Stage.MASKED_INPUT)
    other_setup, _, _, _, other = at(Stage.MASKED_INPUT, round_id=b"another")
    old = messages.Boxes.decode(other_setup, SERVER, other[party]).boxes
    sent = boxes_with(setup, party, sent, of_1=old[1])
    assert complaints_after(setup, server, sent, clients) == {1: 1}


@pytest.mark.parametrize("at_byte", [0, 40, 81, 82, 97, 98, 113])
def test_a_garbage_box_costs_its_receiver_nothing_and_its_sender_is_complained_of(at_byte):
    setup, server, party, clients, sent = at(Stage.MASKED_INPUT)
    forged = bytearray(messages.Boxes.decode(setup, SERVER, sent[party]).boxes[1].packed)
    forged[at_byte] ^= 1
    sent = boxes_with(setup, party, sent, of_1=messages.Box(bytes(forged)))
    assert complaints_after(setup, server, sent, clients) == {1: 1}


def test_a_share_outside_the_field_is_complained_of_and_never_passed_on():
    """The server would refuse them later, from the holder instead of from who made them."""
    setup, server, party, clients, sent = at(Stage.MASKED_INPUT)
    box = boxed(clients[1], clients[party], b"\xff" * 66)
    sent = boxes_with(setup, party, sent, of_1=box)
    assert complaints_after(setup, server, sent, clients) == {1: 1}


def test_a_box_for_somebody_else_does_not_open():
    setup, server, party, clients, sent = at(Stage.MASKED_INPUT, n=7)
    boxes = messages.Boxes.decode(setup, SERVER, sent[party]).boxes
    sent = boxes_with(setup, party, sent, of_1=boxes[7], of_7=boxes[1])
    assert complaints_after(setup, server, sent, clients) == {1: 1, 7: 1}


def request(setup, survivors, dropped):
    return messages.Request(frozenset(survivors), frozenset(dropped)).encode(setup, SERVER)


@pytest.mark.parametrize(
    ("survivors", "dropped", "reason"),
    [
        ([1, 4, 7, 10, 13], [7], r"both shares of parties \[7\]"),
        ([1, 4], [7, 10, 13], "only 2 survivors"),
        ([1, 7, 10, 13], [4], "own vector"),
        ([1, 4, 7, 10], [], "leaves the state of parties"),
    ],
)
def test_a_party_refuses_requests_that_would_undo_the_masks(survivors, dropped, reason):
    setup = make_setup(n=5)
    server, sent, clients = run(setup, until=Stage.UNMASK)
    with pytest.raises(SecAggError, match=reason):
        clients[4].unmask(request(setup, survivors, dropped))
    server.receive(4, clients[4].unmask(sent[4]))


def test_a_party_never_reveals_both_shares_across_requests():
    setup = make_setup(n=5)
    _, sent, clients = run(setup, until=Stage.UNMASK)
    clients[4].unmask(sent[4])
    with pytest.raises(RoundError, match="out of turn"):
        clients[4].unmask(request(setup, [1, 4, 7, 10], [13]))


def test_strangers_in_a_request_are_refused():
    setup = make_setup(n=5)
    drops = {1: Stage.SHARE_KEYS}
    _, _, clients = run(setup, drops=drops, until=Stage.UNMASK)
    with pytest.raises(SecAggError, match=r"strangers: \[1\]"):
        clients[4].unmask(request(setup, [4, 7, 10, 13], [1]))
    with pytest.raises(SecAggError, match=r"strangers: \[1\]"):
        clients[4].unmask(request(setup, [1, 4, 7, 10, 13], []))


def test_too_few_or_unknown_or_repeated_keys_are_refused():
    setup = make_setup(n=7, neighbours=4, graph_seed=b"s")
    _, sent, clients = run(setup, until=Stage.SHARE_KEYS)
    given = dict(messages.Keys.decode(setup, SERVER, sent[1]).keys)
    first = min(given)
    stranger = next(p for p in setup.parties[1:] if p not in given)
    for wrong, reason in (
        ({first: given[first]}, "only 2 holders are left; 3 are needed"),
        (given | {stranger: given[first]}, "strangers"),
        (given | {max(given): given[first]}, "two public keys are the same"),
        (given | {first: messages.Advertise(bytes(32), given[first].mask)}, "not a proper point"),
    ):
        with pytest.raises(SecAggError, match=reason):
            clients[1].share_keys(messages.Keys(wrong).encode(setup, SERVER))
    clients[1].share_keys(sent[1])


def test_a_server_refuses_useless_and_copied_keys():
    setup = make_setup()
    server = RoundServer(setup)
    good = make_clients(setup)[1].advertise()
    server.receive(1, good)
    copied = frame(setup, 1, 4, good[HEADER_BYTES:])
    for data, reason in (
        (copied, "not two new ones"),
        (messages.Advertise(bytes(32), bytes(32)).encode(setup, 4), "not a proper point"),
    ):
        with pytest.raises(SecAggError, match=reason):
            server.receive(4, data)


def test_shares_and_entries_out_of_range_are_refused():
    setup = make_setup(ring=PRIME61)
    server, sent, clients = run(setup, until=Stage.MASKED_INPUT)
    vector = make_values(setup)[1]
    vector[3] = PRIME61.modulus
    with pytest.raises(SecAggError, match="entries must be below"):
        server.receive(1, messages.Masked(vector).encode(setup, 1))
    with pytest.raises(DataError, match="below the modulus"):
        clients[1].masked_input(sent[1], vector)
    body = b"\x01\0\0\0" + b"\xff" * 33
    with pytest.raises(SecAggError, match="not an element of the field"):
        messages.Revealed.decode(setup, 1, frame(setup, 9, 1, body))
    with pytest.raises(SecAggError, match="beyond the cohort"):
        messages.Survivors.decode(setup, SERVER, frame(setup, 6, SERVER, b"\xff"))
    doubled = messages.Boxes.decode
    record = b"\x01\0\0\0" + bytes(messages.BOX_BYTES)
    with pytest.raises(SecAggError, match="must increase"):
        doubled(setup, SERVER, frame(setup, 4, SERVER, record + record))


def test_boxes_and_shares_for_the_wrong_parties_are_refused_by_the_server():
    setup = make_setup()
    server, _, _ = run(setup, until=Stage.SHARE_KEYS)
    box = messages.Box(bytes(messages.BOX_BYTES))
    wrong = messages.Shares(bytes(32), {4: box}).encode(setup, 1)
    with pytest.raises(SecAggError, match="boxes must be for its 4 neighbours"):
        server.receive(1, wrong)
    setup = make_setup(n=7, neighbours=4, graph_seed=b"s")
    server, _, _ = run(setup, until=Stage.UNMASK)
    far = next(p for p in setup.parties if p not in setup.holders(1))
    with pytest.raises(SecAggError, match="shares must be of its 5 owners"):
        server.receive(1, messages.Revealed({far: 5}).encode(setup, 1))


class TestActive:
    def test_keys_without_the_right_signature_are_refused_by_both_sides(self):
        setup, _, party, clients, sent = at(Stage.SHARE_KEYS)
        given = dict(messages.Keys.decode(setup, SERVER, sent[party]).keys)
        pair = KeyPair.from_secret(bytes(range(32)))
        given[1] = messages.Advertise(pair.public, given[1].mask, given[1].signature)
        with pytest.raises(SecAggError, match="party 1 refused: the signature"):
            clients[party].share_keys(messages.Keys(given).encode(setup, SERVER))
        with pytest.raises(SecAggError, match="party 1 refused: the signature"):
            RoundServer(setup).receive(1, given[1].encode(setup, 1))

    def test_a_signature_over_another_set_is_refused_by_the_server(self):
        setup, server, party, _, _ = at(Stage.CONFIRM)
        signature = keys.sign(identity_of(party), b"survivors", setup.context, b"other")
        with pytest.raises(SecAggError, match="signature over the survivors"):
            server.receive(party, messages.Confirmed(signature).encode(setup, party))

    def test_a_server_that_shows_two_sets_gets_nothing(self):
        """One half is told that party 13 survived, the other that it dropped out."""
        setup, _, _, clients, _ = at(Stage.CONFIRM)
        everybody, fewer = frozenset(setup.parties), frozenset(setup.parties[:-1])
        signatures = {}
        for party in setup.parties:
            shown = fewer if party in (1, 4) else everybody
            data = clients[party].confirm(messages.Survivors(shown).encode(setup, SERVER))
            signatures[party] = messages.Confirmed.decode(setup, party, data).signature
        for party, shown in ((1, fewer), (7, everybody)):
            agreed = {p: s for p, s in signatures.items() if (p in (1, 4)) == (party == 1)}
            for chosen, reason in ((agreed, "signed; 4 are needed"), (signatures, "not valid")):
                data = messages.Request(shown, everybody - shown, chosen).encode(setup, SERVER)
                with pytest.raises(SecAggError, match=reason):
                    clients[party].unmask(data)

    def test_another_set_than_the_signed_one_is_refused(self):
        setup, _, party, clients, _ = at(Stage.UNMASK)
        fewer = frozenset(setup.parties[:-1])
        data = messages.Request(fewer, frozenset(setup.parties[-1:])).encode(setup, SERVER)
        with pytest.raises(SecAggError, match="not the survivors this party signed"):
            clients[party].unmask(data)

    def test_a_party_needs_its_own_identity(self):
        setup = make_setup(active=True)
        for kind in (RoundClient, SessionClient):
            for identity in (None, identity_of(4)):
                with pytest.raises(PolicyError, match="identity must be"):
                    kind(setup, 1, identity=identity)
            with pytest.raises(PolicyError, match="32 bytes; got 5"):
                kind(setup, 1, identity=b"short")
            with pytest.raises(PolicyError, match="not in the cohort"):
                kind(setup, 2, identity=identity_of(2))

    def test_signatures_that_decide_nothing_for_a_party_are_refused_unread(self, monkeypatch):
        setup = make_setup(n=12, neighbours=2, threshold=3, active=True)
        _, sent, clients = run(setup, until=Stage.UNMASK)
        party = setup.parties[0]
        right = messages.Request.decode(setup, SERVER, sent[party])
        far = next(p for p in setup.parties[1:] if p not in right.signatures)
        more = {**right.signatures, far: bytes(64)}
        data = messages.Request(right.survivors, right.dropped, more).encode(setup, SERVER)
        with monkeypatch.context() as patch:
            patch.setattr(keys, "is_signed", None)
            with pytest.raises(SecAggError, match="strangers"):
                clients[party].unmask(data)
        clients[party].unmask(sent[party])


def test_a_sum_of_fewer_parties_than_the_agreed_minimum_is_refused():
    setup = make_setup(n=5, threshold=3, minimum=4)
    _, _, clients = run(setup, until=Stage.UNMASK)
    with pytest.raises(SecAggError, match="only 3 survivors in all; at least 4 are needed"):
        clients[4].unmask(request(setup, [1, 4, 7], [10, 13]))
    with pytest.raises(BelowThresholdError, match="3 parties answered, at least 4"):
        run(setup, drops=dict.fromkeys((1, 4), Stage.MASKED_INPUT))
