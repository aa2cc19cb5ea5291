r"""core/math_answers.py: --verifier=math, the code that core/sandbox.py runs in its workers.

The library math-verify does the grading. It reads LaTeX as in papers; `normalize` puts gold and
answer into that form with NOTATION, a table of replacements. `score` adds rules for words and
letters, and `mend` corrects wrong verdicts of math-verify. docs/problems.md lists what remains.
"""
import contextlib
import functools
import random
import re
import unicodedata

from sympy import (Abs, Add, And, Eq, Expr, Float, Intersection, N, Pow, Product, Rational, Set,
                   Symbol, Union, real_root, simplify, solve)
from sympy.core.relational import Relational

NAME, INSTALL = "math-verify", "pip install -r requirements.txt"


def gold(problem):
    """Return the gold of a problem, the text that answers are compared with."""
    return problem["answer"]


def answer(text, most=1024):
    r"""Return the first most + 1 characters of the last \boxed{...} of a response, "" if it has no
    closed box after the thinking. The time is linear in len(text)."""
    text, start, depth = text.rpartition("</think>")[2], None, 1
    for start in re.finditer(r"\\boxed\s*\{(?!\s*\})", text):
        pass  # find the last one
    if start is None or "<think>" in text:
        return ""
    inside = text[start.end():start.end() + most + 1]
    for brace in re.finditer(r"\\.|[{}]", inside, re.DOTALL):  # skip \{ and \}
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return inside[:brace.start()].strip()
    return inside if len(inside) > most else ""


# ---- From an answer's text to the LaTeX that math-verify reads -----------------------------------

CHARACTERS = {i: chr(i - 0xfee0) for i in range(0xff01, 0xff5f)} | str.maketrans({  # full-width
    **dict(zip("−–—⁄∕÷、。′’º⟨⟩\u3000\xa0\u2009\u202f", "---///,.''°()    ")), "″": "''",
    **dict.fromkeys("\u200b\u200c\u200d\ufeff\u2060€£¥", ""), "√": r"\sqrt ", "∛": r"\sqrt[3] ",
    **{character: rf"\{name} " for character, name in zip(
        "×·⋅∙±∓≤⩽≥⩾≠≈≡∞∅∪∩∈∉∖⊂⊆∨∧→∑∏∫∠⌊⌋⌈⌉παβγδεθλμρστφωΔΩ", """times cdot cdot cdot pm mp le le ge
        ge ne approx equiv infty emptyset cup cap in notin setminus subset subseteq lor land to sum
        prod int angle lfloor rfloor lceil rceil pi alpha beta gamma delta epsilon theta lambda mu
        rho sigma tau phi omega Delta Omega""".split())},
    **{letter: rf"\mathbb{{{plain}}}" for letter, plain in zip("ℝℤℕℚℂ", "RZNQC")},
    **{one: r"\frac{%s}{%s}" % tuple(unicodedata.normalize("NFKC", one).split("⁄"))
       for one in "¼½¾⅐⅑⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}})
SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ₀₁₂₃₄₅₆₇₈₉", "0123456789+-n0123456789")
NAMES = ("alpha|beta|gamma|delta|epsilon|theta|lambda|sigma|phi|omega|pi|arc(?:sin|cos|tan)"
         r"|(?:sin|cos|tan)h?|cot|csc|sec(?=\s*\()|exp|ln|log")
# LaTeX commands that math-verify misreads or cannot read, and how to write them instead
SYNONYMS = dict(lg=r"\log_{10}", tg=r"\tan ", ctg=r"\cot ", arctg=r"\arctan ", lor=" or ",
                vee=" or ", dots=r"\ldots ", land=" and ", wedge=" and ",
                varnothing=r"\emptyset ", backslash=r"\setminus ", lbrace=r"\{", rbrace=r"\}",
                langle="(", rangle=")")
LARGE = dict(thousand=3, million=6, billion=9, trillion=12)  # powers of ten
BLANK = r"(?:\s|~|\\[,;:! ])"
NO_UNIT = ("or|and|to|if|for|is|not|am|pm|pi|tau|dozens?|hundred|lakh|score|squared|cubed|over"
           r"|factorial|plus|minus|(?:odd|even|prime)(?=\s*(?:\}|$))|times(?=\s*\d)|hal(?:f|ves)"
           "|thirds?|quarters?|(?:four|[a-z]*f|six|seven|eigh|nin|ten|hundred|thousand)ths|"
           + "|".join(LARGE))
WORD = rf"(?!(?i:{NO_UNIT})\b|[einxyz]\b)[A-Za-z]+"  # 5 n is not 5
POWER = r"(?:\s*\^\s*(?:\d|\{\s*-?\d+\s*\}))?"
UNIT = rf"\\text\s*\{{(?!\s*(?i:{NO_UNIT})\b)[^{{}}]*\}}{POWER}"  # \text{ m}, \text{apples}
LONG = (rf"(?!(?i:{NO_UNIT})\b)(?:(?:square|sq|cubic|cu)\.?\s+)?(?:[kcm]m|[km]g|m[lL]|m/s|km/h|ft"
        r"|in|lbs?|oz|mi|mph|hrs?|min|sec|feet|foot|inch|mile|hour|day|week|month|year|dollar"
        rf"|people|[a-z]{{3,}}s){POWER}(?:\s*(?:/|per)\s*[a-z]+)?")  # units in plain text
AND, OR = (rf"\$?\s*(?:\\text\s*\{{\s*{word}\s*\}}|(?<![A-Za-z\\]){word}(?![A-Za-z]))\s*\$?"
           for word in ("and", "or"))
TIME = rf"(?:{BLANK}|\\(?:text|math)\w*\s*\{{)+([apAP])\.?[mM]\b\.?\s*\}}?"
END = r"[\s$]*$"
RELATION = r"[<>]|!=|\\(?:[lg]e(?:q|qslant)?|neq?|lt|gt)(?![a-z])"


def periodic(m):
    r"""Return a repeating decimal as a fraction: (016 - 01) / 90 for 0.1\overline{6}."""
    digits, nines = f"0{m[1]}{m[2]}", "9" * len(m[3]) + "0" * len(m[2])
    return rf"\frac{{{digits}{m[3]}-{digits}}}{{{nines}}}"


def mixed(m):
    r"""Return a whole number and a fraction as one fraction: 7/3 for 2\frac{1}{3}; if the fraction
    is above 1, a product is meant: 8/3 for 2\frac{4}{3}."""
    whole, over, under = [int(number) for number in m.groups() if number]
    over = whole * under + over if over < under else whole * over
    return rf"\frac{{{over}}}{{{under}}}"


def pairs(m):
    r"""Return p=1,q=2;p=3,q=4 for p=1,q=2 \text{ and } p=3,q=4, so that these remain two pairs."""
    parts = re.split(f"{AND}|{OR}", m[0])
    return ";".join(parts) if all("=" in part and "," in part for part in parts) else m[0]


# (pattern, replacement, reason), applied in this order
NOTATION = [(re.compile(pattern, re.DOTALL), meant) for pattern, meant, _ in [
    # Different notations for the same symbol or function get one notation
    (r"(?<!\\)(?:\\[()\[\]]|\$)|\\(?:underline|bf|rm|[bB]igg?[lrm]?)(?![a-z])"
     r"|\\(?:text)?color\s*\{\w+\}", "", r"\( 5 \), $3$ cm"),
    (r"\\pmod\s*(\w+)", r"\\pmod{\1}", r"\pmod 7"),
    (r"&(lt|gt);", lambda m: {"lt": "<", "gt": ">"}[m[1]], "x &lt; 3, from a web page"),
    (r"[⁰¹²³⁴-⁹⁺⁻ⁿ]+", lambda m: f"^{{{m[0].translate(SMALL)}}}", "x²"),
    (r"[₀-₉]+", lambda m: f"_{{{m[0].translate(SMALL)}}}", "x₁"),
    (r"^\s*(?:\\text\s*\{)?\s*(?i:no (?:real )?solutions?)\s*\}?\s*$", r"\\emptyset ", "words"),
    (r"^[\s$]*(?:\\left)?\\\{\s*[a-z]\s*(?:\\in\s*(?:\\mathbb\s*\{R\}|\\R)\s*)?(?:\\mid|[|:])"
     r"(.+?)(?:\\right)?\\\}[\s$]*$", r"\1", r"\{x \mid x > 2\}"),
    (r"(?<!\w)(?:np|numpy)\.\w+\(([^()]*)\)", r"\1", "np.float64(0.5)"),
    (r"\\(?:mathrm|text(?:rm|bf|it|sf|normal)|math(?:bf|it|sf)|mbox|operatorname\*?)(?=\s*\{)",
     r"\\text", "one command for text"),
    (rf"\\text\s*\{{\s*(\\?\$?\d[\d.,]*)\s+(?!(?:{NO_UNIT})\b)([a-z]+)\s*\}}", r"\1\\text{ \2}",
     "2 cm"),
    (r"\\text\s*\{\s*(?:US)?\\?\$\s*([\d.,]*)\s*\}|\\text\s*\{\s*(\d+:\d\d[^{}]*)\}", r"\1\2",
     r"\text{\$1.50}, \text{2:30 PM}"),
    (rf"^[\s$]*([1-9]\d*)\s*:\s*(\d+)\s*:\s*(\d+){END}", r"(\\frac{\2}{\1},\\frac{\3}{\1})",
     "1:2:3 equals 2:4:6"),
    (rf"^[\s$]*(?:\\left)?\\\{{\s*((?:\\left)?\([^()]*\))\s*(?:\\right)?\\\}}{END}", r"\1",
     r"\{(1,2)\}"),
    (r"\{smallmatrix\}", "{matrix}", "a matrix in small type"),
    (rf"(?<=\d){TIME}", lambda m: rf"\text{{{m[1].lower()}m}}", "3 p.m."),
    (r"\\text\s*\{\s*([eijknpquvwxyz])\s*\}", r"{\1}", "a letter; any other text may be a unit"),
    (rf"\\text\s*\{{\s*({NAMES}|lg|(?:arc|c)?tg)\s*\}}", r"\\\1 ", "a function in upright type"),
    (rf"\\({'|'.join(SYNONYMS)})(?![a-z])", lambda m: SYNONYMS[m[1]], r"\tg for \tan"),
    (r"(?<![\\A-Za-z])sqrt", r"\\sqrt ", "sqrt(2)"),
    (r"\\sqrt\s*(\[\w+\])?\s*(\d+(?:\.\d+)?|[A-Za-z]|\\[dt]?frac\s*(?:\d|\{[^{}]*\}){2}"
     r"|\\(?!d?t?frac)[a-z]+)", r"\\sqrt\1{\2}", "√17"),
    (r"(?<![A-Za-z\\])a(sin|cos|tan)(?=\()", r"\\arc\1 ", "atan(2)"),
    (r"(?<![A-Za-z\\])log(2|10)(?=\()", r"\\log_{\1}", "log2(5)"),
    (rf"(?<![A-Za-z\\])({NAMES})(?![A-Za-z])", r"\\\1 ", "pi, ln(x), which are not products"),
    (r"(?<![A-Za-z\\])(sin|cos|tan|ln)([xyz])(?![A-Za-z^])", r"\\\1(\2)", "sinx"),
    (r"(\\(?:ln|log|sin|cos|tan)\s*)(\d+|[a-z])(?=\s*/\s*\\(?:ln|log|sin|cos|tan))", r"\1(\2)",
     r"\ln 7/\ln 3 is not \ln(7/\ln 3)"),
    (r"\\(?:cdot|times)\s*(?=\\(?:log|ln|sin|cos|tan|cot|sec|csc|arc))", " ",
     r"\log_2 3\cdot\log_3 2 is not \log_2(3\cdot\log_3 2)"),
    (r"(?<![A-Za-z\\])abs\(([^()|]*)\)", r"|\1|", "abs(x)"),
    (r"\*\*", "^", "x**2"), (r"\^\s*(-\s*(?:\d+|[A-Za-z]))", r"^{\1}", "x^-1"),
    (r"\+\s*/\s*-|\+-(?=\s*\\sqrt)", r"\\pm ", "1 +- sqrt(2)"),
    (r"(?<![A-Za-z\\])oo(?![A-Za-z])|\\text\s*\{\s*infinity\s*\}", r"\\infty ", "infinity"),
    (r"(?<=[\])])\s*U\s*(?=[\[(])", r"\\cup ", "(1,2) U (3,4)"),
    (r"([\[(][^][();]*);([^][();]*[\])])", r"\1, \2", "[3;5]"),
    (r"(?<![A-Za-z\\])([A-Za-z])\((-?\d+)\)(?=\s*=)", r"\1_{\2}", "f(3)=7"),
    (rf"^[\s$]*\]([^][(),]+),([^][(),]+)\[{END}", r"(\1,\2)", "]2,3[, an open interval"),
    (r"^\s*(?:(?:=|~|\\[,;:!]|\\(?:approx|simeq|therefore|displaystyle|[lL]arge|LARGE|[hH]uge)"
     r"(?![A-Za-z])|\\text\s*\{\s*(?i:the (?:final )?answer is)[\s:]*\})\s*)+", "", "=7"),
    (r"(?<![.,;\s])(?:[.,;\s~]|\\[,;:!\\])+((?:\}\s*)?)$", r"\1", "the full stop after an answer"),
    (rf"{BLANK}+(?=\\?%)", "", r"15\,\%"),
    # Numbers
    (r"(?<![\d.,}])([1-9]\d{0,2}(?:\{,\}\d{3})+)(?![\d.{])", lambda m: m[1].replace("{,}", ""),
     "1{,}234"),
    (r"(?<![\d.,}])(\d+)\{,\}(\d+)(?![\d.{])", r"\1.\2", "12{,}5 and 0{,}125"),
    (rf"(?<=\d){BLANK}(?=\d{{3}}(?![\d/]))", "", r"10\,000"),
    (rf"(?<=\d){BLANK}*(\\text\s*\{{)?\s*({'|'.join(LARGE)})s?(?![a-z])(?:\s*(\}}))?", lambda m:
     rf"\times 10^{{{LARGE[m[2]]}}}" + ("" if m[1] and m[3] else m[3] or m[1] or ""), "2 million"),
    (rf"^[\s$]*(\d+(?:\s+\d+)+){END}", lambda m: ",".join(m[1].split()), "2 3 is a list, not 5"),
    (r"(?<![\w^.\\}])(?<!\d,)(\d+)\s*\\[dtc]?frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*"
     r"(?:\{\s*(\d+)\s*\}|(\d))", mixed, r"2\frac{1}{3}"),
    (rf"(?<![\w^.\\}}])(?<!\d,)(\d+){BLANK}+(\d+)\s*/\s*(\d+)(?![\w.])", mixed, "2 1/3"),
    (r"(?<![\w^.\\}])(\d+)\s*(?=(?:\\left\s*)?\(|\\[dt]?binom)", r"\1*", "2(3) is not 5"),
    (r"\)\s*(?=(?:\\left\s*)?\()", ")*", "(2)(3) is not 5"),
    (r"(?<![\w\\^.])(\d+\.\d*|\.\d+|\d+(?=[eE]\d))[eE]([-+]?\d+)(?![\w.])",
     r"\1\\times 10^{\2}", "3.3e12"),
    (r"(?<=[\d.])\s*x\s*(?=10\s*\^)", r"\\times ", "3.3 x 10^12"),
    (r"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{(\d+)\}", periodic, r"0.1\overline{6}"),
    (r"\\sqrt\s*(\[\d+\])?\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"\\sqrt\1{\2}", r"\sqrt(2)"),
    (rf"(?<=\d)(?:[\s^{{]|\\text)*(?:st|nd|rd|th)[\s}}]*{END}", "", r"12^{\text{th}}"),
    # Angles and units
    (r"\^\s*(?:\\circ(?![a-z])|\{\s*\\circ\s*\})|\\degrees?(?![a-z])|\\text\s*\{\s*deg(?:rees?)?\s*"
     r"\}|(?<=\d)\s*deg(?:rees?)?(?![A-Za-z])|\^\s*\{\s*°\s*\}", "°", "one mark for degrees"),
    (r"(\d+)\s*°\s*(\d+)\s*'\s*(\d+)\s*(?:''|\")", r"(\1+\\frac{\2}{60}+\\frac{\3}{3600})°",
     "30° 15' 20''"),
    (r"(\d+)\s*°\s*(\d+)\s*'", r"(\1+\\frac{\2}{60})°", "30° 15'"),
    (rf"(?:\\text\s*\{{\s*)?°\s*(?:\\text\s*\{{\s*)?[CF]\s*\}}?{END}", "", "25°C"),
    (rf"(?<=[\w)}}\]!%|°]){BLANK}*{UNIT}(?:{BLANK}*(?:(?:/|\\cdot|\\times){BLANK}*)?{UNIT})*"
     r"(?=[\s$]*(?:$|[,;)\]]|(?:\\text\s*\{\s*)?(?:and|or)\b))", "", r"5\text{ cm}"),
    (rf"(?:(?<=[\d)}}])|(?<=\\pi)){BLANK}+{LONG}{END}", "", "5 cm, 5 apples; 5cm is a product"),
    # Several answers
    (r"(?<=[\d)}\]])(or|and)(?=[-+\d(\\$]|[A-Za-z](?![A-Za-z]))", r" \1 ", "x=1orx=2"),
    (r"\\begin\s*\{cases\}((?:[^&\\]|\\(?!begin|end))*)\\end\s*\{cases\}",
     lambda m: m[1].replace(r"\\", ","), r"x=1\\ y=2"),
    (r"^(.*?)(?:\s|[,;(~]|\\[,;:! ]|\\q?quad|\\text\s*\{\s*(?:(?:where|for|with)\s*)?\})+([kmn])\s*"
     rf"\\in\s*\\mathbb\s*\{{?\s*Z\s*\}}?\)?{END}",
     lambda m: m[m[2] in re.sub(r"\\[A-Za-z]+", "", m[1])], r"k\pi, k\in\mathbb{Z}"),
    (r"(?:^|(?<=[=,;]))[^=,;()\[\]]*(?<!\\)\{[^=,;()\[\]]*\\pm[^=,;()\[\]]*", lambda m: ",".join(
        m[0].replace(r"\pm", a).replace(r"\mp", b) for a, b in ("+-", "-+"))
     if m[0].count(r"\pm") == 1 else m[0], r"\frac{1\pm 2}{3}"),
    (r"^.+$", pairs, "pairs of assignments")]]


@functools.lru_cache(256)
def normalize(text):
    """Return a text in the notation that math-verify reads, with ° for degrees."""
    text = text.translate(CHARACTERS)
    for pattern, meant in NOTATION:
        text = pattern.sub(meant, text)
    return text


# ---- Verdicts ------------------------------------------------------------------------------------

WARM = [(r"\frac{1}{2}", "0.6"), (r"\sqrt{8}", r"3\sqrt{2}"), ("x^2-1", "(x+1)^2"),
        (r"\sin x", r"\cos x"), ("x=5", "y=5"), ("x>2", "x<2"), (r"[1,2]\cup[2,3]", "[1,2]"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&x\end{pmatrix}")]
WORDS = {word: str(number) for number, word in enumerate("""zero one two three four five six seven
         eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
         twenty""".split())} | {"all real numbers": r"\mathbb{R}", "infinitely many": r"\infty"}


def load():
    """Load math-verify and return `score`; the sandbox then forks. Raise ImportError without it."""
    from math_verify import grader
    mend(grader)
    for gold, answer in WARM:
        score(gold, answer)
    return score


def score(gold, answer):
    r"""Return whether `answer` equals `gold`, both contents of a \boxed{}, or, for an empty answer,
    whether the gold has a value, without which no answer can equal it. May hang or raise."""
    from math_verify import verify
    how = dict(allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True)
    wanted, plain = bare(gold), bare(answer)
    if not answer:
        values = [reading for reading in parsed(gold) if not isinstance(reading, str)]
        return not re.search(r"[\\^_{}=<>&]", wanted) or (values and verify(values, values, **how))
    tight = [re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text) for text in (wanted, plain)]
    if tight[0] == tight[1] or (re.fullmatch("[A-Za-z ]{3,}", wanted)
                           and wanted.casefold() == plain.casefold()):
        return True
    if (several := options(wanted)) and not (wanted.isalpha() and plain.isalpha()):
        return several == options(plain)
    # math-verify reads a word as a product, so ABC would equal CBA
    if wanted.lower() not in WORDS and re.fullmatch(
            r"(?:\\angle )?[A-Z]{3,}|[A-Z][a-z]{3,}"
            "|(?i:yes|no|true|false|even|odd|none)", wanted):
        return tight[0].casefold() == tight[1].casefold()
    choice = re.match(r"\(?([A-J])(?:\)?$|[).:]+[\s\\~]+\S)", wanted)
    if choice and re.match(r"\(?[A-J](?:[).:]|$)", plain):
        # accept one letter, with or without the option's text; two letters are a guess
        return re.findall(r"(?<![A-Za-z])\(?([A-J])(?:[).:]|$)", plain) == [choice[1]]
    if is_number := not re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", normalize(gold))):
        # so a word after a number in the answer can only be a unit
        unit = rf"(?<=[\d}}])(?:{BLANK}*{LONG}|{BLANK}+{WORD}|{TIME}){END}"
        answer = re.sub(unit, "", answer)
    names = re.findall(r"(?:^|,)\s*([a-z])\s*=\s*([^=,;()]+)", wanted)
    if (re.match(r"(?:\\left)?\s*\([^=]*$", plain) and names == sorted(dict(names).items())
            and names[1:] and ",".join(map("=".join, names)) == wanted.replace(" ", "")):
        gold = f"({','.join(value for _, value in names)})"  # x=1,y=2 is not the unordered {1,2}
    relations = [re.search(RELATION + extra, normalize(text)) for text, extra in (
        (gold, ""), (answer, r"|\\in\b|\\mathbb|\\emptyset|[\[(](?:[^()\[\]]|\([^()]*\))*,"))]
    if relations[0] and not relations[1]:  # to math-verify, 1 < x < 3 is the list of its ends
        return False
    # math-verify reads an equation as its right side, so 7 = 8 would be 8
    sides = [side for side in answer.split("=") if side.strip()]
    shown = re.sub(r"\\[A-Za-z]+", "", normalize(answer))
    if "." not in answer and not re.search("[A-Za-z.]", shown) and not all(
            verify(parsed(a), parsed(b), **how) for a, b in zip(sides, sides[1:])):
        return False
    if is_number and sides[1:] and "=" not in gold and not re.search(r"[A-Za-z.,;<>]|\\\\", shown):
        answer = sides[-1]  # math-verify reads no value in 24 = 24
    return verify(parsed(gold), parsed(answer), **how)


def options(text):
    """Return (sorted names, whether "or" joins them) for "A, C", "AC" or "I or III", else []."""
    text = re.sub(r"\(([A-J]|[IV]+)\)", r"\1", text)
    names = [*filter(None, re.split(r"[\s,;]|\b(?:and|or)\b", text))]
    names = list(text) if re.fullmatch("[A-H]{2,}", text) else names
    if len(names) < 2 or not all(re.fullmatch("[A-J]|[IV]+", name) for name in names):
        return []
    return sorted(names), "or" in text


def bare(text):
    r"""Return an answer without dollar signs, the full stop, and font commands such as \text{}."""
    text = re.sub(r"\\(?:text|math)(?:rm|bf|it)?\s*\{([^{}]*)\}", r"\1", text)
    return re.sub(r"\$|\.?\s*$|^\s*(?i:option|choice)\s+(?=\(?[A-J]\b)", "", text).strip()


@functools.lru_cache(256)  # a cache, because all rollouts of a group have the same gold
def parsed(text):
    r"""Return math-verify's readings of the content of a \boxed{}: sympy objects and texts."""
    text = normalize(WORDS.get(bare(text).lower(), text))
    # 2e-3 can mean 0.002 or 2e - 3, so read it in both ways
    power = re.sub(r"(?<![\w\\^.])(\d+)[eE]([-+]\d+)(?![\w.])", r"\1\\times 10^{\2}", text)
    texts = [power, text] if power != text else [text]
    if "°" in text:  # 30° equals 30, but sin 30° does not equal sin 30
        angle = re.sub(r"(\d+(?:\.\d+)?|[A-Za-z]|\([^()]*\)|\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\})"
                       r"(\\right\)|\))?\s*°", r"(\1\\cdot\\frac{\\pi}{180})\2", text)
        has_function = re.search(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])", text)
        texts = [t.replace("°", "") for t in ([angle] if has_function else [text, angle])]
    readings = [reading for t in texts for reading in read(t)]
    readings = inequalities(text, readings)
    # math-verify compares a letter by its name, so 2x/2 is not x, and a sum by its value: add x + 0
    return readings + [Add(reading, 0, evaluate=False) for reading in readings
                       if isinstance(reading, Symbol)]


def read(text):
    """Return [value, text]: the sympy value that math-verify reads in a LaTeX text, and the text,
    or [text] if it cannot read the text."""
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, normalize_latex
    from math_verify.parser import parse_latex_cached
    # an i that is not an index means math-verify's I. It misreads I^2 as I, but not (I)^2
    if not re.search(r"_\s*\{?\s*i|(?<![A-Za-z\\])i\s*=", text):
        text = re.sub(r"(?<![A-Za-z\\])i(?![A-Za-z])(\s*\^)?",
                      lambda m: "(I)^" if m[1] else "I", text)
    # units=False, because math-verify otherwise drops any letter at the end and reads 3+2m as 5
    text = normalize_latex(text, NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last"))
    try:
        value = parse_latex_cached(text)
    except Exception:  # errors of antlr and sympy
        return [text]
    if re.search(r"\\sqrt\[\d*[13579]\]", text):  # -2 is meant, not sympy's complex root of -8
        value = real_root(value)
    # math-verify reads e^0=1 as 1=1, so only the text can be compared
    return [text] if isinstance(value, Eq) and value.lhs == value.rhs else [value, text]


def inequalities(text, readings):
    """Return the readings of a text, with the solution set of inequalities in one letter that "or"
    joins, or only this set if "and" joins them: math-verify reads both as one set of relations."""
    for word, join in ((OR, Union), (AND, Intersection)):
        parts = re.split(word, text)
        with contextlib.suppress(Exception):  # sympy may fail to read or to solve a part
            sides = [read(part)[0] for part in parts] if len(parts) > 1 else []
            if all(isinstance(side, (Relational, And)) for side in sides) and (
                    len(set().union(*[side.free_symbols for side in sides])) == 1):
                if join is Union:
                    return [*readings, Union(*[side.as_set() for side in sides])]
                if not any(isinstance(side, Eq) for side in sides):
                    return [Intersection(*[side.as_set() for side in sides])]
    return readings


def mend(grader):
    """Correct how math-verify compares, for the rest of this process. Without this
    - exact values are equal within 1e-15 and decimals within 5e-7, so 1/2004! = 1/2006!
    - 0=0 is 1=1, an equation without solutions is the empty set, and 12.5% is not 12.5
    - constants are simplified, not computed, so log_2 3 log_3 2 is not 1
    - a letter is any real number, so 1/sqrt(n) is not sqrt(1/n)
    """
    def narrow(name, condition):
        original = getattr(grader, name)
        setattr(grader, name, lambda gold, answer, *precision:
                original(gold, answer, *precision) and condition(gold, answer))
    numeric, value = grader.sympy_numeric_eq, grader.get_pct_val
    grader.sympy_numeric_eq = lambda gold, answer, *precision: numeric(  # 12.5% is 12.5
        gold, answer, *precision) or numeric(value(gold, gold), value(answer, answer), *precision)
    narrow("sympy_numeric_eq", close)
    narrow("sympy_compare_relational", same_relation)
    narrow("sympy_expr_eq", lambda gold, answer: is_set(gold, answer) and is_set(answer, gold))
    symbolic = grader.sympy_symbolic_eq

    def equal(gold, answer):
        if not any(not isinstance(side, Expr) or side.free_symbols or side.has(Float)
                   for side in (gold, answer)):  # exact numbers, such as cos(2 pi / 7)
            with contextlib.suppress(Exception):  # gold or answer may have no value
                return not differ(gold, answer)
        return (symbolic(gold, answer) or equal_on_domain(gold, answer)
                or (gold.has(Product) or answer.has(Product))
                and symbolic(gold.doit(), answer.doit()))
    grader.sympy_symbolic_eq = equal


def close(gold, answer):
    """Return whether gold and answer, which math-verify calls equal, are equal by `differ` too."""
    from math_verify.grader import get_pct_val as value  # 9% is 9
    with contextlib.suppress(Exception):  # without a value, keep math-verify's verdict
        return value(gold, gold) == value(answer, answer) or not differ(gold, answer)
    return True


def differ(gold, answer, k=0):
    """Return whether gold and answer differ at random values of their letters, with seed k. Raise
    an error if one has no value.
    Exact values are computed to as many digits as it takes, and values with decimals in them, such
    as 0.3 x, may differ by 1e-12 of their size. Of lone decimals math-verify has compared six
    decimal places; those below 0.001 must agree in six significant digits too.
    """
    lone, where = isinstance(gold, Float) or isinstance(answer, Float), place(k, gold, answer)
    # doit() first: computing the digits of an unevaluated sum takes seconds
    gold, answer = gold.doit().subs(where), answer.doit().subs(where)
    if not gold.has(Float) and not answer.has(Float):
        for part in (gold - answer).evalf(2, maxn=1000).as_real_imag():
            if part != 0 and part.is_finite and part._prec > 1:  # at least one digit is certain
                return True
            if not abs(part) < 1e-100:  # the difference is infinite or has too few certain digits
                raise ValueError(part)
        return False
    gold, answer = N(gold), N(answer)
    if lone and abs(gold) >= 0.001:
        return False
    return bool(abs(gold - answer) > (5e-7 if lone else 1e-12) * max(abs(gold), abs(answer)))


def place(k, *values):
    """Return {letter: random rational number} for the letters in `values`. k: the random seed."""
    rng = random.Random(k)
    return {letter: Rational(rng.choice((-1, 1)) * rng.randint(1, 999), 10 ** rng.randint(1, 3) + 1)
            for letter in sorted(set().union(*[value.free_symbols for value in values]), key=str)}


def equal_on_domain(gold, answer):
    """Return whether gold and answer are equal at random places where the gold's roots are real."""
    roots = [power.base for power in gold.atoms(Pow) if not power.exp.is_integer]
    if not roots or not gold.free_symbols or gold.free_symbols != answer.free_symbols:
        return False

    def real(k):
        values = [complex(root.subs(place(k, gold))) for root in roots]
        return all(value.imag == 0 <= value.real for value in values)
    with contextlib.suppress(Exception):  # gold or answer may have no value
        places = [k for k in range(32) if real(k)]
        return len(places) > 3 and not any(differ(gold, answer, k) for k in places)
    return False


def same_relation(gold, answer):
    """Return whether two relations that math-verify calls equal are really equal. It is wrong about
    relations without an unknown and equations without a solution."""
    if not isinstance(gold, Relational):
        return True  # a chain such as 1 < x < 2, whose parts math-verify has already compared
    first, second = simplify(gold.lhs - gold.rhs), simplify(answer.lhs - answer.rhs)
    if not first.free_symbols or not second.free_symbols:  # no unknown, so compare as text
        return {str(gold.lhs), str(gold.rhs)} == {str(answer.lhs), str(answer.rhs)}
    # two equations without a solution are equal only if they are multiples of each other
    return (not isinstance(gold, Eq) or not simplify(first / second).free_symbols
            or bool(solve(gold, gold.free_symbols)))


def is_set(relation, other):
    """Return whether a relation that math-verify calls equal to the set `other` has a lone unknown
    on a side of each part, as 1 < x < 3 and |x| > 1 do. The question, x^2 < 1, is not an answer."""
    if not isinstance(relation, (Relational, And)) or not isinstance(
            getattr(other, "rhs", other), Set):
        return True
    return all(any(
        not isinstance(a, Expr) or a.func in (Symbol, Abs) and not a.free_symbols & b.free_symbols
        for a, b in (part.args, part.args[::-1])) for part in And.make_args(relation))
