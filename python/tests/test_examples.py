"""What readers copy runs: the notebook, and the blocks of docs/python.md. The types hold."""

import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat

import taillab

PYTHON = Path(__file__).resolve().parents[1]
NOTEBOOK = PYTHON / "examples" / "first-steps.ipynb"
DOCS = PYTHON.parent / "docs" / "python.md"


def test_the_notebook_runs_and_shows_pages_tables_and_figures():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": NOTEBOOK.parent}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= shown
    pages = [output.get("data", {}).get("text/html", "") for output in outputs]
    assert any("<iframe srcdoc=" in page for page in pages)
    # the progress of `rtt`, of which nothing is left
    assert "" in [output.data.get("text/html") for output in outputs if output.output_type == "display_data"]
    assert not any(output.output_type == "error" for output in outputs)


def test_the_notebook_is_kept_without_its_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)


def test_the_code_in_the_document_runs(tmp_path, monkeypatch, recording):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    runs = [block for block in blocks if "# needs root" not in block]
    assert len(runs) >= 3
    (tmp_path / "capture.tlc").symlink_to(recording)
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in runs:
        exec(compile(block, str(DOCS), "exec"), names)
    for block in set(blocks) - set(runs):
        compile(block, str(DOCS), "exec")


def test_the_types_hold():
    words = [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null", "taillab"]
    checked = subprocess.run(words, cwd=PYTHON, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    assert Path(taillab.__file__).with_name("py.typed").is_file()
