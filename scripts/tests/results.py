"""What tests gave: kept for machines as JSON, shown to people as tables and one closing line."""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass

OUTCOMES = ("passed", "failed", "skipped", "not run")
# A test that cannot run here says so in a line of this form; libtest knows only its own `ignored`.
SKIPPED = re.compile(r"SKIPPED (.*)")
# What it says of an attempt that the machine spoiled, before it makes another one.
SPOILED = re.compile(r"is spoiled after ([\d.]+) s:")


@dataclass
class Result:
    """One test, lint or limit: `suite` is a test binary or a guest, `outcome` one of OUTCOMES."""

    suite: str
    test: str
    outcome: str
    seconds: float
    said: str = ""
    # what it lacks comes from a network, and is no part of the program
    lacks_network: bool = False

    def spoiled_s(self):
        """How long its attempts took that the machine spoiled, in seconds."""
        return sum(float(seconds) for seconds in SPOILED.findall(self.said))


def closing_line(results):
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)


def exit_code(results, may_skip):
    """0 only if everything ran and passed; tests may be skipped only where somebody asked for it, or where packages
    that only they need cannot be downloaded."""
    counts = Counter(result.outcome for result in results)
    skipped = [result for result in results if result.outcome == "skipped" and not result.lacks_network]
    wrong = counts["failed"] + counts["not run"] + (0 if may_skip else len(skipped))
    return 0 if counts["passed"] and not wrong else 1


def save(path, results, about):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**about, "results": [asdict(result) for result in results]}, indent=1)
    path.write_text(text + "\n")


def table(header, rows):
    """Lines of columns as wide as their contents, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    right = [all(isinstance(row[at], (int, float)) or re.fullmatch(r"[\d.]+ s|", str(row[at])) for row in rows)
             for at in range(len(header))]
    justified = ((cell.rjust(width) if is_right else cell.ljust(width)
                  for cell, width, is_right in zip(row, widths, right)) for row in cells)
    return "\n".join("  ".join(row).rstrip() for row in justified)
