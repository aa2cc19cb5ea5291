"""data/reasoning_gym/reward.py: --verifier=reasoning_gym, what verifier.py runs in its processes.

Some of reasoning-gym's verifiers evaluate answers as Python, and some take wrong ones for right:
`tame` closes what is known of both. Needs config.py, and reasoning-gym once something is graded.
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
    """What `score` needs of a problem, as text. Raises BadInput where it has nothing of it."""
    entry = problem.get("reasoning_gym")
    if not isinstance(entry, dict) or not {"task", "args", "metadata"} <= set(entry):
        raise BadInput(f"problem {problem['id']}: has no field reasoning_gym, by which "
                       "--verifier=reasoning_gym grades (data/reasoning_gym/prepare.py writes it)")
    return json.dumps(dict(answer=problem["answer"]) | entry)


def answer(text, most):
    """What the last <answer>...</answer> of a response holds, after any thinking.

    Without a tag its first line, as where the answer was begun for the model: short answers need no
    tags. "" where a tag is not closed, or a block of thinking.
    """
    text = text.rpartition("</think>")[2]
    if "<think>" in text:
        return ""
    if "<answer>" in text:
        return text.rpartition("</answer>")[0].rpartition("<answer>")[2].strip()
    return text.strip().partition("\n")[0].rstrip()


def load():
    """`score`, with reasoning-gym loaded and tamed. Raises ImportError."""
    import reasoning_gym  # noqa: F401
    import sympy
    tame(sympy)
    sympy.parse_expr("(1 + 2) * x / 3")  # builds its tables
    return score


def score(gold, answer):
    """reasoning-gym's score of an answer, from 0 to 1. May hang or raise."""
    entry = json.loads(gold)
    if entry["task"] == "puzzle24":  # it asks for any four numbers
        if sorted(map(int, re.findall(r"\d+", answer))) != sorted(entry["metadata"]["numbers"]):
            return 0.0
    args = json.dumps(entry["args"], sort_keys=True)
    return data_set(entry["task"], args).score_answer(answer, entry)


@functools.lru_cache(8)
def data_set(name, args):
    """A reasoning-gym data set by its name and its parameters, as JSON; it makes no problem yet."""
    import reasoning_gym
    return reasoning_gym.create_dataset(name, **json.loads(args), seed=0, size=1)


def tame(sympy):
    """Take Python out of the hands of answers: some of reasoning-gym's verifiers evaluate them.

    By eval, where a list is expected, and by sympy's parse_expr, which is eval with a few names.
    From here on they read literals, and formulas of numbers, lone letters and FUNCTIONS. Also
    closes holes through which a wrong answer was right (`CHEATS` in tests/test_gym.py).
    """
    parse = sympy.parse_expr

    def formula(text, *args, **kwargs):
        # ASCII: Python takes other letters for those that they look like
        strange = re.search(r"[^\w\s+\-*/^().,!]|\.\s*[A-Za-z_]", text, re.ASCII)
        if strange or set(re.findall(r"[A-Za-z_]\w+", text)) - FUNCTIONS:
            raise ValueError(f"not a formula: {text[:80]!r}")
        return parse(text, *args, **kwargs)

    def arithmetic(text):  # with numbers that are counted: 5j is none, nor is (x + x)/x
        if re.search(r"[^\d\s+\-*/()]|\*\s*\*|/\s*/", text, re.ASCII):
            raise ValueError(f"not arithmetic: {text[:80]!r}")
        return parse(text)

    def whole(value):  # 49/2 is not 24
        return int(value) if isinstance(value, str) or value == int(value) else 0

    def number(value):  # nothing is further from nan than a tolerance
        value = float(value)
        if math.isnan(value):
            raise ValueError("nan")
        return value
    sympy.parse_expr = formula
    for name, module in list(sys.modules.items()):
        # bitwise_arithmetic evaluates its own problems alone
        if name.startswith("reasoning_gym.") and not name.endswith("bitwise_arithmetic"):
            module.eval = ast.literal_eval  # in place of the built-in one
            if getattr(module, "parse_expr", None) is parse:
                module.parse_expr = formula
    # what one verifier alone is to use in place of the names that it has
    narrower = {"games.countdown": dict(parse_expr=arithmetic),
                "games.puzzle24": dict(parse_expr=arithmetic, int=whole),
                "algorithmic.number_sorting": dict(float=number),
                # min(1, nan) is 1, min(nan, 1) is nan, an error
                "algebra.complex_arithmetic": dict(min=lambda most, score: min(score, most))}
    for name, names in narrower.items():
        vars(sys.modules[f"reasoning_gym.{name}"]).update(names)


FUNCTIONS = set("""sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp log
                   ln sqrt Abs abs pi""".split())
