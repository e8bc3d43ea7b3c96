"""`fedmmf doctor`: what is installed, where things are kept, and what would make it faster."""

import os
import platform
import re
from importlib import metadata, util
from pathlib import Path
from typing import Any

import typer

from fedmmf import __version__
from fedmmf.cli.choices import JsonOption, UnusedSeedOption
from fedmmf.cli.output import print_json, results, size, table

EXAMPLE = "Example: fedmmf doctor"
_FOR = {
    "dp": "--aggregation dp",
    "he": "--aggregation homomorphic-paillier and homomorphic-ckks",
    "federation": "federations across machines",
    "ray": "--engine ray",
    "gpu": "--engine torch",
    "interop": "scikit-learn, LensKit, MLflow, TensorBoard, FAISS, hnswlib",
    "dev": "the tests of this project",
}
Facts = dict[str, Any]


def doctor(seed: UnusedSeedOption = 0, json: JsonOption = False) -> None:
    """Show versions, cores, caches, extras and data sets, and say what is broken or slow.

    The exit code is 0 unless something that is needed is missing or broken.
    """
    found = examined()
    if json:
        print_json(found)
    else:
        _show(found)
    raise typer.Exit(1 if found["broken"] else 0)


def examined() -> Facts:
    """Collect everything that the command shows, as a JSON object."""
    needed, extras = _packages()
    found = {
        "fedmmf": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": needed,
        "experiments": _version("fedmmf-experiments"),
        "cores": {"usable": len(os.sched_getaffinity(0)), "threads": _threads()},
        "caches": _caches(),
        "extras": extras,
        "data": _data_sets(),
    }
    return found | {"broken": _broken(found), "advice": _advice(found)}


def _packages() -> tuple[Facts, Facts]:
    """Versions of what is needed, None: missing; and what each extra needs and is for."""
    needed: Facts = {}
    extras: Facts = {name: {"for": text, "packages": {}} for name, text in _FOR.items()}
    for line in metadata.requires("fedmmf") or []:
        name = re.split(r"[\[<>=!~; ]", line)[0]
        extra = re.search(r"""extra == ['"](.+?)['"]""", line)
        if extra is None:
            needed[name] = _version(name)
        elif name != "fedmmf" and extra[1] in extras:
            extras[extra[1]]["packages"][name] = _version(name)
    for about in extras.values():
        about["installed"] = bool(about["packages"]) and all(about["packages"].values())
    return needed, extras


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> int | str:
    from fedmmf.engines.kernels.threads import n_threads
    from fedmmf.errors import SettingsError

    try:
        return n_threads()
    except SettingsError as error:
        return str(error)


def _caches() -> Facts:
    """Cache folders by what they hold."""
    from fedmmf.data.cache import folder
    from fedmmf.data.sources import download_folder

    spec = util.find_spec("fedmmf")
    compiled = Path(str(spec and spec.origin)).parent
    given = os.environ.get("NUMBA_CACHE_DIR")
    return {
        "compiled kernels": _folder(Path(given) if given else compiled, "*.nb[ic]"),
        "parsed data sets": _folder(folder(), "*"),
        "downloads": _folder(download_folder(), "*"),
    }


def _folder(path: Path, pattern: str) -> Facts:
    files = [file for file in path.rglob(pattern) if file.is_file()] if path.is_dir() else []
    writable = os.access(next(p for p in (path, *path.parents) if p.exists()), os.W_OK)
    n_bytes = sum(file.stat().st_size for file in files)
    return {"path": str(path), "files": len(files), "bytes": n_bytes, "writable": writable}


def _data_sets() -> Facts:
    from fedmmf.data import datasets

    return {info.name: info.synthetic or info.local is not None for info in datasets()}


def _broken(found: Facts) -> list[str]:
    """List the problems that stop commands from working."""
    missing = [name for name, version in found["packages"].items() if version is None]
    broken = [f"{name} is missing: pip install {name}" for name in missing]
    if isinstance(found["cores"]["threads"], str):
        broken.append(found["cores"]["threads"])
    return broken


def _advice(found: Facts) -> list[str]:
    """List changes that would make commands faster."""
    advice = []
    cores, caches = found["cores"], found["caches"]
    if isinstance(cores["threads"], int) and cores["threads"] < cores["usable"]:
        advice.append(
            f"FEDMMF_THREADS is {cores['threads']}; {cores['usable']} cores could be used"
        )
    kernels = caches["compiled kernels"]
    if not kernels["writable"]:
        advice.append("kernels are compiled at every start: set NUMBA_CACHE_DIR to a folder")
    elif not kernels["files"]:
        advice.append("kernels are compiled the first time they are used; fedmmf demo does it")
    if not caches["parsed data sets"]["writable"]:
        advice.append("data sets are parsed at every start: their cache is read-only")
    return advice


def _show(found: Facts) -> None:
    cores = found["cores"]
    rows = [["fedmmf", found["fedmmf"]], ["Python", found["python"]]]
    rows += [["system", found["platform"]]]
    rows += [["cores, threads", f"{cores['usable']}, {cores['threads']}"]]
    rows += [[name, version or "missing"] for name, version in found["packages"].items()]
    rows += [["fedmmf-experiments", found["experiments"] or "no: pip install ./experiments"]]
    results.print(table("installed", ["", "version"], rows))
    kept = [
        [name, about["path"], size(about["bytes"]) if about["files"] else "empty"]
        for name, about in found["caches"].items()
    ]
    results.print(table("kept on this machine", ["what", "where", "size"], kept))
    extras = [
        [name, about["for"], "yes" if about["installed"] else f"pip install 'fedmmf[{name}]'"]
        for name, about in found["extras"].items()
    ]
    results.print(table("extras", ["extra", "for", "installed"], extras))
    here = [[name, "yes" if is_here else "no"] for name, is_here in found["data"].items()]
    results.print(table("data sets", ["name", "here"], here))
    for text in found["broken"]:
        results.print(f"broken: {text}", markup=False, soft_wrap=True)
    for text in found["advice"]:
        results.print(f"faster: {text}", markup=False, soft_wrap=True)
    if not found["broken"]:
        results.print("Everything that is needed is here.")
