"""`fedmmf export`: a model's vectors for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption, UnusedSeedOption
from fedmmf.cli.files import PRIVATE, require_outputs
from fedmmf.cli.output import plain, print_json, results
from fedmmf.model import FedMMF

EXAMPLE = "Example: fedmmf export --model model.fedmmf --out factors.npz"


def export(
    model: Annotated[Path, typer.Option(help="A model that `fedmmf train --save` wrote.")],
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: .npz or .parquet has a vector for each user and item, whose dot "
            "product is the score; .faiss or .hnsw is an index of the items."
        ),
    ],
    seed: UnusedSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Write users' and items' vectors, or an index of the items, for other tools.

    Users' vectors tell much of what they rated: treat the file as the ratings.
    """
    from fedmmf.interop.vectors import STREAMS
    from fedmmf.interop.vectors import export as write

    require_outputs({"--out": out}, {"--model": model})
    fitted = FedMMF.load(model)
    write(fitted, out)
    learned = fitted.learned
    found = {"out": str(out), "n_users": learned.n_users, "n_items": learned.n_items}
    if json:
        print_json(found)
    else:
        about = f"{learned.n_users:,} users and {learned.n_items:,} items"
        said = f"{plain(out)} holds the model of {about}"
        more = f"; {PRIVATE}" if out.suffix in STREAMS else ""  # an index has the items alone
        results.print(f"{said}{more}", soft_wrap=True, highlight=False)
