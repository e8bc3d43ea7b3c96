"""Which settings affected a run; the page lists only those."""

from collections.abc import Callable, Mapping
from typing import Any

from fedmmf.reports.results import AuditResult, TrainResult

Chosen = Mapping[str, Any]  # settings by name

# Of training alone: an audit fits masks and examines the first rounds.
_NOT_OF_AUDITS = ("rounds", "ensemble", "patience", "objective", "collect_masked")
_OF_ENGINES = ("engine", "device", "pieces")
_OF_AUDITS = ("grouping", "audit_limit")  # an audit says whom either rule would let share


def applied(result: TrainResult | AuditResult) -> dict[str, Any]:
    """Return the settings that affected a run, in order; an unknown one is included."""
    chosen, is_audit = result.settings, isinstance(result, AuditResult)
    found = {}
    for name, value in chosen.items():
        if is_audit and name in (*_NOT_OF_AUDITS, *_OF_ENGINES, *_OF_AUDITS):
            has_say = name in _OF_AUDITS
        elif name == "engine":
            has_say = result.simulated  # real parties work for themselves
        else:
            has_say = _RULES.get(name, _always)(chosen)
        if has_say:
            found[name] = value
    return found


def in_use(chosen: Chosen) -> dict[str, Any]:
    """Settings of a run that others leave a say, in their order."""
    return {name: value for name, value in chosen.items() if _RULES.get(name, _always)(chosen)}


def _always(chosen: Chosen) -> bool:
    return True


def _is(name: str, *values: Any) -> Callable[[Chosen], bool]:
    """Whether a setting has one of these values; a run that does not tell may have any."""
    return lambda chosen: name not in chosen or chosen[name] in values


def _is_not(name: str, value: Any) -> Callable[[Chosen], bool]:
    return lambda chosen: chosen.get(name) != value


def _both(*rules: Callable[[Chosen], bool]) -> Callable[[Chosen], bool]:
    return lambda chosen: all(rule(chosen) for rule in rules)


def _holds_out(chosen: Chosen) -> bool:
    """Whether there are held-out ratings to stop by; `auto` holds some out for sgd alone."""
    share = chosen.get("held_out", "auto")
    if share == "auto":
        return chosen.get("solver") != "vb" and chosen.get("aggregation") != "dp"
    return bool(share > 0)


_HIDDEN = _is_not("sharing", "plain")  # sums that hide summands
_SECURE = _both(_HIDDEN, _is("aggregation", "secure", "dp"))
_NOISY = _both(_is("sharing", "strict"), lambda chosen: chosen.get("aggregation") == "dp")
_ADAPTIVE = _is("sharing", "adaptive")
_MASKED = _is_not("mask", "none")
_RULES: dict[str, Callable[[Chosen], bool]] = {
    **dict.fromkeys(("mask_strength", "cross_fit", "folds", "item_statistics"), _MASKED),
    **dict.fromkeys(("aggregation", "smallest_cohort", "min_raters"), _HIDDEN),
    **dict.fromkeys(("signed", "batch"), _SECURE),
    **dict.fromkeys(("dp_epsilon", "dp_delta", "dp_clip", "dp_noise"), _NOISY),
    **dict.fromkeys(("grouping", "collect_masked"), _ADAPTIVE),
    "device": _is("engine", "torch"),
    "pieces": _both(_is("engine", "torch"), _is_not("pieces", 1)),
    "audit_limit": _both(_ADAPTIVE, _is("grouping", "audit")),
    **dict.fromkeys(
        ("step", "learning_rate", "regularization", "user_prior", "biases"),
        _is_not("solver", "vb"),
    ),
    **dict.fromkeys(("item_prior", "profile_prior", "implicit_prior"), _is_not("solver", "sgd")),
    "mask_fit": _both(_MASKED, _is_not("solver", "sgd")),
    "likelihood": _both(_is_not("solver", "sgd"), _is("objective", "rating")),
    **dict.fromkeys(("unrated_weight", "unrated_value"), _is("objective", "ranking")),
    "patience": _holds_out,
}
