"""`fedmmf evaluate`: a saved model on ratings that it has not seen."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedmmf.cli.choices import DataOption, JsonOption, Reading, UnusedSeedOption, Writing
from fedmmf.cli.options import expanded
from fedmmf.cli.output import errors, print_json, progress_bar, results, shown, table
from fedmmf.cli.recommend import say_what_ranks
from fedmmf.cli.train import show_lists
from fedmmf.data import Ratings
from fedmmf.model import FedMMF
from fedmmf.model.learned import Learned

EXAMPLE = "Example: fedmmf evaluate --model model.fedmmf --data later.csv --top 10"

_LABELS = {
    "n_ratings": "ratings",
    "n_of_unknown_users": "of users that the model does not know",
    "n_of_unknown_items": "of items that the model does not know",
    "n_trained_on": "that the model was trained on",
}


@expanded
def evaluate(
    model: Annotated[Path, typer.Option(help="A model that `fedmmf train --save` wrote.")],
    data: DataOption,
    writing: Writing,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Also rank: nDCG, recall and more of the N best, and popularity."),
    ] = None,
    seed: UnusedSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Test a saved model on ratings that it has not seen: errors, and lists on request."""
    fitted = FedMMF.load(model)
    learned = fitted.learned
    test = Reading(writing=writing).load(data)
    about = _about(learned, test)
    if about["n_trained_on"]:
        said = f"{about['n_trained_on']:,} of {len(test):,} ratings were trained on: errors flatter"
        errors.print(said, soft_wrap=True)
    with progress_bar(test.name) as progress:
        found = fitted.evaluate(test, top=top, progress=progress)
    ranking = found.get("ranking")
    if json:
        lists = {} if ranking is None else {"ranking": ranking.to_json_dict()}
        about["objective"] = learned.objective
        print_json({**about, "rmse": found.get("rmse"), "mae": found.get("mae"), **lists})
        return
    rows = [[label, f"{about[name]:,}"] for name, label in _LABELS.items()]
    rows += [["RMSE", shown(found.get("rmse"))], ["MAE", shown(found.get("mae"))]]
    results.print(table(f"{about['run_kind']}: {test.name}", ["", "value"], rows))
    if ranking is not None:
        say_what_ranks(fitted.settings, ranking)
        show_lists(ranking)


def _about(learned: Learned, test: Ratings) -> dict[str, Any]:
    """Describe how the test ratings relate to the model's users and items."""
    users = learned.user_codes(test.user_ids)[test.user_codes]  # (n,)
    items = learned.item_codes(test.item_ids)[test.item_codes]
    owners = np.repeat(np.arange(learned.n_users), np.diff(learned.indptr))
    width = learned.n_items + 1
    trained = np.isin(users * width + items, owners * width + learned.rated_items)
    return {
        "run_kind": "simulated" if learned.is_simulated else "real",
        "n_ratings": len(test),
        "n_of_unknown_users": int((users == learned.n_users).sum()),
        "n_of_unknown_items": int((items == learned.n_items).sum()),
        "n_trained_on": int(trained.sum()),
    }
