r"""core/math_answers.py: --verifier=math, what verifier.py runs in its processes.

math-verify grades. `parsed` says in its terms what it does not read or takes for something else,
and `mend` puts right what it compares wrongly. Needs sympy, and math-verify once something is
graded.
"""
import contextlib
import functools
import random
import re

from sympy import Add, And, Eq, Float, N, Pow, Rational, Set, Symbol, Union, simplify, solve
from sympy.core.relational import Relational

NAME, INSTALL = "math-verify", "pip install -r requirements.txt"


def gold(problem):
    """What an answer is compared with."""
    return problem["answer"]


def answer(text, most=1024):
    r"""What the last \boxed{...} of a response holds, after any thinking; linear in len(text).

    "" where there is no box, where it is not closed or stands in a block of thinking. Reads on from
    that box for `most` characters; what is longer comes back cut at one more, still open.
    """
    text, start, depth = text.rpartition("</think>")[2], None, 1
    for start in re.finditer(r"\\boxed\s*\{", text):
        pass  # the last one
    if start is None or "<think>" in text:
        return ""
    inside = text[start.end():start.end() + most + 1]
    for brace in re.finditer(r"\\.|[{}]", inside, re.DOTALL):  # \{ and \} are no braces
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return inside[:brace.start()].strip()
    return inside if len(inside) > most else ""


WARM = [(r"\frac{1}{2}", "0.6"), (r"\sqrt{8}", r"3\sqrt{2}"), ("x^2-1", "(x+1)^2"),
        (r"\sin x", r"\cos x"), ("x=5", "y=5"), ("x>2", "x<2"), (r"[1,2]\cup[2,3]", "[1,2]"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&x\end{pmatrix}"),
        ("3+4i", "3-4i")]


def load():
    """`score`, with math-verify mended, and with what sympy imports and the parser builds on the
    way, which no child has to do in the time of an answer. Raises ImportError."""
    from math_verify import grader
    mend(grader)
    for gold, answer in WARM:
        score(gold, answer)
    return score


def score(gold, answer):
    r"""Whether math-verify takes `answer` for `gold`, both as in \boxed{}. May hang or raise."""
    from math_verify import verify
    if gold.strip() == answer.strip():
        return True
    plain, wanted = bare(answer), "".join(bare(gold).split())
    # an order or a word, of which math-verify makes a product: ABC is CBA to it
    if re.fullmatch("[A-Z]{3,}", wanted):
        return wanted == "".join(plain.split())
    if re.fullmatch("[A-J]", wanted) and re.match(r"\(?[A-J][).:]+\s*\S", plain):
        # E: what that choice says; a second choice beside it is a guess
        return re.findall(r"(?<![A-Za-z])\(?([A-J])(?:[).:]|$)", plain) == [wanted]
    return verify(parsed(gold), parsed(answer), allow_set_relation_comp=True, timeout_seconds=None,
                  raise_on_error=True)


def bare(text):
    r"""An answer without \text{} and the like, dollars and a full stop."""
    text = re.sub(r"\\(?:text|math)(?:rm|bf|it)?\s*\{([^{}]*)\}", r"\1", text)
    return re.sub(r"\$|\.?\s*$", "", text).strip()


@functools.lru_cache(256)  # all rollouts of a group have one gold answer
def parsed(text):
    r"""math-verify's readings of what is in a \boxed{}."""
    text = WORDS.get(bare(text).lower(), text)
    for pattern, meant in NOTATION:
        text = re.sub(pattern, meant, text)
    # 2e-3 is read as both 0.002 and 2e - 3
    power = re.sub(r"(?<![\w\\^.])(\d+)[eE]([-+]\d+)(?![\w.])", r"\1\\times 10^{\2}", text)
    readings = (read(power) if power != text else []) + read(text) + union(text)
    # a lone letter is compared by its name; as a sum it is compared by what it is: x and 2x/2
    return readings + [Add(reading, 0, evaluate=False) for reading in readings
                       if isinstance(reading, Symbol)]


def read(text):
    r"""math-verify's reading of LaTeX, and the text."""
    from math_verify import LatexExtractionConfig, parse
    # where it counts nothing, i is what math-verify calls I; and it takes I^2 for I
    if not re.search(r"_\s*\{?\s*i|(?<![A-Za-z\\])i\s*=", text):
        text = re.sub(r"(?<![A-Za-z\\])i(?![A-Za-z])(\s*\^)?",
                      lambda m: "(I)^" if m[1] else "I", text)
    # first_match: a box that it cannot read is not searched for parts that it can
    readings = parse(rf"\boxed{{{text}}}", [LatexExtractionConfig(boxed_match_priority=0)],
                     parsing_timeout=None, extraction_mode="first_match")
    # it makes 1=1 of e^0=1, of which the text alone is left
    return [reading for reading in readings
            if not isinstance(reading, Eq) or reading.lhs != reading.rhs]


def union(text):
    """[the set where x < 1 or x > 2], which is a set of two relations to math-verify, else []."""
    parts = re.split(r"\$?\s*(?:\\text\s*\{\s*or\s*\}|(?<![A-Za-z\\])or(?![A-Za-z])|\\lor\b|\\vee\b"
                     r")\s*\$?", text)
    with contextlib.suppress(Exception):  # what it cannot read or solve
        sides = [read(part)[0] for part in parts] if len(parts) > 1 else []
        if all(isinstance(side, (Relational, And)) for side in sides):
            if len({letter for side in sides for letter in side.free_symbols}) == 1:
                return [Union(*[side.as_set() for side in sides])]
    return []


def periodic(m):
    r"""0.1\overline{6} = (016 - 01) / 90"""
    digits, nines = f"0{m[1]}{m[2]}", "9" * len(m[3]) + "0" * len(m[2])
    return rf"\frac{{{digits}{m[3]}-{digits}}}{{{nines}}}"


def mixed(m):
    r"""2\frac{1}{3} is a sum, 2\frac{4}{3} a product."""
    whole, over, under = [int(group) for group in m.groups() if group]
    over = whole * under + over if over < under else whole * over
    return rf"\frac{{{over}}}{{{under}}}"


# Notation that math-verify does not read, or reads as something else, in terms that it does.
# Each pattern is linear in the text
NOTATION = [
    (r"^\s*(?:(?:=|\\(?:approx|simeq|therefore|displaystyle|[lL]arge|LARGE|[hH]uge)(?![A-Za-z]))"
     r"\s*)+", ""),                                              # =7
    (r"(?<![.\s])[.\s]+((?:\}\s*)?)$", r"\1"),                   # the full stop after an answer
    (r"(?<=\d)(?:\\[,;:! ]|~| )(?=\d{3}(?![\d/]))", ""),         # 10\,000
    # two numbers side by side it adds: 2 3 is a list, 2(3) a product, 2\frac{1}{3} alone a sum
    (r"^[\s$]*(\d+(?:\s+\d+)+)[\s$]*$", lambda m: ",".join(m[1].split())),
    (r"(?<![\w^.\\}])(?<!\d,)(\d+)\s*\\[dtc]?frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*"
     r"(?:\{\s*(\d+)\s*\}|(\d))", mixed),
    (r"(?<![\w^.\\}])(?<!\d,)(\d+)(?:\s|\\[,;:! ]|~)+(\d+)\s*/\s*(\d+)(?![\w.])", mixed),
    (r"(?<![\w^.\\}])(\d+)\s*(?=(?:\\left\s*)?\(|\\[dt]?binom)", r"\1*"),
    (r"\)\s*(?=(?:\\left\s*)?\()", ")*"),
    # 3.3e12, 3.3 x 10^12
    (r"(?<![\w\\^.])(\d+\.\d*|\.\d+|\d+(?=[eE]\d))[eE]([-+]?\d+)(?![\w.])",
     r"\1\\times 10^{\2}"),
    (r"(?<=[\d.])\s*x\s*(?=10\s*\^)", r"\\times "),
    (r"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}", periodic),
    (r"\\sqrt\[(\d*[13579])\]\{\s*-\s*(\d+)\}", r"((-1)\\sqrt[\1]{\2})"),  # the real root
    (r"\\sqrt\s*(\[\d+\])?\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"\\sqrt\1{\2}"),
    (r"\\text\s*\{([^\w{}\\]*)\}", r"\1"),                       # 3\text{:}30
    # a letter at the end of an answer, which it drops as a unit
    (r"\\(?:math(?:bf|it|sf|bb)|boldsymbol)\s*\{\s*([a-z])\s*\}", r"{\1}"),
    (r"\\(?:text|mathrm|operatorname|text(?:rm|it|bf))\s*\{\s*([eijknpquvwxyz])\s*\}", r"{\1}"),
    (r"(?<=[\d)}\]])(or|and)(?=[-+\d(\\$]|[A-Za-z](?![A-Za-z]))", r" \1 "),  # x=1orx=2
    (r"\\begin\s*\{cases\}((?:[^&\\]|\\(?!begin|end))*)\\end\s*\{cases\}",
     lambda m: m[1].replace(r"\\", ",")),                        # x=1\\ y=2
    (r"\\text\s*\{\s*infinity\s*\}", r"\\infty"), (r"\\varnothing", r"\\emptyset"),
    (r"\\langle", "("), (r"\\rangle", ")")
]
NUMERALS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
              fifteen sixteen seventeen eighteen nineteen twenty""".split()
WORDS = {word: str(number) for number, word in enumerate(NUMERALS)}


def mend(grader):
    """Put right what math-verify compares wrongly, for the rest of this process.

    - To it what differs by less than 1e-15, or as decimals by 5e-7, is equal, however small both
      are: 1/2004! was 1/2006!.
    - To it equations are equal that have the same solutions, or the same difference of sides: all
      that hold never, or always, as 0=0 does, and the empty set was each that holds never.
    - To it letters are any real numbers, so sqrt(1/n) was not 1/sqrt(n).
    """
    def narrow(name, condition):
        theirs = getattr(grader, name)
        setattr(grader, name, lambda gold, answer, *precision:
                theirs(gold, answer, *precision) and condition(gold, answer))
    narrow("sympy_numeric_eq", close)
    narrow("sympy_compare_relational", same_relation)
    narrow("sympy_expr_eq", lambda gold, answer: is_set(gold, answer) and is_set(answer, gold))
    symbolic = grader.sympy_symbolic_eq
    grader.sympy_symbolic_eq = lambda gold, answer: (symbolic(gold, answer)
                                                     or equal_on_domain(gold, answer))


def close(gold, answer):
    """Whether two expressions that math-verify rounds to equal ones are equal as `differ` says."""
    from math_verify.grader import get_pct_val
    if get_pct_val(gold, gold) == get_pct_val(answer, answer):
        return True  # 9% is 9
    try:
        return not differ(gold, answer)
    except Exception:  # what has no value
        return True


def differ(gold, answer, k=0):
    """Whether two expressions differ at their k-th `place`, to as many digits as it takes.

    Decimals may differ by 1e-12 of their size; a lone one as far as math-verify lets it from 0.001
    on, below in the seventh digit. Raises where one of them has no value.
    """
    lone, where = isinstance(gold, Float) or isinstance(answer, Float), place(k, gold, answer)
    # doit: the digits of a sum that is not done cost seconds
    gold, answer = gold.doit().subs(where), answer.doit().subs(where)
    if not gold.has(Float) and not answer.has(Float):
        parts = (gold - answer).evalf(2, maxn=1000).as_real_imag()
        return any(part != 0 and part._prec > 1 for part in parts)  # of prec 1: no digit is sure
    gold, answer = N(gold), N(answer)
    if lone and abs(gold) >= 0.001:
        return False
    return bool(abs(gold - answer) > (5e-7 if lone else 1e-12) * max(abs(gold), abs(answer)))


def place(k, *expressions):
    """{letter: a rational number of either sign} for the letters of expressions, the k-th."""
    rng = random.Random(k)
    return {letter: Rational(rng.choice((-1, 1)) * rng.randint(1, 999), 10 ** rng.randint(1, 3) + 1)
            for letter in sorted(set().union(*[e.free_symbols for e in expressions]), key=str)}


def equal_on_domain(gold, answer):
    """Whether an answer has the gold's values wherever the roots in the gold are real."""
    roots = [power.base for power in gold.atoms(Pow) if not power.exp.is_integer]
    if not roots or not gold.free_symbols or gold.free_symbols != answer.free_symbols:
        return False

    def real(k):
        values = [complex(root.subs(place(k, gold))) for root in roots]
        return all(value.imag == 0 <= value.real for value in values)
    try:
        places = [k for k in range(32) if real(k)]
        return len(places) > 3 and not any(differ(gold, answer, k) for k in places)
    except Exception:  # what has no value
        return False


def same_relation(gold, answer):
    """Whether two relations that math-verify takes for equal say the same of what is unknown."""
    if not isinstance(gold, Relational):
        return True  # a chain, whose parts were compared
    first, second = simplify(gold.lhs - gold.rhs), simplify(answer.lhs - answer.rhs)
    if not first.free_symbols or not second.free_symbols:  # nothing is: they must be written alike
        return {str(gold.lhs), str(gold.rhs)} == {str(answer.lhs), str(answer.rhs)}
    # equations without a solution must be multiples of each other
    return (not isinstance(gold, Eq) or not simplify(first / second).free_symbols
            or bool(solve(gold, gold.free_symbols)))


def is_set(relation, other):
    """Whether a relation, if it is one, may stand for the set `other`: it says something of what is
    unknown, and an equation has a solution."""
    if not isinstance(relation, Relational) or not isinstance(other, Set):
        return True
    if isinstance(relation, Eq):
        return isinstance(relation.rhs, Set) or not other.is_empty
    return bool(simplify(relation.lhs - relation.rhs).free_symbols)
