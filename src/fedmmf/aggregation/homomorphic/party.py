"""A party's side of homomorphic aggregation: broadcasts arrive sealed, updates leave encrypted."""

from fedmmf.aggregation.contract import Work, bounds_of
from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey, Sealed, unseal
from fedmmf.aggregation.homomorphic.schemes import load_public
from fedmmf.aggregation.party_side import PartyContext, PartySide
from fedmmf.aggregation.vector import SumCodec, codec_of
from fedmmf.errors import WireError
from fedmmf.wire import Ask, Layout, Round, Survey


class HomomorphicParty(PartySide):
    """Encrypts its updates under the key that the keeper gave it; a key serves one run."""

    answers = (Ask,)

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._key: HomomorphicKey | None = None  # given once, by the keeper

    def hold(self, secret: bytes) -> None:
        """Take the keeper's key, if it is one that can encrypt."""
        key = HomomorphicKey.decode(secret)
        load_public(key.scheme, key.public)
        self._key = key

    def read(self, frame: bytes) -> Work | Layout:
        """Open a broadcast; a server without the key cannot make one."""
        if self._key is None:
            raise WireError("a sealed round needs the keeper's key first; give the party one")
        sealed = Sealed.decode(frame)
        work = self.context.read_work(unseal(self._key, sealed))
        if sealed.round != (work.round if isinstance(work, Round) else 0):
            raise WireError(f"the box of round {sealed.round} holds another round")
        self.context.side_state = work  # opened last
        return work

    def answer(self, message: Ask) -> Ciphertexts:
        """Encrypt this party's contribution to what the broadcast asks for."""
        work = self.context.work(message.about)
        key = self._key
        if key is None or self.context.side_state is not work:
            raise WireError("that round is over; rounds must increase")
        codec = self._codec(work, key)
        part = self.context.contribute(work, codec, None, n_parties=1)
        public = load_public(key.scheme, key.public)
        data = public.encrypt(codec.vector(part), codec.largest)
        return Ciphertexts(0 if isinstance(work, Survey) else work.round, data)

    def _codec(self, work: Work, key: HomomorphicKey) -> SumCodec:
        context = self.context
        bounds = bounds_of(context.catalogue, context.solver, isinstance(work, Survey))
        return codec_of(context.sizes(work), bounds, key.n_users, context.solver.ring)
