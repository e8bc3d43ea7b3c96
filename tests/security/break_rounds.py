"""Attacks on single rounds of secure aggregation; each returns whether it succeeds."""

from oracle import answer, boxed, checked, finish, make_setup, make_values, plain_sum, run

from fedmmf.errors import FedMMFError
from fedmmf.secagg import PolicyError, SecAggError, Stage, framing, keys, messages, policy
from fedmmf.secagg.client import RoundClient
from fedmmf.secagg.keys import End
from fedmmf.secagg.recovery import Recovery
from fedmmf.secagg.setup import SERVER


def with_box(box_of):
    """A round at which party 4 gets another box from party 1."""
    setup = make_setup()
    server, sent, clients = run(setup, until=Stage.MASKED_INPUT)
    boxes = dict(messages.Boxes.decode(setup, SERVER, sent[4]).boxes)
    boxes[1] = box_of(setup, boxes[1], clients)
    sent[4] = messages.Boxes(boxes).encode(setup, SERVER)
    return setup, server, sent, clients


def a_garbage_box(tiny):
    """Whether it puts its receiver out."""

    def garbage(setup, box, clients):
        return messages.Box.of(bytes(len(box.sealed)), box.prints)

    setup, server, sent, clients = with_box(garbage)
    try:
        finish(server, sent, clients, make_values(setup))
    except FedMMFError:
        return True
    return False


def a_share_beyond_the_field(tiny):
    """Whether an honest holder is refused for it."""

    def beyond(setup, box, clients):
        return boxed(clients[1], clients[4], b"\xff" * 66)

    setup, server, sent, clients = with_box(beyond)
    try:
        finish(server, sent, clients, make_values(setup))
    except SecAggError as error:
        return error.sender == 4
    return False


def two_wrong_holders_of_nine(tiny):
    setup = make_setup(n=9, threshold=5)
    server, sent, clients = run(setup, until=Stage.UNMASK)
    for party, data in sent.items():
        reply = clients[party].unmask(data)
        if party in setup.parties[2:4]:
            shares = messages.Revealed.decode(setup, party, reply).shares
            wrong = {owner: share ^ 1 for owner, share in shares.items()}
            reply = messages.Revealed(wrong).encode(setup, party)
        server.receive(party, reply)
    try:
        total = server.result()
    except FedMMFError:
        return True
    return total.tolist() != plain_sum(setup, make_values(setup), setup.parties)


def a_minimum_of_two(tiny):
    try:
        make_setup(n=5, minimum=2)
    except PolicyError:
        return False
    return True


def is_silently_wrong(stage, spoil, *, active=False):
    """Whether a round ends with a wrong sum, where one message to or from party 4 is spoilt."""
    setup = make_setup(active=active)
    values = make_values(setup)
    server, sent, clients = run(setup, until=stage)
    replies = {p: answer(clients[p], stage, data, values[p]) for p, data in sent.items() if p != 4}
    try:
        if stage is Stage.SHARE_KEYS:  # its neighbours' keys, on their way to it
            replies[4] = clients[4].share_keys(spoil(setup, sent[4]))
        else:
            replies[4] = spoil(setup, answer(clients[4], stage, sent[4], values[4]))
        for party, reply in replies.items():
            server.receive(party, reply)
        total = finish(server, server.next_messages(), clients, values)
    except FedMMFError:
        return False
    return total.tolist() != plain_sum(setup, values, server.survivors)


def flipped(setup, data, at=-1):
    spoilt = bytearray(data)
    spoilt[at] ^= 1
    return bytes(spoilt)


def a_flipped_bit_in_a_mask_key(tiny):
    return is_silently_wrong(Stage.SHARE_KEYS, lambda setup, data: flipped(setup, data, at=-3))


def a_flipped_bit_in_a_masked_vector(tiny):
    return is_silently_wrong(Stage.MASKED_INPUT, flipped)


def a_vector_changed_by_intention(tiny):
    """Somebody between party and server, who makes the check fit again."""
    return is_silently_wrong(
        Stage.MASKED_INPUT, lambda setup, data: checked(setup, flipped(setup, data)), active=True
    )


# What takes the repairs out


def refuse_for_a_box(patch):
    honest = RoundClient._open

    def opened(self, peer, box):
        text = honest(self, peer, box)
        if text is None:
            raise SecAggError(peer, "its box is forged or damaged")
        return text

    patch.setattr(RoundClient, "_open", opened)


def open_without_a_look_inside(patch):
    def opened(self, peer, box):
        context, own = self.setup.context, End(self.party, self._channel.public)
        sender = End(peer, self._peers[peer].channel)
        sealing = keys.channel_key(self._agreed[peer], context, sender, own)
        return keys.unseal(sealing, box.sealed, context, peer, self.party)

    patch.setattr(RoundClient, "_open", opened)


def believe_every_share(patch):
    patch.setattr(Recovery, "_is_given", lambda self, owner, holder, share, of_key: True)


def admit_two(patch):
    patch.setattr(policy, "MINIMUM_COHORT", 2)


def check_nothing(patch):
    patch.setattr(framing, "check", lambda *parts: bytes(16))


def believe_signatures_of_vectors(patch):
    honest = keys.is_signed

    def is_signed(public, signature, purpose, *rest):
        return purpose == b"vector" or honest(public, signature, purpose, *rest)

    patch.setattr(keys, "is_signed", is_signed)


ROUNDS = {
    "a garbage box puts its receiver out": (a_garbage_box, refuse_for_a_box),
    "a share beyond the field": (a_share_beyond_the_field, open_without_a_look_inside),
    "two wrong holders of nine": (two_wrong_holders_of_nine, believe_every_share),
    "a minimum of two": (a_minimum_of_two, admit_two),
    "a flipped bit in a mask key": (a_flipped_bit_in_a_mask_key, check_nothing),
    "a flipped bit in a masked vector": (a_flipped_bit_in_a_masked_vector, check_nothing),
    "a signed vector changed on its way": (
        a_vector_changed_by_intention,
        believe_signatures_of_vectors,
    ),
}
