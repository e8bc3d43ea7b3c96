"""What mkdocs does beside its plugins: pages from outside docs/, the notebook, diagrams inline."""

import json
import re
from pathlib import Path

from mkdocs.structure.files import File

from fedmmf import Settings

ROOT = Path(__file__).parents[2]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
SPEC = tuple(f"spec/{path.name}" for path in sorted((ROOT / "spec").glob("*.md")))
MEASURED = ROOT / "experiments" / "docs"
NOTEBOOK = ROOT / "examples" / "fedmmf.ipynb"
LIST = re.compile(r"(-|\d+\.) ")
DIAGRAM = re.compile(r'<p><img alt="([^"]*)" src="(assets/[\w-]+\.svg)" /></p>')
SETTINGS = "<!-- settings -->"


def on_files(files, config):
    """Add the pages that lie beside docs/, and the notebook as a page."""
    for name in (*BESIDE, *SPEC):
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    for path in sorted(MEASURED.glob("*.md")):
        files.append(File.generated(config, path.name, content=path.read_text()))
    files.append(File.generated(config, "notebook.md", content=page_of(NOTEBOOK)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Point links into the site, and list the settings where a page asks for them."""
    if page.file.src_path in SPEC:
        return with_lists(markdown.replace("](../docs/", "](../"))
    markdown = re.sub(r"\]\(\.\./(\w+\.md|spec/)", r"](\1", markdown)
    markdown = re.sub(r"\]\((?:\.\./)*(?:experiments/)?docs/", "](", markdown)
    markdown = markdown.replace("](../examples/fedmmf.ipynb)", "](notebook.md)")
    markdown = re.sub(r"\]\((?:\.\./)?README\.md[^)]*\)", "](index.md)", markdown)
    return with_lists(markdown.replace(SETTINGS, table_of_settings()))


def on_page_content(html, page, config, files):
    """Put diagrams inline, where they take the page's colours."""
    return DIAGRAM.sub(lambda found: inline(*found.groups()), html)


def table_of_settings():
    """Every setting, its default and what it means, as a Markdown table."""
    rows = ["| setting | default | what it is |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        words = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | `{field.default!r}` | {words} |")
    return "\n".join(rows)


def with_lists(markdown):
    """Put an empty line before a list that follows a line of text: GitHub needs none."""
    lines, is_code = [], False
    for line in markdown.splitlines():
        is_code ^= line.lstrip().startswith("```")
        before = lines[-1] if lines else ""
        follows_text = before.strip() and not before.startswith("  ") and not LIST.match(before)
        if not is_code and follows_text and LIST.match(line):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def inline(words, path):
    """A diagram as part of the page, with its words for those who do not see it."""
    drawing = (ROOT / "docs" / path).read_text()
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
