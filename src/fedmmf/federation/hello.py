"""What a site and the server tell each other before anything else, and every few seconds."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedmmf.errors import WireError

PROTOCOL = 1  # of hellos and bundles; messages inside have a version of their own
MOST_BYTES = 4096
MOST_WORDS = 1000  # characters of a reason


def _printable(text: str) -> str:
    """Texts end up in logs and on terminals: no control characters."""
    if not text.isprintable():
        raise ValueError("a text has printable characters alone")
    return text


def shown(text: str) -> str:
    """Anybody's text as it may be passed on."""
    return "".join(mark if mark.isprintable() else "?" for mark in text)[:MOST_WORDS]


_Text = Annotated[str, Field(max_length=MOST_WORDS), AfterValidator(_printable)]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]*$", max_length=64)]


class _Words(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> bytes:
        """As JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read it; whatever is wrong is a `WireError`."""
        if len(data) > MOST_BYTES:
            raise WireError(f"a {cls.__name__} has at most {MOST_BYTES} bytes; got {len(data)}")
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise WireError(f"malformed {cls.__name__}: {first['loc']}: {first['msg']}") from None


class Hello(_Words):
    """Site to server: here I am, and this is what I take for agreed."""

    protocol: int
    version: Annotated[str, Field(max_length=40), AfterValidator(_printable)]  # of fedmmf
    charter: _Hex
    catalogue: _Hex
    identity: _Hex  # public key; empty: it does not sign
    instance: _Hex  # of this process, so that another of the same name is noticed
    parties: Annotated[int, Field(ge=1, le=100_000)]
    users: Annotated[int, Field(ge=1, le=10_000_000)]


class Welcome(_Words):
    """Server to site: come in, or why not."""

    is_welcome: bool
    may_retry: bool = False  # whether the reason may go away by itself
    reason: _Text = ""
    model: _Hex = ""  # name of the finished model, once there is one


class ErrorSums(_Words):
    """Site to server: errors on its own test ratings, summed over its users."""

    n_ratings: Annotated[int, Field(ge=0, le=10**9)]
    squared: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    absolute: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    declined: _Text = ""  # why it says nothing

    @classmethod
    def none(cls, reason: str) -> Self:
        """Nothing, and why."""
        return cls(n_ratings=0, squared=0.0, absolute=0.0, declined=shown(reason))

    def is_possible(self, span: float) -> bool:
        """Whether ratings on a scale of this width can have such errors."""
        most = self.n_ratings * span
        return self.absolute <= most and self.squared <= most * span
