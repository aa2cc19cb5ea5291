"""core/gym_answers.py: --verifier=reasoning_gym, the code that core/sandbox.py runs in its workers.

Some of reasoning-gym's verifiers evaluate answers as Python code, and some accept wrong answers.
`tame` closes the known holes of both kinds.
"""
import ast
import functools
import json
import math
import re
import sys

from config import BadInput

NAME, INSTALL = "reasoning-gym", "pip install reasoning-gym==0.1.25"


def gold(problem):
    """Return the fields that `score` needs as JSON text. Raise BadInput if one is missing."""
    entry = problem.get("reasoning_gym")
    if not isinstance(entry, dict) or not {"task", "args", "metadata"} <= set(entry):
        raise BadInput(f"problem {problem['id']}: has no field reasoning_gym, which "
                       "--verifier=reasoning_gym needs (data/reasoning_gym/prepare.py writes it)")
    return json.dumps(dict(answer=problem["answer"]) | entry)


def answer(text, most):
    """Return the content of the last <answer>...</answer> of a response, after any thinking, "" if
    a tag or the thinking is not closed, or the first line if there is no tag."""
    text = text.rpartition("</think>")[2]
    if "<think>" in text:
        return ""
    if "<answer>" in text:
        return text.rpartition("</answer>")[0].rpartition("<answer>")[2].strip()
    return text.strip().partition("\n")[0].rstrip()


def load():
    """Return `score` after loading reasoning-gym. Raise ImportError if it is not installed."""
    import reasoning_gym  # noqa: F401, loads the verifiers that `tame` changes
    import sympy
    tame(sympy)
    sympy.parse_expr("(1 + 2) * x / 3")  # builds sympy's tables
    return score


def score(gold, answer):
    """Return reasoning-gym's score of an answer, from 0 to 1. May hang or raise."""
    entry = json.loads(gold)
    # the library's verifier of puzzle24 accepts any four numbers, so check the numbers here
    if entry["task"] == "puzzle24":
        if sorted(map(int, re.findall(r"\d+", answer))) != sorted(entry["metadata"]["numbers"]):
            return 0.0
    args = json.dumps(entry["args"], sort_keys=True)
    return data_set(entry["task"], args).score_answer(answer, entry)


@functools.lru_cache(8)
def data_set(name, args):
    """Return reasoning-gym's data set of a task. args: its parameters as JSON."""
    import reasoning_gym
    return reasoning_gym.create_dataset(name, **json.loads(args), seed=0, size=1)


def tame(sympy):
    """Keep reasoning-gym's verifiers from running answers as Python.

    Some call eval to read a list, or sympy's parse_expr, which is eval with a few names. Now
    eval reads only literals, and parse_expr formulas of numbers, single letters and FUNCTIONS.
    """
    parse = sympy.parse_expr

    def formula(text, *args, **kwargs):
        # ASCII only, because Python reads some other letters as similar ASCII letters
        strange = re.search(r"[^\w\s+\-*/^().,!]|\.\s*[A-Za-z_]", text, re.ASCII)
        if strange or set(re.findall(r"[A-Za-z_]\w+", text)) - FUNCTIONS:
            raise ValueError(f"not a formula: {text[:80]!r}")
        return parse(text, *args, **kwargs)

    def arithmetic(text):  # refuse all but digits, brackets and + - * /
        if re.search(r"[^\d\s+\-*/()]|\*\s*\*|/\s*/", text, re.ASCII):
            raise ValueError(f"not arithmetic: {text[:80]!r}")
        return parse(text)

    def whole(value):  # because int(49/2) is 24
        return int(value) if isinstance(value, str) or value == int(value) else 0

    def number(value):  # because the error of nan never exceeds a tolerance
        value = float(value)
        if math.isnan(value):
            raise ValueError("nan")
        return value
    sympy.parse_expr = formula
    for name, module in list(sys.modules.items()):
        # bitwise_arithmetic evaluates only its own problems, not answers
        if name.startswith("reasoning_gym.") and not name.endswith("bitwise_arithmetic"):
            module.eval = ast.literal_eval  # hides the built-in eval
            if getattr(module, "parse_expr", None) is parse:
                module.parse_expr = formula
    # {module: {name in the module: the stricter function that replaces it}}
    narrower = {"games.countdown": dict(parse_expr=arithmetic),
                "games.puzzle24": dict(parse_expr=arithmetic, int=whole),
                "algorithmic.number_sorting": dict(float=number),
                # min(1, nan) is 1, the score of a right answer; min(nan, 1) is nan, an error
                "algebra.complex_arithmetic": dict(min=lambda most, score: min(score, most))}
    for name, names in narrower.items():
        vars(sys.modules[f"reasoning_gym.{name}"]).update(names)


FUNCTIONS = set("""sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp log
                   ln sqrt Abs abs pi""".split())
