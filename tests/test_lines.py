"""No line of the repository's code is longer than 100 characters."""
from conftest import ROOT

LONGEST = 100


def test_lines_fit_a_screen():
    long = {}
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.sh")]):
        name = path.relative_to(ROOT)
        if not any(part.startswith(".") or part == "runs" for part in name.parts):
            lines = path.read_text().splitlines()
            count = sum(len(line) > LONGEST for line in lines)
            if count:
                long[str(name)] = count
    assert not long, f"lines above {LONGEST} characters: {long}"
