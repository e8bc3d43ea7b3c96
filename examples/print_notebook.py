"""Run examples/fedmmf.ipynb and keep what it prints and draws: `make notebook`.

With a path, the new notebook is written there instead.
"""

import sys
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("fedmmf.ipynb")
KEPT = ("text/plain", "image/png")


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs, as text and images alone."""
    notebook = nbformat.read(path, as_version=4)
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")  # no port is opened
    NotebookClient(
        notebook, km=kernel, timeout=1800, startup_timeout=600, record_timing=False
    ).execute()
    for cell in notebook["cells"]:
        cell["outputs"] = [kept(part) for part in joined(cell.get("outputs", []))]
        if cell["cell_type"] != "code":
            del cell["outputs"]
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with lines that were printed one after the other as one."""
    found: list[nbformat.NotebookNode] = []
    for part in outputs:
        if "text" in part and found and "text" in found[-1]:
            found[-1]["text"] += part["text"]
        else:
            found.append(part)
    return found


def kept(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """One output without what the site does not show."""
    if "data" in output:
        output["data"] = {kind: value for kind, value in output["data"].items() if kind in KEPT}
    return output


if __name__ == "__main__":
    nbformat.write(executed(NOTEBOOK), (sys.argv[1:] or [NOTEBOOK])[0])
