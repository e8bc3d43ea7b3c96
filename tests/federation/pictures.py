"""Pictures of federations to look at: an ordinary one, and one with hostile texts in it."""

from fedmmf.federation.status import (
    Board,
    Evaluated,
    FederationStatus,
    IncidentLine,
    SiteStatus,
    now,
)

TOKEN = "a-token_for.tests-0123456789"  # noqa: S105 - of no server
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{7*7}}\\\n]]>"
SITES = (
    SiteStatus(
        name="clinic-north", state="here", parties=4, users=1204, rounds=23, drop_outs=1,
        reason="no answer in 30 s", up_bytes=48_220_311, down_bytes=9_311_020, seen=now(),
        version="0.2.0",
    ),
    SiteStatus(
        name="clinic-south", state="here", parties=2, users=611, rounds=24, up_bytes=24_110_002,
        down_bytes=4_655_900, seen=now(),
    ),
    SiteStatus(
        name="bookshop", state="away", parties=1, users=92, rounds=11, drop_outs=3,
        reason="connection closed by the site while masks were being shared",
        up_bytes=6_020_000, down_bytes=1_100_300, seen="2026-01-02T03:04:05+00:00",
    ),
    SiteStatus(
        name="library", state="refused", parties=1, users=40,
        reason="its catalogue differs: digest 9f3a is wanted, 11c0 came", up_bytes=812,
        down_bytes=1904, seen=now(),
    ),
    SiteStatus(name="university"),
)  # fmt: skip
INCIDENTS = tuple(
    IncidentLine(
        at=now(),
        party=("bookshop", "clinic-north", "library")[number % 3],
        stage=("shares", "masked sums", "invitation")[number % 3],
        reason="connection closed by the site while masks were being shared"
        if number % 2
        else "no answer in 30 s; the round went on without it",
    )
    for number in range(12)
)
ERRORS = tuple(
    None if number == 9 else 0.93 + 0.17 * 0.86**number + 0.004 * (number % 3)
    for number in range(25)
)
STATUS = FederationStatus(
    federation="Books of the north",
    version="0.2.0",
    state="training",
    detail="Round 25 of 60: waiting for the masked sums of 2 sites.",
    round=24,
    rounds=60,
    attempts=25,
    held_out=ERRORS,
    sites=SITES,
    incidents=INCIDENTS,
    n_incidents=17,
    seconds_per_round=16.2,
    seconds_left=583.0,
    smallest_cohort=3,
    settings={
        "mask": {"kind": "fm", "factors": 4},
        "solver": "sgd",
        "rounds": 60,
        "learning_rate": 0.05,
        "regularization": 1e-06,
        "signed": True,
        "batch": None,
        "min_raters": 3,
    },
    protection=(
        "Sharing is strict: every update goes into a sum, made by secure aggregation. A server "
        "that follows the protocol learns the sum over the users who stayed, and, once, how many "
        "rated each item. It sees no single update.",
        "Other users see even less.",
        "Not hidden: that a user takes part, what the sums themselves say, and differences "
        "between sums of groups that change from round to round.",
    ),
    evaluation=Evaluated(
        rmse=0.94217,
        mae=0.74381,
        n_ratings=19_812,
        sites=("clinic-north", "clinic-south"),
        declined={"bookshop": "fewer than 50 test ratings, which its owner asks for"},
    ),
    started="2026-01-02T03:00:00+00:00",
    updated=now(),
)
AWAITED = "2026-01-02T03:04:05+00:00"
WAITING = STATUS.but(
    incidents=(),
    sites=(SITES[0], SITES[1].model_copy(update={"awaited": AWAITED}), *SITES[2:]),
)
HOSTILE_STATUS = STATUS.but(
    federation=HOSTILE,
    version=HOSTILE,
    detail=HOSTILE,
    sites=(
        SiteStatus(
            name=HOSTILE,
            state="here",
            reason=HOSTILE,
            seen=HOSTILE,
            version=HOSTILE,
            awaited=HOSTILE,
        ),
        SiteStatus(name="a" * 300, state="away", reason="b" * 2000, users=10**15, up_bytes=10**15),
    ),
    incidents=(IncidentLine(at=HOSTILE, party=HOSTILE, stage=HOSTILE, reason=HOSTILE),),
    settings={HOSTILE: {HOSTILE: HOSTILE}, "c" * 300: "d" * 300, "list": [HOSTILE, None]},
    protection=(HOSTILE,),
    evaluation=Evaluated(rmse=1, mae=1, n_ratings=3, sites=(HOSTILE,), declined={HOSTILE: HOSTILE}),
    started=HOSTILE,
)
EMPTY = FederationStatus(federation="f", version="0")


def board(status: FederationStatus = STATUS) -> Board:
    """A board that keeps nothing."""
    return Board(status, lambda _: None)
