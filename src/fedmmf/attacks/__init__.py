"""Attacks on what leaves a party, one file each; pure functions of what an attacker may see.

`audit` runs them on a whole run, `self_audit` is what a party runs on itself. An attack of another
package takes part in both once it is registered: by an entry point of the group `fedmmf.attacks`,
or by `ATTACKS.register`.
"""

from fedmmf.attacks.contract import Attack, AttackResult, Target
from fedmmf.registry import Registry

ATTACKS: Registry[Attack] = Registry(
    "attack",
    "fedmmf.attacks",
    {
        "recovery": "fedmmf.attacks.paper:RECOVERY",
        "shift": "fedmmf.attacks.decode:NAIVE",
        "grouping": "fedmmf.attacks.grouping:GROUPING",
        "inversion": "fedmmf.attacks.inversion:INVERSION",
        "inversion, strength unknown": "fedmmf.attacks.inversion:BLIND_INVERSION",
        "decode": "fedmmf.attacks.decode:DECODE",
        "ranking": "fedmmf.attacks.paper:RANKING",
        "gradients": "fedmmf.attacks.gradients:GRADIENTS",
        "calibrated": "fedmmf.attacks.calibrated:CALIBRATED",
        "unmixing": "fedmmf.attacks.unmixing:UNMIXING",
        "disaggregation": "fedmmf.attacks.disaggregation:DISAGGREGATION",
        "disaggregation, items": "fedmmf.attacks.disaggregation:DISAGGREGATION_ITEMS",
        "membership": "fedmmf.attacks.membership:MEMBERSHIP",
        "vb unmixing": "fedmmf.attacks.vb_sums:VB_UNMIXING",
        "vb ranking": "fedmmf.attacks.vb_sums:VB_RANKING",
        "vb lists": "fedmmf.attacks.vb_lists:VB_LISTS",
        "noisy sums, ratings": "fedmmf.attacks.noisy_sums:NOISY_RATINGS",
        "noisy sums, items": "fedmmf.attacks.noisy_sums:NOISY_ITEMS",
    },
)


def attacks_on(target: Target, mask: str) -> tuple[Attack, ...]:
    """Return every attack on one kind of view that applies to a family of masks."""
    known = map(ATTACKS.__getitem__, ATTACKS.names())
    return tuple(attack for attack in known if attack.target == target and attack.applies_to(mask))


def rating_attacks(mask: str) -> tuple[Attack, ...]:
    """Return the attacks that find ratings in masked ratings of a family."""
    on_masked = attacks_on("masked ratings", mask)
    return tuple(attack for attack in on_masked if attack.finds == "ratings")


__all__ = ["ATTACKS", "Attack", "AttackResult", "Target", "attacks_on", "rating_attacks"]
