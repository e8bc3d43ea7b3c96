"""What mkdocs does beside its plugins: pages from outside docs/, the notebook, diagrams inline."""

import json
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
NOTEBOOK = ROOT / "examples" / "fedmmf.ipynb"
DIAGRAM = re.compile(r"!\[([^\]]*)\]\((assets/[\w-]+\.svg)\)")


def on_files(files, config):
    """Add the pages that lie beside docs/, and the notebook as a page."""
    for name in BESIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    files.append(File.generated(config, "notebook.md", content=page_of(NOTEBOOK)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Point links into the site, and put diagrams inline, where they take the page's colours."""
    markdown = re.sub(r"\]\(\.\./(\w+\.md)", r"](\1", markdown)
    if page.file.src_path in BESIDE:
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    markdown = markdown.replace("](../examples/fedmmf.ipynb)", "](notebook.md)")
    markdown = re.sub(r"\]\((?:\.\./)?README\.md[^)]*\)", "](index.md)", markdown)
    return DIAGRAM.sub(lambda found: inline(*found.groups()), markdown)


def inline(words, path):
    """A diagram as part of the page, with its words for those who do not see it."""
    drawing = (ROOT / "docs" / path).read_text().strip().replace("\n\n", "\n")
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)


def page_of(path):
    """A notebook as Markdown: text, code, and what the code printed and drew."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join(part for cell in cells for part in parts_of(cell))


def parts_of(cell):
    """One cell, piece by piece."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            image = "".join(data["image/png"]).replace("\n", "")
            yield f"![What the code above draws](data:image/png;base64,{image})"
        else:
            text = "".join(output.get("text") or data["text/plain"])
            yield f"```text\n{text.rstrip()}\n```"
