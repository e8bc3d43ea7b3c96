"""The first messages between a site and the server, repeated every few seconds as heartbeats."""

from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedmmf.errors import WireError

PROTOCOL = 1  # of hellos and bundles; messages inside have a version of their own
MAX_BYTES = 4096
MAX_WORDS = 1000  # characters of a reason


def _printable(text: str) -> str:
    """Refuse control characters, since texts end up in logs and on terminals."""
    if not text.isprintable():
        raise ValueError("a text has printable characters alone")
    return text


def shown(text: str | bytes) -> str:
    """Anybody's text as it may be passed on; no more of it is looked at than is kept."""
    if isinstance(text, bytes):
        text = text[: 4 * MAX_WORDS].decode(errors="replace")  # 4 bytes make one mark at most
    return "".join(mark if mark.isprintable() else "?" for mark in text[:MAX_WORDS])


_Text = Annotated[str, Field(max_length=MAX_WORDS), AfterValidator(_printable)]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]*$", max_length=64)]


class SentText(BaseModel):
    """A message that machines send each other as JSON."""

    most_bytes: ClassVar[int] = MAX_BYTES
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> bytes:
        """Encode the message as bytes of JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the message; anything invalid raises `WireError`."""
        if len(data) > cls.most_bytes:
            raise WireError(f"a {cls.__name__} has at most {cls.most_bytes} bytes; got {len(data)}")
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise WireError(f"malformed {cls.__name__}: {first['loc']}: {first['msg']}") from None


class Hello(SentText):
    """Site to server: the site is present, and this is its version of the agreement."""

    protocol: int
    version: Annotated[str, Field(max_length=40), AfterValidator(_printable)]  # of fedmmf
    charter: _Hex
    catalogue: _Hex
    identity: _Hex  # public key; empty: it does not sign
    instance: _Hex  # of this process, so that another of the same name is noticed
    # How large they may be is said by name (`limits`); here they only have to be numbers
    parties: Annotated[int, Field(ge=1, lt=1 << 31)]
    users: Annotated[int, Field(ge=1, lt=1 << 31)]
    run: _Hex = ""  # that it has joined; empty: none
    round: Annotated[int, Field(ge=0, lt=1 << 31)] = 0  # the last of this run that it answered


class Welcome(SentText):
    """Server to site: whether the site is let in, and why not."""

    is_welcome: bool
    may_retry: bool = False  # whether the reason may go away by itself
    reason: _Text = ""
    model: _Hex = ""  # name of the finished model, once there is one


class ErrorSums(SentText):
    """Errors on test ratings, summed over users; leaves a site in a secure sum alone."""

    columns: ClassVar[tuple[str, ...]] = ("n_ratings", "squared", "absolute")
    most_ratings: ClassVar[int] = 10**9

    n_ratings: Annotated[int, Field(ge=0, le=most_ratings)]
    squared: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    absolute: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def is_possible(self, span: float) -> bool:
        """Whether ratings on a scale of this width can have such errors."""
        most = self.n_ratings * span
        return self.absolute <= most and self.squared <= most * span
