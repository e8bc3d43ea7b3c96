"""The variational solver: both halves, and what they declare.

masked_ui ~ N(q_i . p_u, tau), p_u ~ N(m + V d_u + B s_u, diag(1/a)) and
q_i ~ N(W x_i + D t_i, diag(1/c)), with Gaussian posteriors for every p_u (in its party) and q_i (on
the server), updated in turn: mean-field variational inference of probabilistic matrix factorization
(Lim and Teh 2007, Variational Bayesian approach to movie rating prediction; the prior mean W x_i as
in Park et al. 2013). Coordinate 0 of p_u is pinned to 1 by its prior, so that q_i0 is the item's
bias.

*Shared curvature.* A party sends the gradient of the bound in E[q_i], k numbers per rated item; the
second moments of all p_u go into one matrix for everybody. The posterior covariance of q_i then
depends on its number of raters alone, so that k numbers per item and that matrix say all there is
to say about the items.

*Implicit priors.* Which items somebody rated says who they are: the prior mean of p_u is linear in
s_u = n_u^-1/2 sum of E[q_j] over rated items, with weights from secure totals alone. (SVD++, Koren
2008, has free parameters y_j there; their gradients are the same for all items of a user, so that
sums over many rounds would reveal who rated what.) Who rated an item says what it is: the prior
mean of q_i is linear in t_i = n_i^-1/2 sum of p_u over raters, summed in two membership rounds.

*Ordered ratings.* A rating may be a level instead of a number; see `ordinal`.

*Joint masks.* A linear mask may be part of p_u instead of being fitted alone: q_i gets the item's
public features as known columns, p_u private weights of them, whose prior has a mean and a
precision per column from secure totals. Only rows for the k learned columns leave.

*Noise.* Under a privacy budget another variant is taken, with halves of its own: see `private`.

*Unrated items.* Where lists are wanted, each unrated item counts as a low rating with a small
weight (Steck 2010, Training and testing of recommender systems on data missing not at random); sums
over the catalogue go through public matrices. The prior of q_i then tightens with its number of
raters: its precision is c f_i with f_i in proportion to the weight of all pairs of i.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.scales import RatingScale
from fedmmf.errors import SettingsError
from fedmmf.masks.feature_maps import MAX_JOINT
from fedmmf.solvers.contract import Bounds, Broadcast, RequestedRelease, SolverContext, UpdateShape
from fedmmf.solvers.vb.ordinal import expected_rating
from fedmmf.solvers.vb.party import VbParty
from fedmmf.solvers.vb.private import (
    PrivateParty,
    PrivateReading,
    PrivateServer,
    PrivateShape,
    is_private,
    plan,
    requested_release,
)
from fedmmf.solvers.vb.private import check_broadcast as check_private_broadcast
from fedmmf.solvers.vb.private import write_variant as write_private_variant
from fedmmf.solvers.vb.private.server import default_user as default_private_user
from fedmmf.solvers.vb.reading import VbReading, check_broadcast
from fedmmf.solvers.vb.server import USUAL_ROUNDS, VbServer, membership_rounds
from fedmmf.solvers.vb.shapes import VbShape, total_bound, write_variant
from fedmmf.solvers.vb.start import value_of_unrated, weight_of_unrated


class Vb:
    """The solver `vb`: both halves and their declarations."""

    name, ring = "vb", "2^32"
    default_rounds, default_held_out = USUAL_ROUNDS, 0.0
    may_be_clear = False  # one update holds masked ratings
    may_be_noisy = knows_noise = True
    releases = staticmethod(plan.releases)
    ranks = joins_masks = True
    spans = (1e-3, 1e4)
    sums_as = "vb sums"

    def noisy_defaults(self, chosen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values of settings that nobody named, under a budget."""
        ranks, epsilon = chosen.get("objective") == "ranking", chosen.get("dp_epsilon")
        unused = {"implicit_prior": "none", "profile_prior": False}  # a budget has no sums for them
        rounds = plan.rounds_for(epsilon, ranks=ranks)
        return {"factors": plan.constants(ranks=ranks).factors, "rounds": rounds, **unused}

    def rank(self, settings: Any) -> int:
        """Return the number of factors plus one, for the item's bias."""
        return int(settings.factors) + 1

    def variant(self, settings: Any, n_profile: int, n_columns: int, n_levels: int) -> str:
        """Return one line that names the parts of the model that these settings use."""
        joint = n_columns if settings.has_joint_mask and n_columns <= MAX_JOINT else 0
        if settings.scheme.has_budget:
            ranks = settings.objective == "ranking"
            if ranks and settings.has_joint_mask and not joint:
                raise SettingsError(
                    f"lists under a budget need a mask of {MAX_JOINT} columns at most; the mask "
                    f"{settings.mask!r} has {n_columns:,} here. Use the mask 'mean' or 'lr', or "
                    "fewer columns of features"
                )
            return write_private_variant(joint, ranks=ranks)
        return write_variant(
            settings.implicit_prior,
            profile=n_profile if settings.profile_prior else 0,
            design=n_columns if settings.objective == "ranking" else 0,
            levels=n_levels if settings.likelihood == "ordinal" else 0,
            joint=joint,
        )

    def divergence_hint(self, settings: Any) -> None:
        """Return nothing: no setting makes it diverge."""

    def update_shape(self, rank: int, variant: str) -> VbShape | PrivateShape:
        """Return the shape of a variant's updates and broadcasts."""
        if is_private(variant):
            return PrivateShape.of(rank, variant)
        return VbShape.of(rank, variant)

    def bounds(self, span: float) -> Bounds:
        """Return bounds: gradients are some spans, totals a user's ratings times squared spans."""
        return Bounds(row=8.0 * max(span, 1.0), total=total_bound(span))

    def check(self, update_shape: UpdateShape, broadcast: Broadcast) -> None:
        """Raise `WireError` unless variances, precisions and matrices are positive."""
        if isinstance(update_shape, PrivateShape):
            return check_private_broadcast(update_shape, broadcast)
        return check_broadcast(_vb(update_shape), broadcast)

    def requested_release(
        self, update_shape: UpdateShape, broadcast: Broadcast
    ) -> RequestedRelease:
        """Return the release that a broadcast asks for; without noise, updates."""
        return (
            requested_release(update_shape, broadcast)
            if isinstance(update_shape, PrivateShape)
            else RequestedRelease()
        )

    def reading(
        self, update_shape: UpdateShape, broadcast: Broadcast, design: Array
    ) -> VbReading | PrivateReading:
        """Split the broadcast into parts, with what all users need of it."""
        if isinstance(update_shape, PrivateShape):
            return PrivateReading.of(update_shape, broadcast, design)
        return VbReading.of(_vb(update_shape), broadcast, design)

    def party(self, update_shape: UpdateShape) -> VbParty | PrivateParty:
        """Make a party's half before its first round."""
        if isinstance(update_shape, PrivateShape):
            return PrivateParty(update_shape)
        return VbParty(_vb(update_shape))

    def server(
        self, settings: Any, update_shape: UpdateShape, context: SolverContext
    ) -> VbServer | PrivateServer:
        """Make the server's half before the first round; without the item prior, a common mean."""
        columns = context.regressors.shape[1] if settings.item_prior else 0
        context = replace(context, regressors=context.regressors[:, :columns])
        if isinstance(update_shape, PrivateShape):
            return PrivateServer(settings, update_shape, context)
        unrated: tuple[float, ...] = ()
        if _vb(update_shape).ranks:
            unrated = (weight_of_unrated(settings, context), value_of_unrated(settings, context))
        half = VbServer(_vb(update_shape), context, unrated)
        if unrated:
            half.membership_rounds = membership_rounds(settings.max_rounds)
        return half

    def default_user(self, update_shape: UpdateShape, broadcast: Broadcast) -> Array:
        """Factors of the default user: the mean of all p_u, and of their masks. (n_own,)."""
        if isinstance(update_shape, PrivateShape):
            return default_private_user(update_shape, broadcast)
        numbers = _vb(update_shape).blocks["parameters"].split(broadcast.parameters)
        mean = np.concatenate((numbers["mean_user"], numbers["joint_mean"]))
        return mean.astype(np.float32)

    def ratings_of(
        self, update_shape: UpdateShape, broadcast: Broadcast, scores: Array, scale: RatingScale
    ) -> Array:
        """Clip scores, or return the mean of ordered levels; ranking scores stay. (n,)."""
        if isinstance(update_shape, PrivateShape):
            return scores if update_shape.ranks else np.asarray(scale.clip(scores))
        if update_shape.n_design:
            return scores
        if not update_shape.n_levels:
            return np.asarray(scale.clip(scores))
        numbers = _vb(update_shape).blocks["parameters"].split(broadcast.parameters)
        return expected_rating(scores, numbers["cuts"], float(numbers["tau"][0]), scale)


def _vb(update_shape: UpdateShape) -> VbShape:
    if not isinstance(update_shape, VbShape):
        raise TypeError(f"vb has forms of its own; got {type(update_shape).__name__}")
    return update_shape


VB = Vb()
